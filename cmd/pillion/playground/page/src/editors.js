// SPDX-License-Identifier: Apache-2.0

import {autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap} from '@codemirror/autocomplete';
import {defaultKeymap, history, historyKeymap, isolateHistory, redoDepth, undoDepth} from '@codemirror/commands';
import {yaml} from '@codemirror/lang-yaml';
import {HighlightStyle, bracketMatching, indentOnInput, syntaxHighlighting} from '@codemirror/language';
import {lintGutter, lintKeymap, setDiagnostics} from '@codemirror/lint';
import {highlightSelectionMatches, searchKeymap} from '@codemirror/search';
import {EditorState, RangeSet, StateEffect, StateField, Transaction} from '@codemirror/state';
import {Decoration, EditorView, GutterMarker, drawSelection, gutter, highlightActiveLine, keymap, lineNumbers} from '@codemirror/view';
import {tags} from '@lezer/highlight';

const colors = HighlightStyle.define([
  {tag: [tags.definition(tags.propertyName), tags.propertyName], color: 'var(--key)'},
  {tag: [tags.string, tags.special(tags.string)], color: 'var(--string)'},
  {tag: [tags.number, tags.bool, tags.null, tags.keyword, tags.labelName, tags.typeName], color: 'var(--number)'},
  {tag: [tags.comment, tags.meta], color: 'var(--comment)'},
]);

const theme = EditorView.theme({
  '&': {height: '100%', color: 'var(--fg)', backgroundColor: 'var(--bg)', fontSize: '13px'},
  '&.cm-focused': {outline: '2px solid var(--accent)'},
  '.cm-scroller': {fontFamily: 'ui-monospace, monospace', lineHeight: '1.4'},
  '.cm-gutters': {backgroundColor: 'var(--panel)', color: 'var(--muted)', border: 'none'},
  '.cm-content': {caretColor: 'var(--fg)'},
  '.cm-cursor': {borderLeftColor: 'var(--fg)'},
  '.cm-activeLine, .cm-activeLineGutter': {backgroundColor: 'transparent'},
  '&.cm-focused .cm-activeLine': {boxShadow: 'inset 0 -1px var(--line)'},
  '.cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground': {backgroundColor: 'var(--select)'},
  '.cm-selectionMatch, &.cm-focused .cm-matchingBracket': {backgroundColor: 'var(--select)'},
  '.cm-tooltip, .cm-panels': {backgroundColor: 'var(--panel)', color: 'var(--fg)', border: '1px solid var(--line)'},
  '.cm-tooltip-autocomplete > ul > li[aria-selected]': {backgroundColor: 'var(--accent)', color: 'var(--on-accent)'},
  '.cm-completionInfo': {maxWidth: '24rem'},
  '.added, .added *': {backgroundColor: 'var(--added-bg)'},
  '.plus': {color: 'var(--added)', fontWeight: '700', paddingInline: '3px'},
});

// A shadow root lets CodeMirror add its styles as the strict Content-Security-Policy allows.
function mount(id, extensions) {
  const root = document.getElementById(id).attachShadow({mode: 'open'});
  const box = document.createElement('div');
  root.append(box);
  box.style.height = '100%';
  return new EditorView({root, parent: box, extensions: [
    lineNumbers(), yaml(), syntaxHighlighting(colors), theme, drawSelection(), highlightSelectionMatches(), extensions,
  ]});
}

// Browsers that replace a selection keep its colors as style attributes, which the policy forbids.
const replace = EditorView.domEventHandlers({
  beforeinput(e, view) {
    if (e.inputType !== 'insertText' || !e.data || view.composing || view.state.selection.main.empty) return false;
    view.dispatch(view.state.replaceSelection(e.data), {userEvent: 'input.type', scrollIntoView: true});
    e.preventDefault();
    return true;
  },
});

// editor makes an editor. Tab is left to the page, so that no key is trapped.
export function editor(id, label, changed, complete) {
  return mount(id, [
    history(), indentOnInput(), bracketMatching(), closeBrackets(), highlightActiveLine(), lintGutter(),
    autocompletion(complete ? {override: [complete]} : {}),
    keymap.of([...closeBracketsKeymap, ...completionKeymap, ...lintKeymap, ...searchKeymap, ...historyKeymap, ...defaultKeymap]),
    EditorView.contentAttributes.of({'aria-label': label, tabindex: '0'}), replace,
    EditorView.updateListener.of((u) => u.docChanged && changed(u)),
  ]);
}

