// SPDX-License-Identifier: Apache-2.0

// node agree.mjs WASM_EXEC ENGINE: evaluates each line of standard input, and writes a line for each.
import {readFileSync} from 'node:fs';
import {createInterface} from 'node:readline';
import {gunzipSync} from 'node:zlib';
import {resume} from '../../../cmd/pillion/playground/page/src/resume.js';

(0, eval)(readFileSync(process.argv[2], 'utf8'));
const go = new globalThis.Go();
const {module, instance} = await WebAssembly.instantiate(gunzipSync(readFileSync(process.argv[3])), go.importObject);
resume(go, module, instance);
for await (const line of createInterface({input: process.stdin})) console.log(globalThis.pillion(line));
