// SPDX-License-Identifier: Apache-2.0

// The worker runs the engine, from the module that the page has compiled. The page ends it if an evaluation takes too long,
// and starts another one.
import 'wasm_exec';
import {resume} from './resume.js';

async function start(module) {
  const go = new globalThis.Go();
  resume(go, module, await WebAssembly.instantiate(module, go.importObject)).then(() => postMessage({failed: 'the engine ended'}));
  postMessage({started: true});
}

onmessage = ({data}) => {
  if ('start' in data) {
    start(data.start).catch((e) => postMessage({failed: String(e)}));
    return;
  }
  let output;
  try {
    output = globalThis.pillion(JSON.stringify(data.input));
  } catch (e) {
    postMessage({failed: String(e)});
    return;
  }
  // A panic ends the engine, so that it returns nothing.
  postMessage(output === undefined ? {failed: 'the engine ended'} : {id: data.id, output: JSON.parse(output)});
};
