// SPDX-License-Identifier: Apache-2.0

// These are how long an evaluation may take, in milliseconds. The browser compiles during the first one.
const first = 30_000;
const limit = 5000;

// The Content-Security-Policy allows no script but those that this policy names.
const policy = globalThis.trustedTypes?.createPolicy('worker', {createScriptURL: () => 'worker.js'});

// Engine evaluates in a worker. While the worker is busy, it keeps only the newest input.
export class Engine {
  constructor({ready, output, stopped, failed}) {
    Object.assign(this, {ready, output, stopped, failed, module: undefined, next: undefined, busy: false, id: 0});
    this.start();
  }

  start() {
    this.running = this.warm = false;
    this.worker = new Worker(policy?.createScriptURL('') ?? 'worker.js');
    this.worker.onmessage = ({data}) => this.told(data);
    this.worker.onerror = (e) => this.failed(e.message);
    this.worker.postMessage({start: this.module});
  }

  told({module, failed, id, output}) {
    if (failed) return this.failed(failed);
    if (module) {
      this.module = module;
      this.running = true;
      this.ready();
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
    this.send();
  }

  send() {
    if (!this.running || this.busy || !this.next) return;
    const input = this.next;
    this.next = undefined;
    this.busy = true;
    this.id++;
    this.began = performance.now();
    const most = this.warm ? limit : first;
    this.timer = setTimeout(() => this.stop(most), most);
    this.worker.postMessage({id: this.id, input});
  }

  stop(most) {
    this.worker.terminate();
    this.busy = false;
    this.stopped(most);
    this.start();
  }
}
