// SPDX-License-Identifier: Apache-2.0

import {only} from './link.js';
import * as view from './view.js';

const by = (id) => document.getElementById(id);
let all = [];

// chosen returns the number of the chosen example, or -1 if the input comes from a link.
const chosen = () => by('example').selectedIndex;

// mark shows which example is chosen, and what to try with it.
function mark() {
  view.about(all[chosen()]?.about ?? '');
  [...by('tour').querySelectorAll('button')].forEach((b) => {
    if (b.dataset.example === String(chosen())) b.setAttribute('aria-current', 'true');
    else b.removeAttribute('aria-current');
  });
}

// forget chooses no example, so that each one can be chosen.
export function forget() {
  by('example').selectedIndex = -1;
  mark();
}

// load fills the menu and the tour. It returns the first example. If another one is chosen, it calls restore with its state.
export async function load(restore) {
  try {
    const answer = await fetch('examples.json');
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    all = await answer.json();
  } catch (e) {
    view.trouble(`There are no examples, because examples.json cannot be loaded: ${e.message}.`);
  }
  const choose = (i) => {
    by('example').selectedIndex = i;
    view.trouble('');
    mark();
    restore(only(all[i]));
  };
  by('example').append(...all.map((e) => new Option(e.name)));
  by('example').addEventListener('change', () => choose(chosen()));
  all.forEach((e, i) => {
    if (!e.tour) return;
    const button = view.element('button', {type: 'button', 'data-example': String(i)}, e.tour);
    button.addEventListener('click', () => choose(i));
    by('tour').append(view.element('li', {}, button));
  });
  mark();
  return all[0];
}
