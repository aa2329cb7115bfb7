// SPDX-License-Identifier: Apache-2.0

// tablist makes the tabs of an element select their panels, by click and by arrow keys. The panels that are not selected
// get an attribute: hidden, or another one if they are hidden only sometimes. It returns how to select a tab by its name,
// which is its ID without a prefix, and how to read which one is selected.
export function tablist(id, prefix, attribute, selected) {
  const tabs = [...document.getElementById(id).querySelectorAll('[role=tab]')];
  const panel = (tab) => document.getElementById(tab.getAttribute('aria-controls'));
  const select = (tab) => {
    for (const t of tabs) {
      t.ariaSelected = String(t === tab);
      t.tabIndex = t === tab ? 0 : -1;
      panel(t).toggleAttribute(attribute, t !== tab);
    }
  };
  for (const tab of tabs) {
    tab.addEventListener('click', () => {
      select(tab);
      selected();
    });
    tab.addEventListener('keydown', (e) => {
      const at = tabs.indexOf(tab);
      const to = {ArrowRight: at + 1, ArrowLeft: at - 1 + tabs.length, Home: 0, End: tabs.length - 1}[e.key];
      if (to === undefined) return;
      e.preventDefault();
      tabs[to % tabs.length].focus();
      tabs[to % tabs.length].click();
    });
  }
  return {
    panels: tabs.map((tab) => ({tab, panel: panel(tab)})),
    select: (name) => select(tabs.find((t) => t.id === prefix + name) ?? tabs[0]),
    selected: () => tabs.find((t) => t.ariaSelected === 'true').id.slice(prefix.length),
  };
}
