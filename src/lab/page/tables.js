// Tables of the results, and those that stand behind a chart.

const isSpread = (cell) => cell !== null && typeof cell === 'object' && 'value' in cell;
const isText = (cell) => cell !== null && typeof cell === 'object' && 'en' in cell;
const isSpecial = (cell) => typeof cell === 'string' && Object.hasOwn(SPECIAL, cell);
const isNumber = (cell) => typeof cell === 'number' || isSpread(cell) || isSpecial(cell);
/** A number with its unit, "3.84 %", or the dash of one that is not there. */
const isQuantity = (cell) => typeof cell === 'string' && /^([−-]?[\d.,]+(e[−-]?\d+)?( \S{1,4})?|–)$/.test(cell);

/** A sentence, which wants a column of some width. */
const lengthOf = (cell) => (isText(cell) ? cell.en : typeof cell === 'string' ? cell : '').length;

function fillCell(td, cell) {
  if (isSpread(cell)) {
    const range = `${shortNumber(numberOf(cell.low))} – ${shortNumber(numberOf(cell.high))}`;
    td.append(shortNumber(numberOf(cell.value)), make('span', 'spread', range));
  } else if (isText(cell)) {
    say(td, cell);
  } else if (Number.isSafeInteger(cell)) {
    td.textContent = groupedNumber(cell);
  } else if (isNumber(cell)) {
    td.textContent = shortNumber(numberOf(cell));
  } else {
    td.textContent = cell;
  }
}

/** What is wider than the page scrolls in itself, by keys too. */
function scrolling(table, name) {
  const box = make('div', 'scroll', table);
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  say(box, name, 'aria-label');
  return box;
}

function headOf(columns, isRight) {
  const row = make('tr');
  columns.forEach((column, c) => {
    const th = make('th', isRight[c] ? 'right' : '');
    th.scope = 'col';
    onLanguage(() => {
      th.textContent = column.unit?.en ? `${words(column.name)} (${words(column.unit)})` : words(column.name);
    });
    row.append(th);
  });
  return make('thead', '', row);
}

function buildTable(table) {
  const isRight = table.columns.map(
    (column) => table.rows.length > 0 && table.rows.every(({ [column.key]: cell }) => isNumber(cell) || isQuantity(cell)));
  const body = make('tbody');
  for (const row of table.rows) {
    const tr = make('tr');
    table.columns.forEach((column, c) => {
      const td = make('td', isRight[c] ? 'right' : '');
      const length = lengthOf(row[column.key]);
      if (length > 12) td.classList.add(length > 48 ? 'long' : 'phrase');
      fillCell(td, row[column.key]);
      tr.append(td);
    });
    body.append(tr);
  }
  const element = make('table', '', headOf(table.columns, isRight), body);
  element.dataset.key = table.key;
  const figure = make('figure', 'card');
  say(figure.appendChild(make('figcaption')), table.title);
  figure.append(scrolling(element, table.title));
  return figure;
}

/** Every point of a chart. */
function tableOfChart(chart) {
  const columns = [
    { key: 'series', name: UI.series }, { key: 'x', name: chart.x.name }, { key: 'y', name: chart.y.name }];
  const rows = chart.series.flatMap((series) => series.x.map((x, i) => ({
    series: series.name,
    x,
    y: series.low.length === 0 ? series.y[i]
      : { value: series.y[i], low: series.low[i], high: series.high[i] },
  })));
  return buildTable({ key: `${chart.key}-numbers`, title: chart.title, columns, rows });
}
