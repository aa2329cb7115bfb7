// SPDX-License-Identifier: Apache-2.0

// The site is made of the pages that manifests/docs/README.md links to, where they are in the repository. Links to all
// other files lead to GitHub.
import {existsSync, readFileSync, readdirSync, statSync} from 'node:fs';
import {dirname, join, relative, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';
import {defineConfig} from 'vitepress';

const root = resolve(fileURLToPath(new URL('.', import.meta.url)), '../../..');
const github = 'https://github.com/pillion-dev/pillion';
const index = 'manifests/docs/README.md';
const home = 'manifests/site/index.md';
const playground = 'manifests/site/try.md';

// The folder of the site on its host, its own version, and the versions that the host has, the newest first.
const base = process.env.SITE_BASE || '/';
const version = process.env.SITE_VERSION || 'main';
const versions = (process.env.SITE_VERSIONS || '').split(' ').filter(Boolean);

// sections reads the headings and the links of the index.
function sections() {
  const found = [];
  for (const line of readFileSync(join(root, index), 'utf8').split('\n')) {
    const heading = /^(##+) (.*)/.exec(line);
    if (heading) {
      found.push({text: heading[2], level: heading[1].length, pages: []});
    }
    if (!line.startsWith('|')) continue;
    for (const [, text, target] of line.matchAll(/\[([^\]]+)\]\(([^)#]+\.md)\)/g)) {
      found.at(-1).pages.push({text, source: relative(root, resolve(root, dirname(index), target))});
    }
  }
  return found;
}

// routes has the path of each page on the site, by its path in the repository.
const routes = new Map([[home, 'index.md'], [playground, 'try.md'], [index, 'pages.md']]);
for (const {source} of sections().flatMap((s) => s.pages)) {
  if (source === 'inject/README.md') routes.set(source, 'reason-codes.md');
  else if (source === 'templates/library/README.md') routes.set(source, 'library.md');
  else if (source.startsWith('templates/library/')) routes.set(source, `library-${source.split('/').at(-1)}`);
  else if (source.startsWith('inject/')) routes.set(source, `json-of-${source.split('/').at(-2)}.md`);
  else routes.set(source, source.split('/').at(-1));
}

const address = (source) => '/' + routes.get(source).replace(/(index)?\.md$/, '');

// versionLinks returns where the other versions are: the newest one in the root of the host, the others in folders. The links
// are relative, because all pages of a version are in one folder.
function versionLinks() {
  const up = version === versions[0] || versions.length === 0 ? './' : '../';
  return (versions.length ? versions : [version]).map((v, i) => ({text: v, link: i === 0 ? up : `${up}${v}/`, target: '_self'}));
}

// sidebar returns the sections as groups. A section with a deeper heading has groups below it.
function sidebar() {
  const groups = [];
  for (const {text, level, pages} of sections()) {
    const group = {text, items: pages.map((p) => ({text: p.text, link: address(p.source)}))};
    if (level === 2) groups.push(group);
    else groups.at(-1).items.push(group);
  }
  return groups;
}

// markdownFiles returns all Markdown files of the repository.
function markdownFiles(folder = '') {
  return readdirSync(join(root, folder), {withFileTypes: true}).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return ['node_modules', '.git', 'bin', 'dist'].includes(entry.name) ? [] : markdownFiles(path);
    return entry.name.endsWith('.md') ? [path] : [];
  });
}

// anchor is the anchor that GitHub gives to a heading, so that links work on both.
const anchor = (heading) => heading.toLowerCase().replace(/[^a-z0-9_ -]/g, '').replaceAll(' ', '-');

// siteLink returns where a link of a page leads on the site.
function siteLink(source, href) {
  if (/^(\w+:|#|\/)/.test(href)) return href;
  const [path, hash] = href.split('#');
  const target = relative(root, resolve(root, dirname(source), path));
  const rest = hash ? `#${hash}` : '';
  if (routes.has(target)) return address(target) + rest;
  const file = join(root, target);
  if (!existsSync(file)) throw new Error(`${source}: ${href} leads to nothing`);
  return `${github}/${statSync(file).isDirectory() ? 'tree' : 'blob'}/${version}/${target}${rest}`;
}

// withSiteLinks is a plugin of markdown-it.
function withSiteLinks(md) {
  md.core.ruler.push('site-links', ({tokens, env}) => {
    if (!env?.path) return; // a title
    const source = relative(root, env.realPath ?? env.path);
    for (const link of tokens.flatMap((t) => t.children ?? []).filter((t) => t.type === 'link_open')) {
      link.attrSet('href', siteLink(source, link.attrGet('href')));
    }
  });
}

// withoutExpressions keeps Vue from evaluating {{ }} in the text of pages: it is about other products' templates.
function withoutExpressions(md) {
  md.core.ruler.push('no-expressions', ({tokens, env}) => {
    for (const t of tokens.flatMap((t) => t.children ?? [])) {
      if (t.type === 'code_inline') t.attrSet('v-pre', '');
      if (t.type === 'text' && t.content.includes('{{')) throw new Error(`${env?.path}: write {{ in code: ${t.content}`);
    }
  });
}

// withBreaks lets long names in code break at dots and the like. Otherwise, they push the last column of a table out of view.
function withBreaks(md) {
  const code = md.renderer.rules.code_inline;
  md.renderer.rules.code_inline = (...args) => code(...args).replace(/(?<=>[^<]*[./,=])(?=\w)/g, '<wbr>');
}

// withPictures draws the blocks of the language mermaid in the browser.
function withPictures(md) {
  const fence = md.renderer.rules.fence;
  md.renderer.rules.fence = (tokens, i, ...rest) => {
    if (tokens[i].info.trim() !== 'mermaid') return fence(tokens, i, ...rest);
    return `<Picture code="${encodeURIComponent(tokens[i].content)}" />\n`;
  };
}

// resolveFromSite finds the packages of pages that have no node_modules above them.
const resolveFromSite = {
  name: 'resolve-from-site',
  enforce: 'pre',
  resolveId(id, importer, options) {
    if (!/^vue(\/|$)/.test(id) || !importer || importer.startsWith(join(root, 'manifests/site/'))) return undefined;
    return this.resolve(id, join(root, home), {...options, skipSelf: true});
  },
};

export default defineConfig({
  title: 'Pillion',
  description: 'Pillion adds sidecars to Kubernetes pods, and never replaces or removes anything.',
  lang: 'en-US',
  base,
  srcDir: root,
  outDir: process.env.SITE_OUT || join(root, 'bin/site'),
  cacheDir: join(root, 'manifests/site/node_modules/.cache/vitepress'),
  srcExclude: ['manifests/chart/**', ...markdownFiles().filter((path) => !routes.has(path))], // the chart has links to folders
  rewrites: Object.fromEntries(routes),
  cleanUrls: false,
  head: [['link', {rel: 'icon', href: `${base}icon.svg`, type: 'image/svg+xml'}]],
  markdown: {
    anchor: {slugify: anchor},
    theme: {light: 'github-light-high-contrast', dark: 'github-dark-high-contrast'},
    config: (md) => { withSiteLinks(md); withoutExpressions(md); withBreaks(md); withPictures(md); },
  },
  themeConfig: {
    siteTitle: 'Pillion',
    nav: [
      {text: 'First steps', link: '/first-steps'},
      {text: 'Tutorial', link: '/template-tutorial'},
      {text: 'Playground', link: '/try'},
      {text: 'All pages', link: '/pages'},
      {text: version, items: versionLinks()},
    ],
    sidebar: sidebar(),
    outline: {level: [2, 3]},
    search: {provider: 'local', options: {detailedView: true}},
    editLink: {pattern: `${github}/edit/main/:path`, text: 'Edit this page'},
    socialLinks: [{icon: 'github', link: github, ariaLabel: 'Pillion on GitHub'}],
    footer: {message: 'Licensed under Apache-2.0.'},
  },
  vite: {
    publicDir: join(root, 'manifests/site/public'),
    server: {fs: {allow: [root]}},
    plugins: [resolveFromSite],
    build: {chunkSizeWarningLimit: 4000},
  },
});
