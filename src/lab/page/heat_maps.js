// Heat maps with their choices: layer, sample and head, a variant or two side by side, the mask, and a question before them.

const allHeatMaps = []; // to be drawn again in other colours or widths
const SIDE_BY_SIDE_FROM = 620; // pixels that two maps need

/** The numbers and the mask of one matrix of a variant. */
function matrixOf(maps, variant, at) {
  const [, samples, heads, rows, columns] = maps.shape;
  const size = rows * columns;
  const begin = ((at.layer * samples + at.sample) * heads + at.head) * size;
  return {
    rows,
    columns,
    values: variant.values.slice(begin, begin + size).map(numberOf),
    seen: seenBy(variant, at),
    rowLabels: labelsOf(maps.query_labels, rows),
    columnLabels: labelsOf(maps.key_labels, columns),
  };
}

/** Axes of size 1 are shared. */
function seenBy(variant, at) {
  const shape = variant.seen_shape;
  if (!shape) return () => true;
  return (row, column) => {
    const place = [at.layer, at.sample, at.head, row, column];
    const index = place.reduce((sum, i, axis) => sum * shape[axis] + (shape[axis] === 1 ? 0 : i), 0);
    return variant.seen[index] !== 0;
  };
}

function labelsOf(labels, count) {
  return labels.length > 0 ? labels : Array.from({ length: count }, (_, i) => String(i));
}

/** A labelled <select> of the numbers below `count`, or of texts. */
function selectOf(name, options, onChange) {
  const select = make('select');
  options.forEach((option, i) => {
    const element = select.appendChild(make('option'));
    element.value = String(i);
    say(element, typeof option === 'number' ? String(option) : option);
  });
  select.addEventListener('change', () => onChange(Number(select.value)));
  return { select, field: make('label', 'field', say(make('span'), name), select) };
}

class HeatMapFigure {
  constructor(maps) {
    this.maps = maps;
    const { layer, sample, head, shown, beside } = maps.start;
    this.at = { layer, sample, head };
    this.shown = maps.variants.length > 1 ? [shown, beside] : [0];
    this.hatched = maps.variants.some((variant) => variant.seen);
    this.focus = null;

    this.element = make('figure', 'card');
    this.element.dataset.key = maps.key;
    say(this.element.appendChild(make('figcaption')), maps.title);
    this.body = make('div', 'maps');
    this.panels = [this.makePanel(), this.makePanel()];
    this.readout = make('p', 'readout');
    this.readout.setAttribute('aria-live', 'polite');
    this.legend = make('div', 'heat-legend');
    this.body.append(this.makeControls(), make('div', 'panels', ...this.panels.map(({ box }) => box)),
      this.legend, this.readout);
    if (maps.predict) this.veil();
    this.element.append(this.body);
    if (maps.reveal) this.body.append(say(make('p', 'reveal'), maps.reveal));
  }

  /** The maps stay away until the reader has thought. */
  veil() {
    this.body.dataset.veiled = '';
    const button = say(make('button', 'primary'), UI.reveal);
    button.type = 'button';
    const question = make('div', 'predict', say(make('strong'), UI.predict), say(make('p'), this.maps.predict), button);
    button.addEventListener('click', () => {
      delete this.body.dataset.veiled;
      button.remove();
      this.draw();
      this.panels[0].canvas.focus();
    });
    this.element.append(question);
  }

