// SPDX-License-Identifier: Apache-2.0

// The worker runs the engine. The page ends it if an evaluation takes too long, and starts another one with the
// modules that this one compiled. It compiles here, so that the page's own scripts do not wait.
//
// The first worker begins with the starter, which has only the functions that the examples need: snapshot.mjs. It traps if it
// lacks a function, so its result is that of the complete module, or none. The complete module replaces it after the first
// evaluation, or after a trap.
import 'wasm_exec';
import {resume} from './resume.js';

async function compile(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  // The file is compressed whatever the server can do.
  const plain = answer.body.pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compileStreaming(new Response(plain, {headers: {'Content-Type': 'application/wasm'}}));
}

let isComplete = false;

// run starts the engine of a module, and defines the function pillion.
async function run(go, module) {
  resume(go, module, await WebAssembly.instantiate(module, go.importObject)).then(() => postMessage({failed: 'the engine ended'}));
  postMessage({running: true});
}

async function runStarter(module) {
  const go = new globalThis.Go();
  // A timer would call it outside of an evaluation, where nobody expects a trap.
  go.importObject.gojs['runtime.scheduleTimeoutEvent'] = () => {};
  await run(go, module);
}

// runComplete starts the complete module with the memory of a new instance of the starter.
async function runComplete({starter, complete}) {
  const go = new globalThis.Go();
  go.importObject.starter = (await WebAssembly.instantiate(starter, new globalThis.Go().importObject)).exports;
  await run(go, complete);
  isComplete = true;
}

// replace loads the complete module, and runs it instead of the starter. After a failure, the next call tries again.
let replacing;
const replace = () => replacing ??= (async () => {
  const modules = {starter: await starterModule, complete: await compile('complete.wasm.gz')};
  await runComplete(modules);
  postMessage({modules});
})().catch((e) => {
  replacing = undefined;
  throw e;
});

// reportFailure returns whether something succeeds, and tells the page if not.
const reportFailure = (promise) => promise.then(() => true, (e) => {
  postMessage({failed: String(e)});
  return false;
});

// The first worker does not wait for a message to compile: none arrives as long as the page is busy with its editors.
const starterModule = self.name === 'compile' ? compile('starter.wasm.gz') : undefined;
let ready = starterModule && reportFailure(starterModule.then(runStarter));

onmessage = async ({data}) => {
  if (data.modules) ready = reportFailure(runComplete(data.modules));
  if (!data.input) return;
  const input = JSON.stringify(data.input);
  while (await ready) {
    const began = performance.now();
    try {
      const output = globalThis.pillion(input);
      // A panic ends the engine, so that it returns nothing.
      postMessage(output === undefined ? {failed: 'the engine ended'} : {id: data.id, output: JSON.parse(output), took: performance.now() - began});
      if (!isComplete) replace().catch(() => {}); // a failure matters when an input needs it
      return;
    } catch (e) {
      const trap = e instanceof WebAssembly.RuntimeError;
      if (isComplete || !trap) return postMessage({failed: String(e)});
    }
    postMessage({running: false});
    ready = reportFailure(replace());
  }
};
