// SPDX-License-Identifier: Apache-2.0

import {pathToFileURL} from 'node:url';

// The sections of a WebAssembly module that change, and the custom one with the JavaScript values that Go knows.
const section = {custom: 0, memory: 5, global: 6, export: 7, data: 11};
export const valuesSection = 'pillion.values';
const pageSize = 65536;

// snapshot runs a Go program with arguments until it waits for calls. It returns a module whose instances have the memory
// of that moment, so that no page has to wait for all that the program does before. The function resume of the page makes
// an instance go on. The same program and arguments give the same bytes: the program sees a clock that stands still, and
// no random numbers.
export async function snapshot(wasm, wasmExec, args) {
  await import(pathToFileURL(wasmExec));
  const go = new globalThis.Go();
  go.argv = ['js', ...args];
  go.env = {GOGC: '20'}; // little garbage in the memory
  const wrappers = new Map(); // the functions that Go has made, and their IDs
  const makeWrapper = go._makeFuncWrapper;
  go._makeFuncWrapper = (id) => {
    const f = makeWrapper.call(go, id);
    wrappers.set(f, id);
    return f;
  };
  Object.assign(go.importObject.gojs, {
    'runtime.nanotime1': (sp) => go.mem.setBigInt64((sp >>> 0) + 8, 1n, true),
    'runtime.walltime': (sp) => go.mem.setBigInt64((sp >>> 0) + 8, 1n, true),
    'runtime.getRandomData': () => {},
  });
  const sections = split(wasm);
  const {instance} = await WebAssembly.instantiate(join(exportGlobals(sections)), go.importObject);
  go.run(instance);
  if (go.exited) throw new Error('the engine ended');
  const values = go._values.slice(7).map((v) => wrappers.get(v) ?? nameOf(v));
  const memory = new Uint8Array(instance.exports.mem.buffer);
  const changed = {
    [section.memory]: [1, 0, ...unsigned(memory.length / pageSize)],
    [section.global]: globals(instance.exports),
    [section.data]: data(memory),
  };
  const all = sections.map((s) => ({id: s.id, body: changed[s.id] ?? s.body}));
  return join([...all, {id: section.custom, body: Buffer.concat([string(valuesSection), Buffer.from(JSON.stringify(values))])}]);
}

// nameOf returns where a value is in globalThis.
function nameOf(value) {
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    if (globalThis[name] === value) return name;
    if (name === 'fs' && globalThis.fs.constants === value) return 'fs.constants';
  }
  throw new Error(`Go knows a value that a page cannot find: ${value}`);
}

// The registers of Go's programs are globals: SP is the first one and PAUSE the last one, of type i32. The others are i64.
const registers = 8;
const wide = (i) => i > 0 && i < registers - 1;

// exportGlobals adds exports for the registers.
function exportGlobals(sections) {
  const [count] = readUnsigned(sections.find((s) => s.id === section.global).body, 0);
  if (count !== registers) throw new Error(`Go's programs have ${count} registers, not ${registers}`);
  return sections.map((s) => {
    if (s.id !== section.export) return s;
    const [n, at] = readUnsigned(s.body, 0);
    const added = Array.from({length: registers}, (_, i) => Buffer.concat([string(`register${i}`), Buffer.from([3, i])]));
    return {id: s.id, body: Buffer.concat([Buffer.from(unsigned(n + registers)), s.body.subarray(at), ...added])};
  });
}

// globals returns the section with the registers as they are.
function globals(exports) {
  const all = Array.from({length: registers}, (_, i) => [
    wide(i) ? 0x7e : 0x7f, 1, wide(i) ? 0x42 : 0x41, ...signed(exports[`register${i}`].value), 0x0b,
  ]);
  return Buffer.from([registers, ...all.flat()]);
}

// data returns the section with the memory, without the long runs of zeros.
function data(memory) {
  const words = new BigUint64Array(memory.buffer);
  const most = 16; // words that are zero within a segment
  const segments = [];
  for (let i = 0, last = -Infinity; i < words.length; i++) {
    if (words[i] === 0n) continue;
    if (i - last > most) segments.push({from: i});
    segments.at(-1).to = last = i;
  }
  return Buffer.concat([Buffer.from(unsigned(segments.length)), ...segments.flatMap(({from, to}) => [
    Buffer.from([0, 0x41, ...signed(from * 8), 0x0b, ...unsigned((to - from + 1) * 8)]), memory.subarray(from * 8, (to + 1) * 8),
  ])]);
}

function split(wasm) {
  const all = [];
  for (let at = 8; at < wasm.length;) {
    const id = wasm[at];
    const [size, from] = readUnsigned(wasm, at + 1);
    all.push({id, body: wasm.subarray(from, from + size)});
    at = from + size;
  }
  return all;
}

function join(sections) {
  const magic = Buffer.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
  return Buffer.concat([magic, ...sections.flatMap(({id, body}) => [Buffer.from([id, ...unsigned(body.length)]), Buffer.from(body)])]);
}

const string = (text) => Buffer.from([...unsigned(Buffer.byteLength(text)), ...Buffer.from(text)]);

// These numbers have the encoding LEB128.
function readUnsigned(bytes, at) {
  for (let n = 0, factor = 1; ; factor *= 128) {
    const byte = bytes[at++];
    n += (byte & 127) * factor;
    if (byte < 128) return [n, at];
  }
}

function unsigned(n) {
  return n < 128 ? [n] : [n % 128 + 128, ...unsigned(Math.floor(n / 128))];
}

function signed(value) {
  let n = BigInt(value);
  for (const bytes = []; ;) {
    const byte = Number(BigInt.asUintN(7, n));
    n >>= 7n;
    const last = n === (byte & 64 ? -1n : 0n);
    bytes.push(last ? byte : byte + 128);
    if (last) return bytes;
  }
}
