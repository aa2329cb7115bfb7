// SPDX-License-Identifier: Apache-2.0

// The worker runs the engine. The page ends it if an evaluation takes too long, and starts another one with the
// modules that this one compiled. It compiles here, so that the page's own scripts do not wait.
//
// It begins with the starter, which has only the functions that the examples need: snapshot.mjs. The starter traps if it lacks a
// function, so its result is that of the complete module, or none. The complete module replaces it after the first evaluation.
import 'wasm_exec';
import {read, resume} from './resume.js';

async function compile(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  // The file is compressed whatever the server can do.
  const plain = answer.body.pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compileStreaming(new Response(plain, {headers: {'Content-Type': 'application/wasm'}}));
}

let isComplete = false;

// run defines the function pillion, by an instance of a module.
function run(go, module, instance) {
  resume(go, module, instance).then(() => postMessage({failed: 'the engine ended'}));
  postMessage({running: true});
}

async function runStarter(module) {
  const go = new globalThis.Go();
  // A timer would call it outside of an evaluation, where nobody expects a trap.
  go.importObject.gojs['runtime.scheduleTimeoutEvent'] = () => {};
  const instance = await WebAssembly.instantiate(module, go.importObject);
  if (!isComplete) run(go, module, instance);
}

// runComplete runs the complete module with the memory of a new instance of the starter.
async function runComplete({starter, complete}) {
  if (read(starter).build !== read(complete).build) {
    await fetch('starter.wasm.gz', {cache: 'reload'}); // the browser had the former one
    throw new Error('the server has another version now, so reload the page');
  }
  const go = new globalThis.Go();
  go.importObject.starter = (await WebAssembly.instantiate(starter, new globalThis.Go().importObject)).exports;
  const instance = await WebAssembly.instantiate(complete, go.importObject);
  isComplete = true;
  run(go, complete, instance);
}

// loadComplete loads the complete module, and runs it. If it cannot, it tells the page why, and tries again after a while.
const pause = 10_000;
let loading = false;
let missing;
async function loadComplete() {
  if (missing) postMessage({missing});
  if (loading || missing) return;
  loading = true;
  try {
    const modules = {starter: await starter, complete: await compile('complete.wasm.gz')};
    await runComplete(modules);
    postMessage({modules});
  } catch (e) {
    missing = e.message;
    postMessage({missing});
    setTimeout(() => (missing = undefined), pause);
  }
  loading = false;
}

// reportFailure returns whether something succeeds, and tells the page if not.
const reportFailure = (promise) => promise.then(() => true, (e) => {
  postMessage({failed: String(e)});
  return false;
});

let starter;
let ready;

// The first worker does not wait for a message to compile: none arrives as long as the page is busy with its editors.
if (self.name === 'compile') {
  starter = compile('starter.wasm.gz');
  starter.then((module) => postMessage({modules: {starter: module}}), () => {});
  ready = reportFailure(starter.then(runStarter));
}

onmessage = async ({data}) => {
  if (data.modules) {
    ({starter} = data.modules);
    ready = reportFailure(data.modules.complete ? runComplete(data.modules) : runStarter(starter));
  }
  if (!data.input || !await ready) return;
  const began = performance.now();
  try {
    const output = globalThis.pillion(JSON.stringify(data.input));
    // A panic ends the engine, so that it returns nothing.
    postMessage(output === undefined ? {failed: 'the engine ended'} : {id: data.id, output: JSON.parse(output), took: performance.now() - began});
  } catch (e) {
    if (isComplete || !(e instanceof WebAssembly.RuntimeError)) return postMessage({failed: String(e)});
    // The starter lacks a function. Another instance goes on, because the memory of this one may be half changed.
    ready = reportFailure(runStarter(await starter));
    postMessage({id: data.id, lacks: true});
  }
  if (!isComplete) loadComplete();
};
