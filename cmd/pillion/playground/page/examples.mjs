// SPDX-License-Identifier: Apache-2.0

import {readFileSync, readdirSync} from 'node:fs';
import {join} from 'node:path';

const optedIn = 'pillion.dev/inject: enabled\n';

// examples returns the examples of the menu: those of the tour, one with a rejected pod, and the library. Those of the tour
// have a short name, and what to try.
export function examples(root) {
  const read = (name) => readFileSync(join(root, name), 'utf8').replace(/^# SPDX.*\n/, '');
  const own = (name) => documents(read(`cmd/pillion/playground/page/tour/${name}.yaml`));
  const of = (name, templates, manifest, more = {}) => ({name, templates, manifest, namespaceLabels: optedIn, ...more});
  const logAgent = read('examples/templates/log-agent.yaml');
  const all = [
    of('log-agent: a default template', logAgent, read('examples/shop.yaml'), {
      tour: 'Log agent',
      about: 'The template adds a sidecar, and a volume that it shares with the app. Try it: change the image to `log-agent:1.5.0`. Then remove the label of the Namespace.',
    }),
    of('mesh: a proxy and an init container', own('mesh').templates, own('mesh').manifest, {
      tour: 'Mesh',
      about: 'An init container redirects the connections, and a native sidecar serves them. Both start before the pod\'s own init container. Try it: set the annotation of the pod to `all`. Then look at Pod Security.',
    }),
    of('secrets: a template on request', own('secrets').templates, own('secrets').manifest, {
      tour: 'Secrets',
      about: 'Pods request this template by name. Try it: remove the annotation `secrets.pillion.dev/role`. Then open Validating webhook, and change the image of the sidecar.',
    }),
    of('canary: a new version for some workloads', logAgent + '---\n' + read('examples/canary/log-agent-next.yaml'), own('canary').manifest, {
      tour: 'Canary',
      about: '`log-agent-next` replaces `log-agent` in 20 of 100 workloads. One of these two gets it. Try it: change `share` to `100`.',
    }),
    of('conflict: something has the same place', logAgent, own('conflict').manifest, {
      tour: 'Conflict',
      about: 'The app has a volume of its own at `/var/log/app`. A template is added completely or not at all, so this pod gets nothing. Try it: move the mount of the app to `/data`.',
    }),
    of('audit-agent: a required template', read('examples/required/audit-agent.yaml'), read('examples/shop.yaml')),
  ];
  const folder = 'templates/library';
  for (const file of readdirSync(join(root, folder)).filter((f) => f.endsWith('.yaml') && f !== 'kustomization.yaml').sort()) {
    const name = file.slice(0, -'.yaml'.length);
    all.push(of(`${name} (library)`, read(join(folder, file)), podFor(read(join(folder, 'tests', `${name}_test.yaml`)))));
  }
  return all;
}

// documents divides a file into templates and a manifest.
function documents(text) {
  const all = text.split(/^---\n/m);
  const isTemplate = (d) => /^kind: ClusterSidecarTemplate$/m.test(d);
  return {templates: all.filter(isTemplate).join('---\n'), manifest: all.filter((d) => !isTemplate(d)).join('---\n')};
}

// podFor returns the pod of a file of tests, with the fields that make it a manifest.
function podFor(tests) {
  const pod = /^pod:\n((?:  .*\n)+)/m.exec(tests);
  return 'apiVersion: v1\nkind: Pod\n' + pod[1].replace(/^  /gm, '').replace(/^metadata:\n/, 'metadata:\n  name: web\n');
}
