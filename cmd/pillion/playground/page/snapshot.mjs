// SPDX-License-Identifier: Apache-2.0

import {createHash} from 'node:crypto';
import {pathToFileURL} from 'node:url';

// The sections of a WebAssembly module that change. A custom one is for the page's resume.js.
const section = {custom: 0, import: 2, memory: 5, global: 6, export: 7, code: 10, data: 11};
const pageSize = 65536;

// snapshot runs a Go program with arguments until it waits for calls. It returns two modules, whose instances have the
// memory of that moment, so that no page has to wait for all that the program does before. The function resume of the
// page makes an instance go on.
//
// The module complete has all functions of the program. The module starter has only those that run while train calls the
// program, and those of Go's runtime, because it depends on many things when these run. It has three fifths of the size of the
// program. When another function is called, it traps. Only the starter has the memory: an instance of complete imports it from a
// new instance of the starter. Both have a hash of the starter, which read in resume.js returns, because only modules of one build fit together.
//
// The same program, arguments and train give the same bytes. For this, the program gets no random numbers, and its process ID is
// the one that it has in pages. Its clock stands still before train, and then goes on with each look.
export async function snapshot(wasm, wasmExec, args, train) {
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
  Object.defineProperty(process, 'pid', {value: -1});
  const clock = {now: 1n, tick: 0n};
  const readClock = (sp) => go.mem.setBigInt64((sp >>> 0) + 8, clock.now += clock.tick, true);
  Object.assign(go.importObject.gojs, {'runtime.nanotime1': readClock, 'runtime.walltime': readClock, 'runtime.getRandomData': () => {}});
  const sections = split(wasm);
  const functions = elements(bodyOf(sections, section.code));
  const {instance} = await WebAssembly.instantiate(join(recordCalls(sections, functions)), go.importObject);
  go.run(instance);
  if (go.exited) throw new Error('the engine ended');
  // What the modules have is copied before train changes it.
  const values = go._values.slice(7).map((v) => wrappers.get(v) ?? nameOf(v));
  const memory = new Uint8Array(instance.exports.mem.buffer);
  const limits = [0, ...unsigned(memory.length / pageSize)];
  const common = {[section.global]: registersAsTheyAre(instance.exports)};
  const starter = {...common, [section.memory]: [1, ...limits], [section.data]: data(memory)};
  const called = functions.map((_, i) => instance.exports[nameOfGlobal(registers + i)]);
  for (const c of called) c.value = 0;
  // In pages too, the next nanotime is about 10^18 ns later. What is due then runs in train.
  Object.assign(clock, {now: 10n ** 18n, tick: 1000n});
  train();
  const names = functionNames(sections);
  starter[section.code] = vector(functions.map((f, i) => (called[i].value || /^(internal_)?runtime/.test(names[i]) ? f : trap)));
  const build = createHash('sha256').update(join(change(sections, starter))).digest('hex').slice(0, 16);
  const complete = {...common, [section.import]: addImport(bodyOf(sections, section.import), 'starter', 'mem', [2, ...limits])};
  const custom = {id: section.custom, body: Buffer.concat([string('pillion'), Buffer.from(JSON.stringify({build, values}))])};
  return {
    starter: join([...change(sections, starter), custom]),
    complete: join([...change(sections, complete, [section.memory, section.data]), custom]),
  };
}

// change returns sections with other bodies, and without those of some kinds and the custom ones.
function change(sections, bodies, without = []) {
  return sections.filter((s) => s.id !== section.custom && !without.includes(s.id)).map((s) => ({id: s.id, body: bodies[s.id] ?? s.body}));
}

// functionNames returns the names of the functions that a module defines, from its section "name".
function functionNames(sections) {
  const [imported] = readUnsigned(bodyOf(sections, section.import), 0);
  const heading = string('name');
  const {body} = sections.find((s) => s.id === section.custom && heading.equals(s.body.subarray(0, heading.length)));
  const names = [];
  for (let at = heading.length; at < body.length;) {
    let [size, from] = readUnsigned(body, at + 1);
    const functions = body[at] === 1;
    at = from + size;
    if (!functions) continue;
    let [count, next] = readUnsigned(body, from);
    for (; count > 0; count--) {
      const [index, length] = readUnsigned(body, next);
      const [bytes, start] = readUnsigned(body, length);
      next = start + bytes;
      names[index - imported] = body.toString('utf8', start, next);
    }
  }
  return names;
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
const is64Bit = (i) => i > 0 && i < registers - 1;

// recordCalls adds a global for each function, which is 1 after a call of it. It exports these, and the registers.
function recordCalls(sections, functions) {
  const globals = registers + functions.length;
  const record = (f, i) => {
    const [size, at] = readUnsigned(f, 0);
    let [locals, from] = readUnsigned(f, at);
    for (; locals > 0; locals--) from = readUnsigned(f, from)[1] + 1; // how many of a type
    const set = [0x41, 1, 0x24, ...unsigned(registers + i)];
    return Buffer.concat([Buffer.from(unsigned(size + set.length)), f.subarray(at, from), Buffer.from(set), f.subarray(from)]);
  };
  const exported = Array.from({length: globals}, (_, i) => Buffer.concat([string(nameOfGlobal(i)), Buffer.from([3, ...unsigned(i)])]));
  const zero = Buffer.from([0x7f, 1, 0x41, 0, 0x0b]);
  return sections.map(({id, body}) => {
    if (id === section.code) return {id, body: vector(functions.map(record))};
    if (id === section.export) return {id, body: append(body, exported)};
    if (id !== section.global) return {id, body};
    if (body[0] !== registers) throw new Error(`Go's programs have ${body[0]} registers, not ${registers}`);
    return {id, body: append(body, functions.map(() => zero))};
  });
}

const nameOfGlobal = (i) => `global${i}`;

// trap is the code of a function that only traps.
const trap = Buffer.from([3, 0, 0, 0x0b]);

// elements returns the elements of a section of code, with their sizes.
function elements(body) {
  let [count, at] = readUnsigned(body, 0);
  return Array.from({length: count}, () => {
    const [size, from] = readUnsigned(body, at);
    const element = body.subarray(at, from + size);
    at = from + size;
    return element;
  });
}

const vector = (all) => Buffer.concat([Buffer.from(unsigned(all.length)), ...all]);

// append adds elements to a section.
function append(body, added) {
  const [count, at] = readUnsigned(body, 0);
  return Buffer.concat([Buffer.from(unsigned(count + added.length)), body.subarray(at), ...added]);
}

const addImport = (body, module, name, what) => append(body, [Buffer.concat([string(module), string(name), Buffer.from(what)])]);

// registersAsTheyAre returns the section with the registers.
function registersAsTheyAre(exports) {
  const all = Array.from({length: registers}, (_, i) => [
    is64Bit(i) ? 0x7e : 0x7f, 1, is64Bit(i) ? 0x42 : 0x41, ...signed(exports[nameOfGlobal(i)].value), 0x0b,
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

const bodyOf = (sections, id) => sections.find((s) => s.id === id).body;

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
