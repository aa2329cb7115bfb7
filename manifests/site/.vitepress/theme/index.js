// SPDX-License-Identifier: Apache-2.0
import DefaultTheme from 'vitepress/theme';
import Picture from './Picture.vue';
import Playground from './Playground.vue';
import {repairSearch} from './search.js';
import './style.css';

export default {
  extends: DefaultTheme,
  enhanceApp({app}) {
    app.component('Picture', Picture);
    app.component('Playground', Playground);
    if (!import.meta.env.SSR) repairSearch();
  },
};
