// SPDX-License-Identifier: Apache-2.0

// first is how long the first evaluation may take, in milliseconds. The browser compiles most functions during it.
const first = 30_000;

// The Content-Security-Policy allows no script but those that this policy names.
const policy = globalThis.trustedTypes?.createPolicy('worker', {createScriptURL: () => 'worker.js'});

let compiling;

// compiled returns the engine, compiled once for all workers. After a failure, the next call tries again.
function compiled() {
  compiling ??= compile('engine.wasm.gz').catch((e) => {
    compiling = undefined;
    throw e;
  });
  return compiling;
}

async function compile(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  // The file is compressed whatever the server can do.
  const plain = answer.body.pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compileStreaming(new Response(plain, {headers: {'Content-Type': 'application/wasm'}}));
}

// Engine evaluates in a worker. While the worker is busy, it keeps only the newest input. If the worker ends, the next
// input starts another one. The limit is how long an evaluation after the first one may take.
export class Engine {
  constructor(limit, {output, stopped, failed} = {}) {
    Object.assign(this, {limit, output, stopped, failed, next: undefined, busy: false, id: 0});
    this.start();
  }

  start() {
    this.running = this.warm = false;
    const worker = new Worker(policy?.createScriptURL('') ?? 'worker.js');
    worker.onmessage = ({data}) => this.worker === worker && this.told(data);
    worker.onerror = (e) => this.worker === worker && this.broken(e.message);
    this.worker = worker;
    compiled().then((module) => worker.postMessage({start: module}), (e) => this.worker === worker && this.broken(String(e)));
  }

  end() {
    clearTimeout(this.timer);
    this.worker.terminate();
    this.worker = undefined;
    this.running = this.busy = false;
  }

  told({started, failed, id, output}) {
    if (failed) return this.broken(failed);
    if (started) {
      this.running = true;
    } else if (id === this.id) {
      clearTimeout(this.timer);
      this.busy = false;
      this.warm = true;
      this.output(output, performance.now() - this.began);
    }
    this.send();
  }

  evaluate(input) {
    this.next = input;
    if (!this.worker) this.start();
    this.send();
  }

  send() {
    if (!this.running || this.busy || !this.next) return;
    const input = this.next;
    this.next = undefined;
    this.busy = true;
    this.id++;
    this.began = performance.now();
    const most = this.warm ? this.limit : first;
    this.timer = setTimeout(() => this.stop(most), most);
    this.worker.postMessage({id: this.id, input});
  }

  stop(most) {
    this.end();
    this.stopped(most);
    this.start();
  }

  // broken ends a worker that failed. It starts another one at once only for an input that is newer than the one that
  // failed, because the same one would fail again.
  broken(why) {
    const newer = this.busy && this.next;
    this.end();
    this.why = why;
    this.failed?.(why);
    if (newer) this.start();
  }
}

// This one is for the result. It starts while the browser loads the editors, which set what happens with outputs.
export const engine = new Engine(5000);