  makePanel() {
    const canvas = make('canvas');
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'application');
    const title = make('p', 'panel-title');
    const box = make('div', 'panel', title, make('div', 'scroll', canvas));
    const picture = new HeatMapPicture(canvas);
    canvas.addEventListener('pointermove', (event) => this.look(picture.cellAt(event)));
    canvas.addEventListener('pointerdown', (event) => this.look(picture.cellAt(event)));
    canvas.addEventListener('pointerleave', () => {
      if (document.activeElement !== canvas) this.look(null);
    });
    canvas.addEventListener('focus', () => {
      if (!this.focus && canvas.matches(':focus-visible')) this.look({ row: 0, column: 0 });
    });
    canvas.addEventListener('keydown', (event) => this.move(event));
    return { box, canvas, picture, title };
  }

  makeControls() {
    const [layers, samples, heads] = this.maps.shape;
    const controls = make('div', 'controls');
    const choose = (name, key, count) => {
      if (count < 2) return;
      const numbers = Array.from({ length: count }, (_, i) => i);
      const { select, field } = selectOf(name, numbers, (i) => {
        this.at[key] = i;
        this.draw();
      });
      select.name = key;
      select.value = String(this.at[key]);
      controls.append(field);
    };
    choose(UI.layer, 'layer', layers);
    choose(UI.sample, 'sample', samples);
    choose(UI.head, 'head', heads);
    if (this.maps.variants.length > 1) this.addVariantChoices(controls);
    if (this.hatched) this.addMaskChoice(controls);
    return controls;
  }

  addVariantChoices(controls) {
    const names = this.maps.variants.map((variant) => variant.name);
    const first = selectOf(UI.shown, names, (i) => {
      this.shown[0] = i;
      this.draw();
    });
    const second = selectOf(UI.beside, [...names, UI.nothing], (i) => {
      this.shown = i < names.length ? [this.shown[0], i] : [this.shown[0]];
      this.draw();
    });
    first.select.name = 'shown';
    second.select.name = 'beside';
    first.select.value = String(this.shown[0]);
    second.select.value = String(this.shown[1]);
    controls.append(first.field, second.field);
  }

  addMaskChoice(controls) {
    const box = make('input');
    box.type = 'checkbox';
    box.checked = true;
    box.name = 'mask';
    box.addEventListener('change', () => {
      this.hatched = box.checked;
      this.draw();
    });
    controls.append(make('label', 'field check', box, say(make('span'), UI.mask)));
  }

  look(cell) {
    this.focus = cell;
    this.draw();
  }

  move(event) {
    const [, , , rows, columns] = this.maps.shape;
    const { row, column } = this.focus ?? { row: 0, column: 0 };
    const next = {
      ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1],
      ArrowDown: [row + 1, column], ArrowUp: [row - 1, column],
      Home: [row, 0], End: [row, columns - 1],
    }[event.key];
    if (!next) return;
    event.preventDefault();
    this.look({
      row: Math.min(Math.max(next[0], 0), rows - 1),
      column: Math.min(Math.max(next[1], 0), columns - 1),
    });
  }

  draw() {
    const matrices = this.shown.map((i) => matrixOf(this.maps, this.maps.variants[i], this.at));
    const scale = heatScale(matrices.flatMap((matrix) => matrix.values));
    const room = this.element.clientWidth - 2 * parseFloat(getComputedStyle(this.element).paddingLeft);
    const isPair = matrices.length > 1 && room >= SIDE_BY_SIDE_FROM;
    this.panels.forEach((panel, p) => {
      panel.box.hidden = p >= matrices.length;
      if (panel.box.hidden) return;
      const name = words(this.maps.variants[this.shown[p]].name);
      panel.title.textContent = name;
      panel.canvas.setAttribute('aria-label', `${words(this.maps.title)}, ${name}. ${words(UI.map_keys)}`);
      const width = isPair ? Math.floor((room - 24) / 2) : room;
      panel.picture.draw(matrices[p], { width, scale, hatched: this.hatched, focus: this.focus });
    });
    this.sayFocus(matrices);
    this.drawLegend(scale);
  }

  sayFocus(matrices) {
    if (!this.focus) {
      this.readout.textContent = words(UI.map_hint);
      return;
    }
    const { row, column } = this.focus;
    const [first] = matrices;
    const place = `${words(UI.query)} ${row} ${first.rowLabels[row] === String(row) ? '' : `“${first.rowLabels[row]}” `}`
      + `→ ${words(UI.key)} ${column}${first.columnLabels[column] === String(column) ? '' : ` “${first.columnLabels[column]}”`}`;
    const values = matrices.map((matrix, p) => {
      const name = matrices.length > 1 ? `${words(this.maps.variants[this.shown[p]].name)} ` : '';
      const hidden = matrix.seen(row, column) ? '' : ` (${words(UI.hidden)})`;
      return `${name}${shortNumber(matrix.values[row * matrix.columns + column])}${hidden}`;
    });
    this.readout.textContent = `${place}: ${values.join(' · ')}`;
  }

  drawLegend(scale) {
    const strip = make('span', 'strip');
    const stops = scale.stops.map((stop) => `rgb(${stop.join(' ')})`);
    strip.style.background = `linear-gradient(to right, ${stops.join(', ')})`;
    const parts = [make('span', '', shortNumber(scale.from), strip, shortNumber(scale.to))];
    if (scale.hasOthers) parts.push(make('span', '', make('span', 'swatch nan'), 'NaN'));
    if (this.hatched) parts.push(make('span', '', make('span', 'swatch hatched'), words(UI.hidden)));
    this.legend.replaceChildren(...parts);
  }
}

function buildHeatMaps(maps) {
  const figure = new HeatMapFigure(maps);
  allHeatMaps.push(figure);
  return figure.element;
}
