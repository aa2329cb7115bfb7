// SPDX-License-Identifier: Apache-2.0

import {execFileSync} from 'node:child_process';
import {chmodSync, copyFileSync, cpSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';

// engine compiles the engine to WebAssembly, with copies of the Kubernetes modules that lack what no page can use:
// protobuf, CBOR, the HTTP client, and the lists of registered types. Nothing is inlined. Together, that saves a third of
// the size. The packages of Pillion are used as they are. A part that is needed after all stops the compiler.
export function engine(root, go) {
  // Always the same folder, so that Go finds in its cache what it compiled before.
  const folder = 'bin/playground-modules';
  const work = join(root, folder);
  rmSync(work, {recursive: true, force: true});
  try {
    const moved = ['k8s.io/api', 'k8s.io/apimachinery'].map((m) => copy(m, JSON.parse(go('mod', 'download', '-json', m)).Dir, join(work, m)));
    api(moved[0]);
    apimachinery(moved[1]);
    copyFileSync(join(root, 'go.sum'), join(work, 'go.sum'));
    // Relative to the root of the module, because the program contains these paths: every clone gives the same bytes.
    writeFileSync(join(work, 'go.mod'), readFileSync(join(root, 'go.mod'), 'utf8') + moved.map((m) => `\nreplace ${m.name} => ./${folder}/${m.name}`).join('') + '\n');
    const out = join(work, 'engine.wasm');
    execFileSync(process.env.GO || 'go', ['build', '-modfile', join(work, 'go.mod'), '-trimpath', '-gcflags=all=-l', '-ldflags', '-w -buildid=', '-o', out, './cmd/pillion/playground/wasm'],
      {cwd: root, stdio: 'inherit', env: {...process.env, GOOS: 'js', GOARCH: 'wasm', GOFLAGS: '-buildvcs=false', GOWORK: 'off'}});
    return readFileSync(out);
  } finally {
    rmSync(work, {recursive: true, force: true});
  }
}

function copy(name, from, dir) {
  cpSync(from, dir, {recursive: true, filter: (f) => !f.endsWith('_test.go') && !f.includes('/testdata')});
  for (const f of readdirSync(dir, {recursive: true})) chmodSync(join(dir, f), statSync(join(dir, f)).isDirectory() ? 0o755 : 0o644);
  return {name, dir};
}

function api({dir}) {
  for (const f of readdirSync(dir, {recursive: true})) {
    if (/\/(generated\.pb|register|types_swagger_doc_generated)\.go$/.test(f)) rmSync(join(dir, f));
  }
}

function apimachinery({dir}) {
  const at = (f) => join(dir, 'pkg', f);
  for (const f of ['api/resource/generated.pb.go', 'api/resource/quantity_proto.go', 'runtime/generated.pb.go', 'runtime/types_proto.go',
    'runtime/schema/generated.pb.go', 'util/intstr/generated.pb.go', 'util/net/interface.go',
    'apis/meta/v1/generated.pb.go', 'apis/meta/v1/time_proto.go', 'apis/meta/v1/micro_time_proto.go']) rmSync(at(f));
  writeFileSync(at('apis/meta/v1/unused.go'), `package v1

import "errors"

type Timestamp struct {
	Seconds int64
	Nanos   int32
}

var (
	ErrInvalidLengthGenerated = errors.ErrUnsupported
	ErrIntOverflowGenerated   = errors.ErrUnsupported
)

func encodeVarintGenerated([]byte, int, uint64) int { return 0 }
func sovGenerated(uint64) int                       { return 0 }
func skipGenerated([]byte) (int, error)             { return 0, errors.ErrUnsupported }
`);
  writeFileSync(at('util/net/http.go'), `package net

func IsProbableEOF(error) bool { return false }
func IsTimeout(error) bool     { return false }
`);
  writeFileSync(at('runtime/serializer/cbor/direct/direct.go'), `package direct

import "errors"

func Marshal(any) ([]byte, error)     { return nil, errors.ErrUnsupported }
func Unmarshal([]byte, any) error     { return errors.ErrUnsupported }
func Diagnose([]byte) (string, error) { return "", errors.ErrUnsupported }
`);
  const panics = at('util/runtime/runtime.go');
  writeFileSync(panics, readFileSync(panics, 'utf8').replace('\t"net/http"\n', '').replaceAll('http.ErrAbortHandler', 'any(nil)'));
}
