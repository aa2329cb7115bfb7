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

async function start(given) {
  const module = given ?? await compile('engine.wasm.gz');
  const go = new globalThis.Go();
  resume(go, module, await WebAssembly.instantiate(module, go.importObject)).then(() => postMessage({failed: 'the engine ended'}));
  postMessage({module});
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
