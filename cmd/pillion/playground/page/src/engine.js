// SPDX-License-Identifier: Apache-2.0

// firstLimit is how long the first evaluation of a module may take, in milliseconds. The browser compiles most functions during it.
const firstLimit = 30_000;

// The Content-Security-Policy allows no script but those that this policy names.
const policy = globalThis.trustedTypes?.createPolicy('worker', {createScriptURL: () => 'worker.js'});

// Engine evaluates in a worker. While the worker is busy, it keeps only the newest input. If the worker takes too long, another
// one starts at once. If it fails, the next input starts another one. The limit is how long an evaluation may take, unless it is
// the first one of a module.
export class Engine {
  constructor(limit, {output, stopped, failed} = {}, modules) {
    Object.assign(this, {limit, output, stopped, failed, modules, next: undefined, busy: false, id: 0});
    this.start();
  }

  start() {
    this.running = this.warm = false;
    const worker = new Worker(policy?.createScriptURL('') ?? 'worker.js', {name: this.modules ? 'resume' : 'compile'});
    worker.onmessage = ({data}) => this.worker === worker && this.told(data);
    worker.onerror = (e) => this.worker === worker && this.broken(e.message ?? 'worker.js cannot be loaded');
    if (this.modules) worker.postMessage({modules: this.modules});
    this.worker = worker;
    this.send();
  }

  end() {
    clearTimeout(this.timer);
    this.worker.terminate();
    this.worker = undefined;
    this.running = this.busy = false;
  }

  told({running, modules, missing, failed, id, lacks, output, took}) {
    if (failed) return this.broken(failed);
    if (running) {
      this.running = true;
      this.warm = false;
      this.limitTime();
    } else if (modules) {
      this.modules = modules;
      if (modules.complete) this.retryLacking();
    } else if (missing) {
      if (this.lacking) this.missing?.(missing);
    } else if (id === this.id) {
      clearTimeout(this.timer);
      this.busy = false;
      this.lacking = lacks && this.input;
      if (lacks) {
        this.loading?.();
      } else {
        this.warm = true;
        this.output(output, took);
      }
      this.send();
    }
  }

  // retryLacking evaluates the input again that the starter could not, unless there is a newer one.
  retryLacking() {
    if (this.lacking && !this.busy) this.evaluate(this.lacking);
    this.loaded?.();
  }

  evaluate(input) {
    this.next = input;
    if (this.worker) this.send();
    else this.start();
  }

  // send sends the newest input. If the engine does not run yet, the worker evaluates it as soon as it does, however busy the page is.
  send() {
    if (this.busy || !this.next) return;
    this.input = this.next;
    this.next = undefined;
    this.busy = true;
    this.worker.postMessage({id: ++this.id, input: this.input});
    this.limitTime();
  }

  // limitTime limits the time of an evaluation from now on, unless the engine does not run.
  limitTime() {
    clearTimeout(this.timer);
    if (!this.running || !this.busy) return;
    const most = this.warm ? this.limit : firstLimit;
    this.timer = setTimeout(() => this.stop(most), most);
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
