// Curves with logarithmic axes and bands of spread, drawn by Chart.js.

const allCharts = []; // to be drawn again in other words or colours
const POINTS = ['circle', 'rect', 'triangle', 'rectRot', 'crossRot', 'star'];
const DASHES = [[], [6, 4], [2, 3], [9, 3, 2, 3]];
const knownColors = new Map(); // forgotten when light turns dark
const probe = document.body.appendChild(make('span', 'unseen'));
probe.setAttribute('aria-hidden', 'true');

/** [r, g, b] of a colour of the style sheet as it is now: light, dark or on paper. */
function channels(name) {
  if (!knownColors.has(name)) {
    probe.style.color = `var(--${name})`;
    knownColors.set(name, getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number));
  }
  return knownColors.get(name);
}
function color(name, alpha = 1) {
  return `rgba(${channels(name).join(', ')}, ${alpha})`;
}
const seriesColor = (i, alpha) => color(`series-${(i % 6) + 1}`, alpha);

/** Points that the axes have a place for. */
function pointsOf(chart, series, ys) {
  return series.x
    .map((x, i) => ({ x: numberOf(x), y: numberOf(ys[i]) }))
    .filter(({ x, y }) => !(chart.x.logarithmic && x <= 0) && !(chart.y.logarithmic && y <= 0))
    .filter(({ x, y }) => Number.isFinite(x) && Math.abs(y) !== Infinity);
}

function datasetsOf(chart) {
  return chart.series.flatMap((series, i) => {
    const line = { seriesIndex: i, data: pointsOf(chart, series, series.y), order: 0 };
    if (series.low.length === 0) return [line];
    const edge = { seriesIndex: i, isBand: true, pointRadius: 0, borderWidth: 0, order: 1 };
    return [
      { ...edge, data: pointsOf(chart, series, series.low) },
      { ...edge, data: pointsOf(chart, series, series.high), fill: '-1' },
      line];
  });
}

/** At the points themselves where these are few, as with widths in powers of two. */
function ticksAtPoints(chart, axis, scale) {
  if (!axis.logarithmic || scale.axis !== 'x') return;
  const places = [...new Set(chart.series.flatMap((series) => series.x.map(numberOf)))]
    .filter((x) => x >= scale.min && x <= scale.max).sort((a, b) => a - b);
  if (places.length <= 14) scale.ticks = places.map((value) => ({ value }));
}

/** Logarithmic axes have more ticks than places for numbers. */
function tickText(axis, value, ticks) {
  const lead = Number(value.toExponential(6).split('e')[0]);
  return axis.logarithmic && ticks.length > 14 && ![1, 2, 5].includes(lead) ? '' : shortNumber(value);
}

function scaleOf(chart, axis) {
  return {
    type: axis.logarithmic ? 'logarithmic' : 'linear',
    title: { display: true },
    ticks: { callback: (value, i, ticks) => tickText(axis, value, ticks), maxRotation: 0, autoSkipPadding: 12 },
    afterBuildTicks: (scale) => ticksAtPoints(chart, axis, scale),
  };
}

/** Words and colours of a chart as they are now. */
function dress(drawn, chart) {
  const { options, data } = drawn;
  for (const dataset of data.datasets) {
    const i = dataset.seriesIndex;
    dataset.label = words(chart.series[i].name);
    dataset.borderColor = seriesColor(i, dataset.isBand ? 0 : 1);
    dataset.backgroundColor = seriesColor(i, dataset.isBand ? 0.16 : 1);
    if (dataset.isBand) continue;
    dataset.borderDash = DASHES[Math.floor(i / 6) % DASHES.length];
    dataset.pointStyle = POINTS[i % POINTS.length];
    dataset.pointRadius = dataset.data.length > 40 ? 0 : 3.5;
    dataset.borderWidth = 2;
  }
  for (const name of ['x', 'y']) {
    const scale = options.scales[name];
    scale.title.text = words(chart[name].name);
    scale.title.color = color('muted');
    scale.ticks.color = color('muted');
    scale.grid = { color: color('line') };
  }
  const tooltip = options.plugins.tooltip;
  tooltip.backgroundColor = color('ink', 0.92);
  tooltip.titleColor = tooltip.bodyColor = color('paper');
  drawn.update('none');
}

function pointText(chart, dataset, point) {
  const name = words(chart.series[dataset.seriesIndex].name);
  return `${name}: ${shortNumber(point.y)}`;
}

