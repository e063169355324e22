// Words in two languages, switched while the page is open.

const UI = {
  title: { en: 'Attention, experiment by experiment', zh: '注意力机制：逐个实验' },
  oneText: { en: 'Where did the answer come from?', zh: '答案来自哪里？' },
  intro: {
    en: 'Every number below was measured by the program that wrote this page.',
    zh: '下面的每个数字都由生成本页的程序实际测得。',
  },
  skip: { en: 'Skip to the experiments', zh: '跳到实验' },
  contents: { en: 'Experiments', zh: '实验' },
  otherLanguage: { en: '中文', zh: 'English' },
  switchLanguage: { en: '切换到中文', zh: 'Switch to English' },
  theme: { en: 'Colours', zh: '配色' },
  auto: { en: 'Auto', zh: '自动' },
  light: { en: 'Light', zh: '浅色' },
  dark: { en: 'Dark', zh: '深色' },
  section: { en: '§', zh: '§' },
  seed: { en: 'seed', zh: '随机种子' },
  quick: { en: 'quick run', zh: '快速模式' },
  full: { en: 'full run', zh: '完整模式' },
  text: { en: 'text', zh: '文本' },
  inject: { en: 'injected bug', zh: '注入的错误' },
  effects: { en: 'What the lesson says, and what was found', zh: '课程的说法与实测结果' },
  holds: { en: 'holds', zh: '成立' },
  fails: { en: 'not seen', zh: '未出现' },
  seen: { en: 'What you should have seen', zh: '你应当看到' },
  missed: {
    en: (n, all) => `This time ${n} of ${all} ${n === 1 ? 'was' : 'were'} not there: see ✗ above.`,
    zh: (n, all) => `这一次 ${all} 条中有 ${n} 条未出现：见上面的 ✗。`,
  },
  numbers: { en: 'Numbers of this chart', zh: '图中的数值' },
  series: { en: 'Series', zh: '曲线' },
  spread: { en: 'low to high', zh: '最低至最高' },
  series_hint: { en: 'Show or hide a curve', zh: '显示或隐藏曲线' },
  chart_keys: {
    en: 'Chart. Arrow keys walk along the points.',
    zh: '图表。用方向键逐点查看。',
  },
  left_out: {
    en: (n) => `${n} ${n === 1 ? 'point is' : 'points are'} not drawn: a logarithmic axis has no place for zero and below.`,
    zh: (n) => `有 ${n} 个点未画出：对数坐标轴上没有零和负数。`,
  },
  layer: { en: 'Layer', zh: '层' },
  sample: { en: 'Sample', zh: '样本' },
  head: { en: 'Head', zh: '头' },
  shown: { en: 'Shown', zh: '显示' },
  beside: { en: 'Beside it', zh: '对照' },
  nothing: { en: 'nothing', zh: '无' },
  mask: { en: 'Hatch what the mask hides', zh: '用斜线标出被 mask 遮住的格' },
  hidden: { en: 'hidden by the mask', zh: '被 mask 遮住' },
  query: { en: 'query', zh: 'query' },
  key: { en: 'key', zh: 'key' },
  map_keys: {
    en: 'Heat map, queries down, keys across. Arrow keys move from cell to cell.',
    zh: '热力图：纵向为 query，横向为 key。用方向键在格子间移动。',
  },
  map_hint: {
    en: 'Point at a cell, or focus a map and use the arrow keys.',
    zh: '把指针移到格子上，或选中热力图后用方向键。',
  },
  token: { en: 'token', zh: 'token' },
  scores: { en: 'Scores of these tokens', zh: '各 token 的得分' },
  predict: { en: 'Predict first', zh: '先预测' },
  reveal: { en: 'Show the maps', zh: '揭晓' },
};

const LANGUAGES = ['en', 'zh'];
const spoken = []; // what to say again when the language changes
let language = 'en';

/** The words of a text, a plain string as it is. */
function words(text, ...values) {
  if (typeof text === 'string') return text;
  const chosen = text[language] || text.en;
  return typeof chosen === 'function' ? chosen(...values) : chosen;
}

/** Calls `speak` now, and again whenever the language changes. */
function onLanguage(speak) {
  spoken.push(speak);
  speak();
}

/** Keeps the text of an element (or an attribute of it) in the page's language. */
function say(element, text, attribute) {
  onLanguage(() => {
    if (attribute) element.setAttribute(attribute, words(text));
    else element.textContent = words(text);
  });
  return element;
}

/** A sentence in which `commands` are marked. */
function sentence(text) {
  return text.split('`').map((part, i) => (i % 2 === 1 ? make('code', '', part) : part));
}
function saySentence(element, text) {
  onLanguage(() => element.replaceChildren(...sentence(words(text))));
  return element;
}

function setLanguage(code) {
  language = code;
  document.documentElement.lang = code === 'zh' ? 'zh-Hans' : 'en';
  for (const speak of spoken) speak();
}

/** A page opened from a file may have no storage. */
function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Then it is asked again next time.
  }
}
function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** "#zh", "#zh/scale", "#scale": a language, an experiment, or both. */
function partsOfHash() {
  return decodeURIComponent(location.hash.slice(1)).split('/');
}
function languageToStartWith() {
  const wished = [...partsOfHash(), remembered('qkv-lab-language')];
  const found = wished.find((part) => LANGUAGES.includes(part));
  return found ?? (navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en');
}

/** <tag class="…"> with children. */
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}
