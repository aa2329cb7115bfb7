// SPDX-License-Identifier: Apache-2.0

// The worker runs the engine. The page ends it if an evaluation takes too long, and starts another one with the
// modules that this one compiled. It compiles here, so that the page's own scripts do not wait.
//
// The first worker begins with the starter, which has only the functions that the examples need: snapshot.mjs. The complete
// module replaces it after the first evaluation, or when the starter traps because it lacks a function.
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

// run starts the engine of a module, and defines the function pillion. The complete module needs the exports of a new instance
// of the starter. Without them, the module is the starter. It gets no timers: they would call it after it was replaced.
async function run(module, starter) {
  const go = new globalThis.Go();
  if (starter) go.importObject.starter = starter;
  else go.importObject.gojs['runtime.scheduleTimeoutEvent'] = () => {};
  const instance = await WebAssembly.instantiate(module, go.importObject);
  resume(go, module, instance).then(() => postMessage({failed: 'the engine ended'}));
  isComplete = Boolean(starter);
  postMessage({running: true});
}

async function runComplete({starter, complete}) {
  const {exports} = await WebAssembly.instantiate(starter, new globalThis.Go().importObject);
  await run(complete, exports);
}

// replace loads the complete module, and runs it instead of the starter. After a failure, the next call tries again.
let replacing;
const replace = () => replacing ??= (async () => {
  const modules = {starter: await starter, complete: await compile('complete.wasm.gz')};
  await runComplete(modules);
  postMessage({modules});
})().catch((e) => {
  replacing = undefined;
  throw e;
});

// succeeds returns whether the engine runs, and tells the page if not.
const succeeds = (promise) => promise.then(() => true, (e) => {
  postMessage({failed: String(e)});
  return false;
});

// The first worker does not wait for a message to compile: none arrives as long as the page is busy with its editors.
const starter = self.name === 'compile' ? compile('starter.wasm.gz') : undefined;
let runs = starter && succeeds(starter.then((module) => run(module)));

onmessage = async ({data}) => {
  if (data.modules) runs = succeeds(runComplete(data.modules));
  if (!data.input) return;
  const input = JSON.stringify(data.input);
  while (await runs) {
    const began = performance.now();
    try {
      const output = globalThis.pillion(input);
      // A panic ends the engine, so that it returns nothing.
      postMessage(output === undefined ? {failed: 'the engine ended'} : {id: data.id, output: JSON.parse(output), took: performance.now() - began});
      if (!isComplete) replace().catch(() => {}); // until it is needed
      return;
    } catch (e) {
      if (isComplete) return postMessage({failed: String(e)});
    }
    postMessage({running: false});
    runs = succeeds(replace());
  }
};
