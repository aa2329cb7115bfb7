// SPDX-License-Identifier: Apache-2.0

// This program builds the page: node build.mjs FOLDER. It needs Go, and npm ci before.
import {execFileSync} from 'node:child_process';
import {mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync} from 'node:fs';
import {join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';
import {gzipSync} from 'node:zlib';
import {build} from 'esbuild';
import {engine} from './engine.mjs';
import {examples} from './examples.mjs';
import {snapshot} from './snapshot.mjs';
import {only} from './src/link.js';
import {resume} from './src/resume.js';

const page = fileURLToPath(new URL('.', import.meta.url));
const root = resolve(page, '../../../..');
const out = resolve(process.argv[2] ?? join(root, 'bin/playground'));
const go = (...args) => execFileSync(process.env.GO || 'go', args, {cwd: root, encoding: 'utf8'}).trim();

const csp = [
  "default-src 'none'", "script-src 'self' 'wasm-unsafe-eval'", "worker-src 'self'", "style-src 'self'", "connect-src 'self'",
  'img-src data:', // CodeMirror's underlines
  "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", 'trusted-types worker',
].join('; ');

rmSync(out, {recursive: true, force: true});
mkdirSync(out, {recursive: true});
const wasmExec = join(go('env', 'GOROOT'), 'lib/wasm/wasm_exec.js');
const all = examples(root);
const input = (state) => JSON.stringify({...state, policy: ''}); // pages ask for a policy only if its tab is open
const firstInput = input(only(all[0]));
const modules = await snapshot(engine(root, go), wasmExec, [firstInput], () => {
  for (const e of all) for (const state of e.tour ? edits(only(e)) : [only(e)]) globalThis.pillion(input(state));
});
for (const [name, wasm] of Object.entries(modules)) writeFileSync(join(out, `${name}.wasm.gz`), gzipSync(wasm, {level: 9}));
writeFileSync(join(out, 'index.html'), readFileSync(join(page, 'src/index.html'), 'utf8').replace('CSP', csp));
writeFileSync(join(out, 'examples.json'), JSON.stringify(await withResult(all)));
writeFileSync(join(out, 'schema.json'), JSON.stringify(schema()));
const bundle = (files, options) => build({
  entryPoints: files.map((f) => join(page, 'src', f)), outdir: out, bundle: true, minify: true, target: 'es2022', legalComments: 'eof',
  logLevel: 'warning', ...options,
});
// engine.js is a file of its own, so that the engine starts before the editors are loaded.
await bundle(['engine.js', 'main.js', 'style.css'], {format: 'esm', external: ['./engine.js']});
await bundle(['worker.js'], {alias: {wasm_exec: wasmExec}, external: ['fs', 'crypto', 'util']});

// edits returns an example, and what it may be while somebody edits it.
function* edits(example) {
  yield example;
  yield {...example, templates: `---\n${example.templates}`, manifest: `---\n${example.manifest}`};
  yield {...example, namespaceLabels: ''};
  yield {...example, namespaceLabels: 'pillion.dev/inject: enable'};
  for (const part of ['templates', 'manifest']) {
    const text = example[part];
    const lines = text.split('\n');
    const edited = (all) => ({...example, [part]: all});
    for (let tenths = 1; tenths < 10; tenths++) yield edited(text.slice(0, text.length * tenths / 10));
    for (const i of lines.keys()) {
      yield edited(lines.filter((_, j) => j !== i).join('\n'));
      yield edited(lines.map((line, j) => (j === i ? `${line}x` : line)).join('\n'));
    }
    yield edited(text.replace('image:', 'imag:'));
    yield edited(`# é\n${text}`);
  }
}

// withResult adds the engine's output for the first example, as JSON. The page shows it while it loads the engine.
async function withResult([example, ...others]) {
  const go = new globalThis.Go();
  const {module, instance} = await WebAssembly.instantiate(modules.starter, go.importObject);
  resume(go, module, instance);
  return [{...example, output: globalThis.pillion(firstInput)}, ...others];
}

// schema returns the JSON Schema of templates, with the definitions that only pods and workloads need.
function schema() {
  const templates = JSON.parse(readFileSync(join(root, 'manifests/schema/template.json'), 'utf8'));
  const {kinds, definitions} = JSON.parse(go('run', './cmd/pillion/playground/fields'));
  return {...templates, kinds, definitions: {...definitions, ...templates.definitions}};
}

let sum = 0;
for (const name of readdirSync(out).sort()) {
  const data = readFileSync(join(out, name));
  const wire = name.endsWith('.gz') ? data.length : gzipSync(data, {level: 9}).length;
  sum += wire;
  console.log(`${name}: ${data.length} bytes, ${wire} compressed`);
}
console.log(`all files: ${sum} bytes over the wire`);
// The engine waits for calls, and Go's runtime may set a timer again and again, with which Node.js would wait for ever.
process.exit();
