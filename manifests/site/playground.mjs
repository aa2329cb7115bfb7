// SPDX-License-Identifier: Apache-2.0

// This program copies the playground into the site: node playground.mjs FROM TO. Its links to reason codes lead to the page of
// the site.
import {cpSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';

const [from, to] = process.argv.slice(2);
cpSync(from, to, {recursive: true});
const page = join(to, 'index.html');
const text = readFileSync(page, 'utf8');
const changed = text.replace(/(<link rel="help" href=")[^"]*/, '$1../reason-codes.html');
if (changed === text) throw new Error(`${page} has no link to the reason codes`);
writeFileSync(page, changed);
