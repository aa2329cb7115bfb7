// SPDX-License-Identifier: Apache-2.0

import {completer} from './complete.js';
import {complain, editor, reveal, setText, show, text, viewer} from './editors.js';
import {Engine, engine} from './engine.js';
import * as examples from './examples.js';
import {decode, encode, only} from './link.js';
import {tablist} from './tabs.js';
import * as view from './view.js';

const by = (id) => document.getElementById(id);
const areas = ['namespaceLabels', 'namespaceAnnotations', 'accountLabels', 'accountAnnotations'];

let setting = false; // whether the page changes an editor, not the user
let tampered = false; // whether the user edited the final pod
let newer = false; // whether the input is newer than the result
let whole = false; // whether the page shows the result of an input without mistakes, of this example
let unseen = false; // whether the additions of a new example have not been scrolled into view yet
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

const details = tablist('details', 'tab-', 'hidden', () => {
  revealAdditions();
  changed();
});
// On a narrow screen, the page shows one part at a time.
const views = tablist('views', 'view-', 'data-behind', revealAdditions);
const narrow = matchMedia('(max-width: 55rem)');
function nameParts() {
  for (const {tab, panel} of views.panels) {
    if (narrow.matches) panel.setAttribute('role', 'tabpanel');
    else panel.removeAttribute('role');
    panel.setAttribute('aria-label', tab.firstChild.data.trim());
  }
}
narrow.addEventListener('change', nameParts);
nameParts();

function state() {
  return {
    templates: text(editors.templates), manifest: text(editors.manifest),
    ...Object.fromEntries(areas.map((a) => [a, by(a).value])),
    final: tampered ? text(editors.final) || '\n' : '', // an empty one is an edit too
    policy: document.querySelector('[name=policy]:checked').value,
    tab: details.selected(),
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
  details.select(s.tab ?? 'result');
  views.select('result');
  setting = false;
  whole = false;
  unseen = true;
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
  loading() {
    old();
    view.status('Loading the rest of the engine…');
  },
  missing(why) {
    view.status(`The rest of the engine cannot be loaded: ${why}. Change the input to try again.`, true);
  },
  loaded() {
    clearTimeout(pausing);
    pausing = setTimeout(hint, pause);
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
  if (templates === hinted || !engine.modules?.complete) return; // it is called again when that is loaded
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
  }, engine.modules);
  linter.templates = templates;
  linter.evaluate({templates, manifest: '', lint: true});
}

// mark shows the problems and hints of the templates.
function mark(problems) {
  const of = problems.length ? [] : hints;
  view.problems('problems', problems);
  view.problems('hints', of);
  view.count('templates', problems.length, 'problem');
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
  if (newer && text(result)) outdate('This is the result of an earlier input.');
}

// outdate dims the result, and says why. Without a reason, it is that of the input.
function outdate(why) {
  by('part-result').classList.toggle('outdated', Boolean(why));
  if (why) by('legend').textContent = why;
}

function render(o) {
  newer = false;
  mark(o.problems);
  const wrong = wrongParts(o);
  if (wrong.length && whole) {
    outdate(`There is a mistake in the ${wrong.join(' and in the ')}. This is the result before it.`);
  } else {
    outdate();
    showResult(o);
    whole = wrong.length === 0;
  }
  document.body.dataset.first ??= performance.now().toFixed(0);
}

// wrongParts marks the mistakes of the input, and returns the parts that have some. A note is no mistake.
function wrongParts(o) {
  const ofManifest = o.mistakes.filter((p) => !p.field);
  view.problems('mistakes', ofManifest);
  complain(editors.manifest, ofManifest);
  for (const area of areas) view.fieldProblems(by(area), o.mistakes.filter((p) => p.field === area));
  const ofFields = o.mistakes.filter((p) => areas.includes(p.field));
  view.count('manifest', ofManifest.length, 'problem');
  view.count('fields', ofFields.length, 'problem');
  const parts = {templates: o.problems.length, manifest: ofManifest.filter((p) => !p.note).length, 'labels and annotations': ofFields.length};
  return Object.keys(parts).filter((part) => parts[part]);
}

// showResult shows all that the engine returned about the pods.
function showResult(o) {
  const invalid = o.problems.length > 0;
  const lines = show(result, o.result, o.added);
  by('legend').textContent = invalid ? 'There is no result, because the templates have problems.' :
    lines ? `${lines} added ${lines === 1 ? 'line has' : 'lines have'} a + and a colored background.` : 'Nothing is added.';
  view.count('result', lines, 'added line', '+');
  revealAdditions();
  if (!tampered) {
    setting = true;
    setText(editors.final, o.result);
    setting = false;
  }
  by('reset').disabled = !tampered;
  const ofFinal = o.mistakes.filter((p) => p.field === 'final');
  complain(editors.final, ofFinal);
  view.decisions(o.objects, invalid);
  view.patch(o.objects);
  view.warnings(o.objects);
  view.security(o.objects);
  view.verdicts(o.verdicts, ofFinal, invalid);
  view.policy(o.policy);
}

// revealAdditions scrolls the additions of a new example into view, as soon as the result is visible.
function revealAdditions() {
  if (unseen && text(result) && result.dom.checkVisibility()) {
    reveal(result);
    unseen = false;
  }
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
    examples.forget();
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

async function start() {
  details.select('result');
  views.select('result');
  const first = await examples.load(restore);
  if (await fromLink()) return;
  restore(only(first));
  if (first?.output && !document.body.dataset.evaluated) render(JSON.parse(first.output)); // until the engine is loaded
}
start();
