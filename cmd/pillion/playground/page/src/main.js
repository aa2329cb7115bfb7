// SPDX-License-Identifier: Apache-2.0

import {completer} from './complete.js';
import {complain, editor, setText, show, text, viewer} from './editors.js';
import {Engine, engine} from './engine.js';
import {decode, encode, only} from './link.js';
import * as view from './view.js';

const by = (id) => document.getElementById(id);
const areas = ['namespaceLabels', 'namespaceAnnotations', 'accountLabels', 'accountAnnotations'];
const tabs = [...document.querySelectorAll('[role=tab]')];

let setting = false; // whether the page changes an editor, not the user
let tampered = false; // whether the user edited the final pod
let newer = false; // whether the input is newer than the result
let last; // input, as JSON

const editors = {
  templates: editor('templates', 'Templates, YAML', () => changed(), completer('template')),
  manifest: editor('manifest', 'Pod or workload, YAML', () => changed(), completer('manifest')),
  final: editor('final', 'Final pod, YAML', () => {
    if (setting) return;
    tampered = true;
    changed();
  }),
};
const result = viewer('result', 'Resulting manifest, YAML');

function state() {
  return {
    templates: text(editors.templates), manifest: text(editors.manifest),
    ...Object.fromEntries(areas.map((a) => [a, by(a).value])),
    final: tampered ? text(editors.final) || '\n' : '', // an empty one is an edit too
    policy: document.querySelector('[name=policy]:checked').value,
    tab: tabs.find((t) => t.ariaSelected === 'true').id.slice('tab-'.length),
  };
}

function restore(s) {
  document.querySelector('main').inert = false; // what the user types before would be lost
  setting = true;
  if (s.templates !== hinted) [hinted, hints] = [undefined, []]; // those are about other templates
  setText(editors.templates, s.templates ?? '');
  setText(editors.manifest, s.manifest ?? '');
  for (const a of areas) by(a).value = s[a] ?? '';
  tampered = Boolean(s.final);
  setText(editors.final, s.final ?? '');
  for (const radio of document.querySelectorAll('[name=policy]')) radio.checked = radio.value === (s.policy === 'validating' ? 'validating' : 'mutating');
  select(tabs.find((t) => t.id === `tab-${s.tab}`) ?? tabs[0]);
  setting = false;
  changed();
}

Object.assign(engine, {
  output(output, took) {
    if (output.error) {
      old();
      return view.status(output.error, true);
    }
    render(output);
    newer = Boolean(engine.next);
    clearTimeout(pausing);
    if (output.problems.length === 0) pausing = setTimeout(hint, pause);
    view.status(`Evaluated in ${Math.max(1, Math.round(took))} ms`);
    document.body.dataset.evaluated = String(Number(document.body.dataset.evaluated ?? 0) + 1);
    document.body.dataset.took = took.toFixed(1);
    document.body.dataset.engine ??= performance.now().toFixed(0);
  },
  stopped(limit) {
    old();
    view.status(`Stopped after ${limit / 1000} s. Change the input to try again.`, true);
  },
  failed(why) {
    old();
    view.status(`The engine does not run: ${why}. Change the input to start it again.`, true);
  },
});
if (engine.why) engine.failed(engine.why);

// Hints need many evaluations. They have an engine of their own, so that no key waits for them, and begin when the
// user pauses, in milliseconds.
const pause = 500;
let pausing;
let hints = []; // about hinted
let hinted; // templates
let linter;

function hint() {
  const templates = text(editors.templates);
  if (templates === hinted) return;
  const show = (templates, all, problems = []) => {
    if (templates === text(editors.templates)) {
      [hinted, hints] = [templates, all];
      mark(problems);
    }
    document.body.dataset.hinted = String(Number(document.body.dataset.hinted ?? 0) + 1);
  };
  linter ??= new Engine(30_000, {
    output: (o) => linter.next || show(linter.templates, o.hints, o.problems),
    stopped: (limit) => show(linter.templates, [{message: `The hints are missing, because they take longer than ${limit / 1000} s.`}]),
    failed: (why) => show(linter.templates, [{message: `The hints are missing, because the engine does not run: ${why}.`}]),
  }, engine.module);
  linter.templates = templates;
  linter.evaluate({templates, manifest: '', lint: true});
}

