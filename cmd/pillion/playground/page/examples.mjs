// SPDX-License-Identifier: Apache-2.0

import {readFileSync, readdirSync} from 'node:fs';
import {join} from 'node:path';

const optedIn = 'pillion.dev/inject: enabled\n';

// examples returns the examples of the menu: that of the README, one with a rejected pod, and the library.
export function examples(root) {
  const read = (name) => readFileSync(join(root, name), 'utf8').replace(/^# SPDX.*\n/, '');
  const of = (name, templates, manifest, more = {}) => ({name, templates: read(templates), manifest, namespaceLabels: optedIn, ...more});
  const all = [
    of('log-agent: a default template', 'examples/templates/log-agent.yaml', read('examples/shop.yaml')),
    of('audit-agent: a required template', 'examples/required/audit-agent.yaml', read('examples/shop.yaml')),
  ];
  const folder = 'templates/library';
  for (const file of readdirSync(join(root, folder)).filter((f) => f.endsWith('.yaml') && f !== 'kustomization.yaml').sort()) {
    const name = file.slice(0, -'.yaml'.length);
    all.push(of(`${name} (library)`, join(folder, file), podFor(read(join(folder, 'tests', `${name}_test.yaml`)))));
  }
  return all;
}

// podFor returns the pod of a file of tests, with the fields that make it a manifest.
function podFor(tests) {
  const pod = /^pod:\n((?:  .*\n)+)/m.exec(tests);
  return 'apiVersion: v1\nkind: Pod\n' + pod[1].replace(/^  /gm, '').replace(/^metadata:\n/, 'metadata:\n  name: web\n');
}
