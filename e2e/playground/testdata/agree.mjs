// SPDX-License-Identifier: Apache-2.0

// node agree.mjs WASM_EXEC FOLDER EXAMPLES: evaluates each line of standard input with the complete module of the page, and writes a
// line for each. For an input without a policy, the starter gives the same, or traps. It does not trap for the last EXAMPLES of these.
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {gunzipSync} from 'node:zlib';
import {resume} from '../../../cmd/pillion/playground/page/src/resume.js';

(0, eval)(readFileSync(process.argv[2], 'utf8'));
const load = (name) => WebAssembly.compile(gunzipSync(readFileSync(join(process.argv[3], name))));
const starter = await load('starter.wasm.gz');
const complete = await load('complete.wasm.gz');

async function run(module, imports) {
  const go = new globalThis.Go();
  const instance = await WebAssembly.instantiate(module, {...go.importObject, ...imports});
  resume(go, module, instance);
  return {evaluate: globalThis.pillion, exports: instance.exports};
}

const {evaluate} = await run(complete, {starter: (await run(starter)).exports});
let evaluated = 0; // since the last trap
for await (const line of createInterface({input: process.stdin})) {
  const output = evaluate(line);
  const input = JSON.parse(line);
  if (!input.policy) {
    const first = (await run(starter)).evaluate;
    try {
      const got = first(JSON.stringify(input)); // as a page writes it: Go escapes < in JSON
      if (got !== output) throw new Error(`the starter gives\n${got}\nand the complete module\n${output}`);
      evaluated++;
    } catch (e) {
      if (!(e instanceof WebAssembly.RuntimeError)) throw e;
      evaluated = 0;
    }
  }
  console.log(output);
}
if (evaluated < Number(process.argv[4])) throw new Error(`the starter evaluates only the last ${evaluated} examples`);
