// SPDX-License-Identifier: Apache-2.0

// Completion from the JSON Schema of templates, with the fields of pods and workloads.
let schema;

async function load() {
  schema ??= await (await fetch('schema.json')).json();
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

// schemasAt returns the schemas at the end of a path.
function schemasAt(kind, path, document) {
  if (kind === 'template') return path.reduce(child, parts(/^kind:\s*SidecarTemplate\s*$/m.test(document) ? schema.then : schema.else));
  const of = /^kind:\s*(\w+)/m.exec(document)?.[1];
  // Objects of unknown kinds, for example Argo's Rollout, are mostly like a Deployment.
  const root = of ? (Object.hasOwn(schema.kinds, of) ? schema.kinds[of] : schema.kinds.Deployment)
    : {properties: {apiVersion: {}, kind: {enum: Object.keys(schema.kinds)}, metadata: {}, spec: {}}};
  return path.reduce(child, parts(root));
}

// completer returns what CodeMirror calls. The kind is template or manifest.
export const completer = (kind) => async (context) => {
  const {state, pos} = context;
  const current = state.doc.lineAt(pos);
  const before = current.text.slice(0, pos - current.from);
  const value = /^(\s*(?:-\s+)*)([^\s:#]+):\s+([\w.-]*)$/.exec(before);
  const key = /^(\s*(?:-\s+)*)([\w$.-]*)$/.exec(before);
  if (!value && !key || key && !key[2] && !context.explicit) return null;
  try {
    await load();
  } catch {
    return null; // the next key tries again
  }
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
