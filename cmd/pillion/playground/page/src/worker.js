// SPDX-License-Identifier: Apache-2.0

// The worker runs the engine. The page ends it if an evaluation takes too long, and starts another one with the
// module that this one compiled. It compiles here, so that the page's own scripts do not wait.
import 'wasm_exec';
import {resume} from './resume.js';

async function compile(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  // The file is compressed whatever the server can do.
  const plain = answer.body.pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compileStreaming(new Response(plain, {headers: {'Content-Type': 'application/wasm'}}));
}

// start starts the engine of a module, and returns whether it runs.
async function start(module) {
  try {
    module = await module;
    const go = new globalThis.Go();
    resume(go, module, await WebAssembly.instantiate(module, go.importObject)).then(() => postMessage({failed: 'the engine ended'}));
    postMessage({module});
    return true;
  } catch (e) {
    postMessage({failed: String(e)});
    return false;
  }
}

// The first worker does not wait for a message to compile: none arrives as long as the page is busy with its editors.
let runs = self.name === 'compile' ? start(compile('engine.wasm.gz')) : undefined;

onmessage = async ({data}) => {
  if (data.module) runs = start(data.module);
  if (!data.input || !await runs) return;
  const began = performance.now();
  let output;
  try {
    output = globalThis.pillion(JSON.stringify(data.input));
  } catch (e) {
    postMessage({failed: String(e)});
    return;
  }
  // A panic ends the engine, so that it returns nothing.
  postMessage(output === undefined ? {failed: 'the engine ended'} : {id: data.id, output: JSON.parse(output), took: performance.now() - began});
};
