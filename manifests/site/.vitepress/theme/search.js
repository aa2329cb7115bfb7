// SPDX-License-Identifier: Apache-2.0

// repairSearch changes how screen readers see the search of the theme: a dialog with a list of links. The theme calls the
// dialog a button and the links options, which may contain nothing that can be focused.
export function repairSearch() {
  const repair = () => {
    const box = document.querySelector('.VPLocalSearchBox');
    if (!box) return;
    if (box.getAttribute('role') === 'button') {
      box.setAttribute('role', 'dialog');
      box.setAttribute('aria-label', 'Search');
      for (const name of ['aria-expanded', 'aria-haspopup', 'aria-labelledby', 'aria-owns']) box.removeAttribute(name);
    }
    for (const e of box.querySelectorAll('[role=listbox], [role=option], li[aria-selected]')) {
      for (const name of ['role', 'aria-selected', 'aria-labelledby']) e.removeAttribute(name);
    }
    for (const key of box.querySelectorAll('kbd[aria-label]:not([role])')) key.setAttribute('role', 'img');
    for (const link of box.querySelectorAll('a.result[aria-label]')) link.removeAttribute('aria-label');
  };
  new MutationObserver(repair).observe(document.body, {childList: true, subtree: true, attributeFilter: ['aria-selected', 'aria-label']});
}
