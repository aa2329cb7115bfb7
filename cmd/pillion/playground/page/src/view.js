// SPDX-License-Identifier: Apache-2.0

// These functions write what the engine returned into the page. Everything is text: nothing is parsed as HTML.
const by = (id) => document.getElementById(id);

export function element(name, {className, ...attributes} = {}, ...children) {
  const e = document.createElement(name);
  if (className) e.className = className;
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// put makes nodes the children of an element. Those that are equal stay, so that the focus and the selection do too. A
// part that changed keeps its focus and how far it is scrolled.
function put(id, ...nodes) {
  const parent = by(id);
  nodes.forEach((n, i) => {
    const was = parent.children[i];
    if (!was) return parent.append(n);
    keepOpen(was, n);
    if (was.isEqualNode(n)) return;
    const {scrollTop, scrollLeft} = was;
    const focused = document.activeElement === was;
    was.replaceWith(n);
    if (was.nodeName !== n.nodeName) return;
    n.scrollTo(scrollLeft, scrollTop);
    if (focused) n.focus({preventScroll: true});
  });
  while (parent.children.length > nodes.length) parent.lastElementChild.remove();
}

// keepOpen opens what the user has opened before.
function keepOpen(was, node) {
  const before = was.querySelectorAll('details');
  node.querySelectorAll('details').forEach((d, i) => { d.open = before[i]?.open ?? false; });
}

const list = (items) => element('ul', {}, ...items.map((i) => (i instanceof Node ? i : element('li', {}, i))));
const pre = (text, label) => element('pre', {tabindex: '0', 'aria-label': label}, text);
const paragraph = (text, className) => element('p', {className}, text);

const problem = (p) => `${p.line ? `Line ${p.line}: ` : ''}${p.path ? p.path + ': ' : ''}${p.message}`;

export function problems(id, all) {
  put(id, ...all.map((p) => element('li', {}, problem(p))));
}

// fieldProblems shows the problems of a field below it.
export function fieldProblems(field, all) {
  put(`${field.id}-mistakes`, ...all.map((p) => element('li', {}, problem(p))));
  field.setAttribute('aria-invalid', String(all.length > 0));
}

// count writes a number into the name of a tab, with the thing that is counted for screen readers.
export function count(tab, n, thing, sign = '') {
  by(`count-${tab}`).replaceChildren(...(n ? [`${sign}${n}`, element('span', {className: 'unseen'}, ` ${thing}${n === 1 ? '' : 's'}`)] : []));
}

// about shows what an example is about. Its code is between backticks.
export function about(text) {
  by('about').replaceChildren(...text.split('`').map((part, i) => (i % 2 ? element('code', {}, part) : part)));
}

// The page with a section for each reason code.
const help = document.querySelector('link[rel=help]').href;

// reason is a link to what a reason code means. The page stays as it is, in its own tab.
function reason(code) {
  return element('a', {className: 'code', href: `${help}#${code}`, target: '_blank', rel: 'noopener', title: `What ${code} means`}, code);
}

function kept(k) {
  const owner = k.by ? `the template ${k.by}` : 'the pod';
  return k.beside ? `${k.path} is left out, because ${owner} has ${k.beside}` : `${owner} has another value at ${k.path}`;
}

function params(all) {
  const name = `${all.length} parameter${all.length === 1 ? '' : 's'}`;
  return element('details', {}, element('summary', {}, name), list(all.map((p) => `${p.name} = ${JSON.stringify(p.value)} (${p.source})`)));
}

export function decisions(objects, invalid) {
  put('decisions', ...objects.flatMap((o) => [
    element('h3', {}, o.title),
    list(o.decisions.map((d) => {
      const li = element('li', {className: d.injected ? 'injected' : d.failed ? 'failed' : 'not'}, `${d.template}: `, reason(d.code));
      if (d.sentence) li.append(`: ${d.sentence}`);
      if (d.kept?.length) li.append(list(d.kept.map(kept)));
      if (d.params?.length) li.append(params(d.params));
      return li;
    })),
  ]), ...(objects.length ? [] : [paragraph(invalid ? 'There are no decisions, because the templates have problems.' : 'There is no pod.')]));
}

export function patch(objects) {
  put('panel-patch', ...objects.flatMap((o) => [
    element('h3', {}, o.title), o.patch ? pre(o.patch, `Patch of ${o.title}`) : paragraph('Nothing is added.'),
  ]));
}

export function warnings(objects) {
  count('warnings', objects.reduce((n, o) => n + o.warnings.length, 0), 'warning');
  put('panel-warnings', ...objects.flatMap((o) => [
    element('h3', {}, o.title), o.warnings.length ? list(o.warnings) : paragraph('There are no warnings.'),
  ]));
}

export function security(objects) {
  const row = (what, ...cells) => element('tr', {}, element('th', {scope: 'row'}, what), ...cells.map((c) => element('td', {}, c)));
  const level = (s) => [s.level || 'unknown', s.why && ` (${s.why})`].filter(Boolean).join('');
  put('panel-security', ...objects.flatMap((o) => [
    element('h3', {}, o.title),
    element('table', {}, element('thead', {}, element('tr', {}, element('td'), element('th', {scope: 'col'}, 'before'), element('th', {scope: 'col'}, 'after'))),
      element('tbody', {}, row('Pod Security level', level(o.before), level(o.after)), row('Quality of service', o.before.qos, o.after.qos))),
  ]));
}

export function verdicts(all, mistakes, invalid) {
  if (mistakes.length) return put('verdict', paragraph('There is no response, because the final pod has problems:'), list(mistakes.map(problem)));
  if (all.length === 0) return put('verdict', paragraph(invalid ? 'There is no response, because the templates have problems.' : 'There is no pod.'));
  put('verdict', ...all.flatMap((v) => [
    element('h3', {}, `${v.title}: `, element('span', {className: v.verdict}, v.verdict)),
    list(v.findings.map((f) => element('li', {}, f.template ? `${f.template}: ` : '', reason(f.code), `: ${f.message}`))),
    pre(v.response, `Response about ${v.title}`),
  ]));
}

export function policy(p) {
  if (!p) return;
  put('policy', ...(p.problems.length ? [paragraph('These templates cannot be written as a policy:'), list(p.problems)] : [
    ...(p.notes.length ? [list(p.notes)] : []), pre(p.yaml, 'Admission policies'),
  ]));
}

export function status(text, bad = false) {
  by('status').textContent = text;
  by('status').classList.toggle('bad', bad);
}

// trouble shows a sentence that stays until the next one.
export function trouble(text) {
  by('trouble').textContent = text;
  by('trouble').hidden = !text;
}
