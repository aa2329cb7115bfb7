// SPDX-License-Identifier: Apache-2.0

// Completion from the JSON Schema of templates, which contains that of pods.
let schema;

async function load() {
  schema ??= await (await fetch('schema.json')).json();
  return schema;
}

function resolve(s) {
  while (s?.$ref) s = schema.definitions[s.$ref.slice('#/definitions/'.length)];
  return s;
}

// parts returns a schema and all that it combines.
function parts(s, all = []) {
  s = resolve(s);
  if (!s || all.includes(s)) return all;
  all.push(s);
  for (const of of [...(s.allOf ?? []), ...(s.anyOf ?? []), ...(s.oneOf ?? [])]) parts(of, all);
  return all;
}

function child(schemas, name) {
  return schemas.flatMap((s) => {
    if (name === '-') return s.items ? parts(s.items) : [];
    const of = s.properties?.[name] ?? (typeof s.additionalProperties === 'object' ? s.additionalProperties : undefined);
    return of ? parts(of) : [];
  });
}

// pathAt returns the keys above a position, by indentation, which also works while the document is incomplete. An
// item of a list is "-".
export function pathAt(lines, column) {
  const path = [];
  let depth = column;
  for (let i = lines.length - 1; i >= 0 && depth > 0; i--) {
    if (/^---/.test(lines[i])) break;
    const m = /^(\s*)((?:-\s+)*)(?:"([^"]*)"|'([^']*)'|([^\s#"'{[][^:]*)):(?:\s|$)/.exec(lines[i]);
    const dashes = /^(\s*)((?:-\s+)+)/.exec(lines[i]);
    if (!m && !dashes) continue;
    const key = m ? m[3] ?? m[4] ?? m[5] : undefined;
    const indent = (m ?? dashes)[1].length;
    const inner = indent + (m ?? dashes)[2].length;
    if (m && inner < depth) {
      path.unshift(key);
      depth = inner;
    }
    if (inner > indent && indent < depth) {
      path.unshift('-');
      // The key of a list may have the indentation of its dashes.
      depth = indent + 1;
    }
  }
  return path;
}

const podAt = {
  Pod: [], CronJob: ['spec', 'jobTemplate', 'spec', 'template'],
};

// rootOf returns the schema at the end of a path.
function schemasAt(kind, path, document) {
  const cluster = /^kind:\s*SidecarTemplate\s*$/m.test(document) ? schema.then : schema.else;
  if (kind === 'template') return path.reduce(child, parts(cluster));
  const pod = child(child(parts(cluster), 'spec'), 'pod');
  const of = /^kind:\s*(\w+)/m.exec(document)?.[1];
  const prefix = podAt[of] ?? ['spec', 'template'];
  if (prefix.every((name, i) => path[i] === name)) {
    const top = {properties: {apiVersion: {type: 'string'}, kind: {enum: ['Pod', 'Deployment', 'StatefulSet', 'DaemonSet', 'Job', 'CronJob']}}};
    return path.slice(prefix.length).reduce(child, prefix.length ? pod : [top, ...pod]);
  }
  if (path.length === 0) return [{properties: {apiVersion: {}, kind: {enum: ['Pod', 'Deployment', 'StatefulSet', 'DaemonSet', 'Job', 'CronJob']}, metadata: {}, spec: {}}}];
  return [];
}

// completer returns what CodeMirror calls. The kind is template or manifest.
export const completer = (kind) => async (context) => {
  const {state, pos} = context;
  const current = state.doc.lineAt(pos);
  const before = current.text.slice(0, pos - current.from);
  const value = /^(\s*(?:-\s+)*)([^\s:#]+):\s+([\w.-]*)$/.exec(before);
  const key = /^(\s*(?:-\s+)*)([\w$.-]*)$/.exec(before);
  if (!value && !key || key && !key[2] && !context.explicit) return null;
  await load();
  const lines = state.doc.sliceString(0, current.from).split('\n').slice(0, -1);
  const lead = (value ?? key)[1];
  // The dashes of this line are part of the path to its key.
  const path = pathAt([...lines, lead.trim() ? lead : ''], lead.length);
  const document = state.doc.toString().split(/^---.*$/m)[lines.filter((l) => /^---/.test(l)).length] ?? '';
  const schemas = schemasAt(kind, path, document);
  const options = value ? values(child(schemas, value[2])) : keys(schemas, kind);
  return options.length ? {from: pos - (value ? value[3] : key[2]).length, options, validFor: /^[\w$.-]*$/} : null;
};

function keys(schemas, kind) {
  const all = new Map();
  for (const s of schemas) {
    for (const [name, of] of Object.entries(s.properties ?? {})) {
      if (name.startsWith('$') && kind !== 'template') continue;
      const info = parts(of).map((p) => p.description).find(Boolean) ?? of.description;
      if (!all.has(name)) all.set(name, {label: name, apply: `${name}: `, type: 'property', info: of.description ?? info});
    }
  }
  return [...all.values()];
}

function values(schemas) {
  const all = new Set();
  for (const s of schemas) {
    for (const v of s.enum ?? (s.const !== undefined ? [s.const] : s.type === 'boolean' ? [true, false] : [])) all.add(String(v));
  }
  return [...all].map((label) => ({label, type: 'enum'}));
}