const setAdded = StateEffect.define();
const plus = new (class extends GutterMarker {
  toDOM() { return document.createTextNode('+'); }
  elementClass = 'plus';
})();

const added = StateField.define({
  create: () => ({marks: Decoration.none, gutter: RangeSet.empty}),
  update(value, tr) {
    for (const e of tr.effects) if (e.is(setAdded)) return e.value(tr.state.doc);
    return value;
  },
  provide: (f) => [EditorView.decorations.from(f, (v) => v.marks), gutter({class: 'cm-plus', markers: (view) => view.state.field(f).gutter, initialSpacer: () => plus})],
});

// scrollOnlyViewer scrolls to what is revealed. CodeMirror would also scroll the page.
const scrollOnlyViewer = EditorView.scrollHandler.of((view, {head}, {y, yMargin}) => {
  if (y !== 'start') return false;
  view.scrollDOM.scrollTop = view.lineBlockAt(head).top - yMargin;
  return true;
});

// viewer makes an editor that nobody can change, with marks for additions.
export function viewer(id, label) {
  return mount(id, [
    added, scrollOnlyViewer, EditorState.readOnly.of(true), EditorView.contentAttributes.of({'aria-label': label, 'aria-readonly': 'true', tabindex: '0'}),
    keymap.of([...searchKeymap, ...defaultKeymap]),
  ]);
}

export const text = (view) => view.state.doc.toString();

// change returns the smallest change to a text, so that the editor keeps its place in what is the same.
function change(view, value) {
  const was = text(view);
  const most = Math.min(was.length, value.length);
  let from = 0;
  while (from < most && was[from] === value[from]) from++;
  let same = 0; // at the end
  while (same < most - from && was.at(-1 - same) === value.at(-1 - same)) same++;
  return {from, to: was.length - same, insert: value.slice(from, value.length - same)};
}

// setText sets the text of an editor. If the user changed it before, undo leads back to that.
export function setText(view, value) {
  if (text(view) === value) return;
  const edited = undoDepth(view.state) + redoDepth(view.state) > 0;
  view.dispatch({changes: {from: 0, to: view.state.doc.length, insert: value}, annotations: [Transaction.addToHistory.of(edited), isolateHistory.of('full')]});
}

const mark = Decoration.mark({class: 'added'});
const line = Decoration.line({class: 'added'});

// show sets the text of a viewer and marks spans: whole lines as lines, parts of a line as parts. It returns how many lines
// have marks.
export function show(view, value, spans) {
  const marked = (doc) => {
    const ranges = [];
    const first = new Set();
    for (const {From: from, To: to} of spans) {
      for (let at = from; at < to;) {
        const l = doc.lineAt(at);
        const end = Math.min(to, l.to);
        if (at === l.from && to > l.to) ranges.push(line.range(l.from));
        else if (end > at) ranges.push(mark.range(at, end));
        first.add(l.from);
        at = l.to + 1;
      }
    }
    return {marks: Decoration.set(ranges, true), gutter: RangeSet.of([...first].sort((a, b) => a - b).map((at) => plus.range(at)))};
  };
  view.dispatch({changes: change(view, value), effects: setAdded.of(marked)});
  return view.state.field(added).gutter.size;
}

// reveal scrolls a viewer, and nothing around it, to its largest block of marked lines, with some lines above. If another block
// is not far above, the first such block is at the top.
export function reveal(view) {
  const {doc} = view.state;
  const blocks = [];
  view.state.field(added).gutter.between(0, doc.length, (at) => {
    const line = doc.lineAt(at).number;
    const block = blocks.at(-1);
    if (block?.to === line - 1) block.to = line;
    else blocks.push({from: line, to: line});
  });
  const size = (b) => b.to - b.from;
  const largest = blocks.reduce((most, b) => (most && size(most) >= size(b) ? most : b), undefined);
  const first = blocks.find((b) => largest.from - b.from <= 10);
  view.dispatch({effects: EditorView.scrollIntoView(first ? doc.line(first.from).from : 0, {y: 'start', yMargin: 3 * view.defaultLineHeight})});
}

// complain marks the lines of problems, and those of hints.
export function complain(view, problems, hints = []) {
  const {doc} = view.state;
  const at = (severity) => (p) => {
    const l = doc.line(Math.min(Math.max(p.line, 1), doc.lines));
    return {from: l.from, to: l.to, severity, message: p.message};
  };
  view.dispatch(setDiagnostics(view.state, [...problems.map(at('error')), ...hints.filter((h) => h.line).map(at('warning'))]));
}
