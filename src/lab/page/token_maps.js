// Tokens of a text in the colours of what a method says of them: a line a method.

const DEEPEST = 45; // percent of the colour: text must stay readable on it

/** A share of the largest score, −1 to 1. */
function shareOf(score, most) {
  return most > 0 && Number.isFinite(score) ? score / most : 0;
}

function tokenSpan(token, score, most) {
  const share = shareOf(score, most);
  const span = make('span', 'token', token);
  const tone = share < 0 ? '--series-2' : '--accent';
  span.style.background = `color-mix(in srgb, var(${tone}) ${Math.round(DEEPEST * Math.abs(share))}%, transparent)`;
  span.title = `${token}: ${shortNumber(score)}`;
  return span;
}

function tokenLine(maps, method) {
  const scores = method.scores.map(numberOf);
  const most = largest(scores.map(Math.abs).filter(Number.isFinite));
  const line = make('p', 'tokens');
  maps.tokens.forEach((token, i) => line.append(tokenSpan(token, scores[i], most), ' '));
  return make('div', 'token-row', say(make('p', 'token-method'), method.name), line);
}

/** The scores themselves. */
function tableOfTokens(maps) {
  const columns = [{ key: 'token', name: UI.token },
    ...maps.methods.map((method, m) => ({ key: `m${m}`, name: method.name }))];
  const rows = maps.tokens.map((token, t) => Object.fromEntries(
    [['token', token], ...maps.methods.map((method, m) => [`m${m}`, method.scores[t]])]));
  return buildTable({ key: `${maps.key}-numbers`, title: maps.title, columns, rows });
}

function buildTokenMaps(maps) {
  const figure = make('figure', 'card');
  figure.dataset.key = maps.key;
  say(figure.appendChild(make('figcaption')), maps.title);
  for (const method of maps.methods) figure.append(tokenLine(maps, method));
  const details = make('details', '', say(make('summary'), UI.scores));
  details.addEventListener('toggle', () => {
    if (details.open && details.children.length === 1) details.append(tableOfTokens(maps));
  });
  figure.append(details);
  return figure;
}