/** Arrow keys walk along the points, and what is met is said. */
function walkByKeys(canvas, drawn, chart, readout) {
  let line = 0;
  let at = -1;
  canvas.addEventListener('keydown', (event) => {
    const lines = drawn.data.datasets.map((dataset, i) => ({ dataset, i }))
      .filter(({ dataset, i }) => !dataset.isBand && drawn.isDatasetVisible(i) && dataset.data.length > 0);
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!steps || lines.length === 0) return;
    event.preventDefault();
    line = (line + steps[0] + lines.length) % lines.length;
    const { dataset, i } = lines[line];
    at = Math.min(Math.max(at + steps[1], 0), dataset.data.length - 1);
    const active = [{ datasetIndex: i, index: at }];
    drawn.setActiveElements(active);
    drawn.tooltip.setActiveElements(active, { x: 0, y: 0 });
    drawn.update('none');
    const point = dataset.data[at];
    readout.textContent = `${words(chart.x.name)} ${shortNumber(point.x)}, ${pointText(chart, dataset, point)}`;
  });
}

function legendOf(drawn, chart) {
  const legend = make('div', 'legend');
  legend.setAttribute('role', 'group');
  say(legend, UI.series_hint, 'aria-label');
  chart.series.forEach((series, i) => {
    const swatch = make('span', 'swatch');
    swatch.style.background = `var(--series-${(i % 6) + 1})`;
    const button = make('button', '', swatch, say(make('span'), series.name));
    button.type = 'button';
    button.setAttribute('aria-pressed', 'true');
    button.addEventListener('click', () => {
      const shown = button.getAttribute('aria-pressed') !== 'true';
      button.setAttribute('aria-pressed', String(shown));
      drawn.data.datasets.forEach((dataset, d) => {
        if (dataset.seriesIndex === i) drawn.setDatasetVisibility(d, shown);
      });
      drawn.update('none');
    });
    legend.append(button);
  });
  return legend;
}

function numbersBehind(chart) {
  const details = make('details', '', say(make('summary'), UI.numbers));
  details.addEventListener('toggle', () => {
    if (details.open && details.children.length === 1) details.append(tableOfChart(chart));
  });
  return details;
}

function countLeftOut(chart) {
  const counts = chart.series.map((series) => series.x.length - pointsOf(chart, series, series.y).length);
  return counts.reduce((sum, count) => sum + count, 0);
}

function buildChart(chart) {
  const canvas = make('canvas');
  canvas.tabIndex = 0;
  canvas.dataset.key = chart.key;
  canvas.setAttribute('role', 'application');
  onLanguage(() => canvas.setAttribute('aria-label', `${words(chart.title)}. ${words(UI.chart_keys)}`));
  const readout = make('p', 'unseen');
  readout.setAttribute('aria-live', 'polite');

  const drawn = new Chart(canvas, {
    type: 'line',
    data: { datasets: datasetsOf(chart) },
    options: {
      animation: false,
      responsive: true,
      maintainAspectRatio: false,
      interaction: { mode: 'nearest', axis: 'x', intersect: false },
      scales: { x: scaleOf(chart, chart.x), y: scaleOf(chart, chart.y) },
      plugins: {
        legend: { display: false },
        tooltip: {
          usePointStyle: true,
          filter: (item) => !item.dataset.isBand,
          callbacks: {
            title: (items) => items.length ? `${words(chart.x.name)} ${shortNumber(items[0].parsed.x)}` : '',
            label: (item) => pointText(chart, item.dataset, item.parsed),
          },
        },
      },
    },
  });
  const dressed = () => dress(drawn, chart);
  allCharts.push({ resize: () => drawn.resize(), dress: dressed });
  onLanguage(dressed);
  walkByKeys(canvas, drawn, chart, readout);

  const figure = make('figure', 'card');
  say(figure.appendChild(make('figcaption')), chart.title);
  if (chart.series.length > 1) figure.append(legendOf(drawn, chart));
  figure.append(make('div', 'plot', canvas), readout);
  const leftOut = countLeftOut(chart);
  if (leftOut > 0) onLanguage(noteOn(figure, leftOut));
  figure.append(numbersBehind(chart));
  return figure;
}

function noteOn(figure, count) {
  const note = figure.appendChild(make('p', 'note'));
  return () => { note.textContent = words(UI.left_out, count); };
}
