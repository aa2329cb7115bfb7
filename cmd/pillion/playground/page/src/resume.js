// SPDX-License-Identifier: Apache-2.0

// read returns what the build has written into a module about the build and the values that Go knows.
export function read(module) {
  const [section] = WebAssembly.Module.customSections(module, 'pillion');
  return JSON.parse(new TextDecoder().decode(section));
}

// resume makes an instance of a snapshot go on where the program waited: snapshot.mjs. It does what the method run of Go does
// for a program that starts. It returns a promise that ends with the program.
export function resume(go, module, instance) {
  const find = (name) => name.split('.').reduce((object, part) => object[part], globalThis);
  // A number is the ID of a function of Go. There is one: what the program has defined for pages.
  const values = read(module).values.map((v) => {
    if (typeof v === 'number') return (globalThis.pillion = go._makeFuncWrapper(v));
    return find(v);
  });
  go._inst = instance;
  go.mem = new DataView(instance.exports.mem.buffer);
  go._values = [NaN, 0, null, true, false, globalThis, go, ...values];
  go._goRefCounts = go._values.map(() => Infinity);
  go._ids = new Map(go._values.map((v, i) => [v, i]));
  go._idPool = [];
  go.exited = false;
  return go._exitPromise;
}
