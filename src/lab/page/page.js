// The page: experiments one below the other, contents beside them, switches for language and colours.

const results = JSON.parse(document.getElementById('results').textContent);

function paragraphs(text) {
  const box = make('div', 'prose');
  onLanguage(() => {
    box.replaceChildren(...words(text).split(/\n+/).map((part) => make('p', '', ...sentence(part))));
  });
  return box;
}

function buildEffects(effects) {
  const list = make('ul', 'effects');
  for (const effect of effects) {
    const mark = make('span', effect.holds ? 'mark good' : 'mark bad', effect.holds ? '✓ ' : '✗ ');
    mark.append(say(make('span'), effect.holds ? UI.holds : UI.fails));
    const item = make('li', '', mark, saySentence(make('p', 'claim'), effect.claim),
      saySentence(make('p', 'found'), effect.found));
    item.dataset.key = effect.key;
    list.append(item);
  }
  return list;
}

function buildExperiment(experiment) {
  const section = make('section');
  section.id = experiment.name;
  const heading = make('h2');
  const title = make('span');
  say(title, experiment.title);
  heading.append(make('span', 'number', `§${experiment.section}`), title);
  section.append(heading, make('p', 'command', make('code', '', experiment.command)));
  section.append(paragraphs(experiment.explanation));
  for (const maps of experiment.token_maps) section.append(buildTokenMaps(maps));
  for (const maps of experiment.heat_maps) section.append(buildHeatMaps(maps));
  for (const chart of experiment.charts) section.append(buildChart(chart));
  for (const table of experiment.tables) section.append(buildTable(table));
  if (experiment.effects.length > 0) {
    section.append(say(make('h3'), UI.effects), buildEffects(experiment.effects));
  }
  const seen = make('aside', 'seen', say(make('strong'), UI.seen), saySentence(make('p'), experiment.seen));
  const missed = experiment.effects.filter((effect) => !effect.holds).length;
  if (missed > 0) {
    const note = seen.appendChild(make('p', 'missed'));
    onLanguage(() => { note.textContent = words(UI.missed, missed, experiment.effects.length); });
  }
  section.append(seen);
  return section;
}

function buildContents(experiments) {
  const list = make('ol');
  for (const experiment of experiments) {
    const link = make('a', '', make('span', 'number', `§${experiment.section}`), say(make('span', 'name'), experiment.title));
    link.href = `#${experiment.name}`;
    const held = experiment.effects.filter((effect) => effect.holds).length;
    const isWhole = held === experiment.effects.length;
    const count = make('span', isWhole ? 'count good' : 'count bad', `${held}/${experiment.effects.length}`);
    onLanguage(() => { count.title = `${words(UI.effects)}: ${held}/${experiment.effects.length}`; });
    if (experiment.effects.length > 0) link.append(count);
    list.append(make('li', '', link));
  }
  return list;
}

function buildHead() {
  const isOneText = results.experiments.every((experiment) => experiment.command.startsWith('qkv explain'));
  if (isOneText) document.querySelector('.brand').textContent = document.title = 'qkv explain';
  const head = make('div', 'head', say(make('h1'), isOneText ? UI.oneText : UI.title), say(make('p'), UI.intro));
  const settings = head.appendChild(make('p', 'settings'));
  onLanguage(() => {
    const parts = [words(results.quick ? UI.quick : UI.full), `${words(UI.seed)} ${results.seed}`];
    if (results.text) parts.push(`${words(UI.text)} ${results.text}`);
    if (results.inject) parts.push(`${words(UI.inject)} ${results.inject}`);
    settings.textContent = parts.join(' · ');
  });
  return head;
}

/** Canvases take their colours and widths when they are drawn. */
function drawAll() {
  knownColors.clear();
  for (const chart of allCharts) chart.dress();
  for (const figure of allHeatMaps) figure.draw();
}

function startTheme() {
  const select = document.getElementById('theme');
  for (const name of ['auto', 'light', 'dark']) {
    const option = select.appendChild(say(make('option'), UI[name]));
    option.value = name;
  }
  say(document.getElementById('theme-label'), UI.theme);
  const apply = () => {
    if (select.value === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = select.value;
    drawAll();
  };
  const before = remembered('qkv-lab-theme');
  select.value = ['light', 'dark'].includes(before) ? before : 'auto';
  select.addEventListener('change', () => {
    remember('qkv-lab-theme', select.value);
    apply();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
  apply();
}

function startLanguage() {
  const button = document.getElementById('language');
  say(button, UI.otherLanguage);
  say(button, UI.switchLanguage, 'aria-label');
  onLanguage(() => { button.lang = language === 'en' ? 'zh-Hans' : 'en'; });
  const change = (code) => {
    setLanguage(code);
    for (const figure of allHeatMaps) figure.draw();
  };
  button.addEventListener('click', () => {
    const code = language === 'en' ? 'zh' : 'en';
    remember('qkv-lab-language', code);
    change(code);
  });
  addEventListener('hashchange', () => {
    const code = partsOfHash().find((part) => LANGUAGES.includes(part));
    if (code && code !== language) change(code);
    goToExperiment();
  });
}

/** "#zh/scale": the browser itself only knows "#scale". */
function goToExperiment() {
  const [first, second] = partsOfHash();
  if (second && LANGUAGES.includes(first)) document.getElementById(second)?.scrollIntoView();
}

/** On paper colours are light and maps are as wide as it. */
function startPrinting() {
  const again = () => {
    for (const chart of allCharts) chart.resize();
    drawAll();
  };
  addEventListener('beforeprint', again);
  addEventListener('afterprint', again);
  matchMedia('print').addEventListener('change', again);
}

function startWidths() {
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - width) < 1) return;
    width = entry.contentRect.width;
    for (const figure of allHeatMaps) figure.draw();
  }).observe(document.getElementById('experiments'));
}

Chart.defaults.font.family = 'system-ui, sans-serif';
language = languageToStartWith();
const main = document.getElementById('experiments');
const contents = document.getElementById('contents');
say(contents, UI.contents, 'aria-label');
say(document.getElementById('skip'), UI.skip);
onLanguage(() => { document.title = `qkv lab: ${words(UI.title)}`; });
contents.append(buildContents(results.experiments));
main.append(buildHead(), ...results.experiments.map(buildExperiment));
startTheme();
startLanguage();
startPrinting();
startWidths();
setLanguage(language);
drawAll();
goToExperiment();
