// SPDX-License-Identifier: Apache-2.0

// This program builds the sites of the last releases: node releases.mjs FOLDER. The newest one is in FOLDER itself, the
// others are in folders of their names. SITE_ROOT is the path of FOLDER on its host.
import {execFileSync} from 'node:child_process';
import {cpSync, mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';

const last = 5; // releases
const root = resolve(fileURLToPath(new URL('.', import.meta.url)), '../..');
const out = resolve(process.argv[2]);
const at = process.env.SITE_ROOT || '/';
const run = (cwd, env, program, ...args) => execFileSync(program, args, {cwd, env: {...process.env, ...env}, stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8'});

// hasSite reports whether a release has the sources of a site.
function hasSite(tag) {
  try {
    run(root, {}, 'git', 'cat-file', '-e', `${tag}:manifests/site/package.json`);
    return true;
  } catch {
    return false;
  }
}

const tags = run(root, {}, 'git', 'tag', '--list', 'v*', '--sort=-version:refname').split('\n')
  .filter((tag) => /^v\d+\.\d+\.\d+$/.test(tag) && hasSite(tag)).slice(0, last);
if (tags.length === 0) throw new Error('no tag such as v0.1.0 has a site');
rmSync(out, {recursive: true, force: true});
for (const [i, tag] of tags.entries()) {
  const clone = mkdtempSync(join(tmpdir(), 'pillion-site-'));
  try {
    run(root, {}, 'git', 'clone', '--quiet', '--branch', tag, '--depth', '1', `file://${root}`, clone);
    run(clone, {SITE_BASE: i ? `${at}${tag}/` : at, SITE_VERSION: tag, SITE_VERSIONS: tags.join(' ')}, 'make', 'site');
    cpSync(join(clone, 'bin/site'), i ? join(out, tag) : out, {recursive: true});
  } finally {
    rmSync(clone, {recursive: true, force: true});
  }
}