// mark shows the problems and hints of the templates.
function mark(problems) {
  const of = problems.length ? [] : hints;
  view.problems('problems', problems);
  view.problems('hints', of);
  complain(editors.templates, problems, of);
}

function changed() {
  if (setting) return;
  const {tab, ...input} = state();
  const json = JSON.stringify({...input, policy: ''});
  newer ||= json !== last;
  last = json;
  if (!engine.running) old();
  if (tab !== 'policy') input.policy = '';
  engine.evaluate(input);
}

// old says that the result is not that of the input.
function old() {
  if (newer && text(result)) by('legend').textContent = 'This is the result of an earlier input.';
}

function render(o) {
  newer = false;
  mark(o.problems);
  by('legend').textContent = o.problems.length ? 'There is no result, because the templates have problems.' : 'Additions have a + and a colored background.';
  show(result, o.result, o.added);
  const ofFinal = o.mistakes.filter((p) => p.field === 'final');
  view.problems('mistakes', o.mistakes.map(view.named));
  complain(editors.manifest, o.mistakes.filter((p) => !p.field));
  complain(editors.final, ofFinal);
  if (!tampered) {
    setting = true;
    setText(editors.final, o.result);
    setting = false;
  }
  document.body.dataset.first ??= performance.now().toFixed(0);
  by('reset').disabled = !tampered;
  view.decisions(o.objects, o.problems.length > 0);
  view.patch(o.objects);
  view.warnings(o.objects);
  view.security(o.objects);
  view.verdicts(o.verdicts, ofFinal, o.problems.length > 0);
  view.policy(o.policy);
}

function select(tab) {
  for (const t of tabs) {
    t.ariaSelected = String(t === tab);
    t.tabIndex = t === tab ? 0 : -1;
    by(t.getAttribute('aria-controls')).hidden = t !== tab;
  }
}

for (const tab of tabs) {
  tab.addEventListener('click', () => {
    select(tab);
    changed();
  });
  tab.addEventListener('keydown', (e) => {
    const at = tabs.indexOf(tab);
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1 + tabs.length, Home: 0, End: tabs.length - 1}[e.key];
    if (to === undefined) return;
    e.preventDefault();
    tabs[to % tabs.length].focus();
    tabs[to % tabs.length].click();
  });
}
for (const a of areas) by(a).addEventListener('input', () => changed());
for (const radio of document.querySelectorAll('[name=policy]')) radio.addEventListener('change', () => changed());

by('reset').addEventListener('click', () => {
  tampered = false;
  changed();
});

by('share').addEventListener('click', async () => {
  try {
    history.replaceState(null, '', await encode(state()));
  } catch (e) {
    return view.status(`There is no link: ${e.message}`, true);
  }
  try {
    await navigator.clipboard.writeText(location.href);
    view.status('The link is copied.');
  } catch {
    view.status('The link is in the address bar.');
  }
});

async function fromLink() {
  try {
    const s = await decode(location.hash);
    if (!s) return false;
    restore(s);
    by('example').selectedIndex = -1; // so that each example can be chosen
    return true;
  } catch (e) {
    view.trouble(`This link cannot be read, so the page does not show what it contains: ${e.message}`);
    return false;
  }
}
addEventListener('hashchange', () => {
  view.trouble('');
  fromLink();
});
by('example').addEventListener('change', () => view.trouble(''));

async function start() {
  select(tabs[0]);
  let examples = [];
  try {
    const answer = await fetch('examples.json');
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    examples = await answer.json();
  } catch (e) {
    view.trouble(`There are no examples, because examples.json cannot be loaded: ${e.message}.`);
  }
  by('example').append(...examples.map((e) => new Option(e.name)));
  by('example').addEventListener('change', () => restore(only(examples[by('example').selectedIndex])));
  if (await fromLink()) return;
  restore(only(examples[0]));
  const {output} = examples[0] ?? {};
  if (output && !document.body.dataset.evaluated) render(JSON.parse(output)); // until the engine is loaded
}
start();
