// A heat map on a canvas: one number a cell, queries down, keys across.

const FONT = '11px system-ui, sans-serif';
const LARGEST_CELL = 46;
const CELL_WITH_NUMBER = 36;
const SMALLEST_CELL = 2;
const ROOM_FOR_LABEL = 11; // pixels of a cell that its label needs

/** Colours between stops [r, g, b], at 0 to 1. */
function between(stops, part) {
  const place = Math.min(Math.max(part, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(place), stops.length - 2);
  const mixed = stops[i].map((from, c) => Math.round(from + (stops[i + 1][c] - from) * (place - i)));
  return `rgb(${mixed.join(', ')})`;
}

/** The style sheet's colours, from low to high; with negative numbers from below zero to above. */
function heatStops(hasNegative) {
  const names = hasNegative ? ['heat-below', 'heat-0', 'heat-2'] : ['heat-0', 'heat-1', 'heat-2'];
  return names.map(channels);
}

/** What numbers of a map, or of several held side by side, are coloured by. */
function heatScale(numbers) {
  const finite = numbers.filter(Number.isFinite);
  const low = Math.min(smallest(finite), 0);
  const high = Math.max(largest(finite), 0);
  const hasNegative = low < 0;
  const reach = Math.max(-low, high) || 1;
  const stops = heatStops(hasNegative);
  return {
    from: hasNegative ? -reach : 0,
    to: reach,
    stops,
    hasOthers: finite.length < numbers.length,
    colorOf(value) {
      if (Number.isNaN(value)) return color('heat-nan');
      return between(stops, hasNegative ? (value / reach + 1) / 2 : value / reach);
    },
    isStrong: (value) => Number.isNaN(value) || Math.abs(value) > 0.55 * reach,
  };
}

class HeatMapPicture {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
  }

  /** map: {rows, columns, values, seen, rowLabels, columnLabels}; look: {width, scale, hatched, focus}. */
  draw(map, look) {
    this.map = map;
    this.measure(map, look.width);
    this.clear();
    for (let row = 0; row < map.rows; row += 1) {
      for (let column = 0; column < map.columns; column += 1) this.drawCell(row, column, look);
    }
    this.drawLabels(look.focus);
    if (look.focus) this.drawFocus(look.focus);
  }

  measure(map, width) {
    const { context } = this;
    context.font = FONT;
    const widest = largest(map.rowLabels.map((label) => context.measureText(label).width));
    this.left = Math.min(Math.ceil(widest) + 8, Math.floor(width / 4));
    const room = Math.floor((width - this.left - 2) / map.columns);
    this.cell = Math.min(Math.max(room, SMALLEST_CELL), LARGEST_CELL);
    const longest = largest(map.columnLabels.map((label) => context.measureText(label).width));
    this.isTurned = longest > this.cell - 2;
    this.top = this.isTurned ? Math.min(Math.ceil(longest) + 8, 90) : 18;
  }

  clear() {
    const { canvas, context, map } = this;
    const width = this.left + map.columns * this.cell + 2;
    const height = this.top + map.rows * this.cell + 2;
    const pixels = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * pixels);
    canvas.height = Math.round(height * pixels);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    context.scale(pixels, pixels);
    context.font = FONT;
  }

  drawCell(row, column, look) {
    const { context, map, cell } = this;
    const x = this.left + column * cell;
    const y = this.top + row * cell;
    const gap = cell > 8 ? 1 : 0;
    const value = map.values[row * map.columns + column];
    context.fillStyle = look.scale.colorOf(value);
    context.fillRect(x, y, cell - gap, cell - gap);
    const isHidden = !map.seen(row, column);
    if (look.hatched && isHidden) this.hatch(x, y, cell - gap);
    if (cell >= CELL_WITH_NUMBER && !(isHidden && value === 0)) this.drawNumber(value, x + cell / 2, y + cell / 2, look.scale);
  }

  /** In the ink that stands out, where it fits. */
  drawNumber(value, x, y, scale) {
    const { context } = this;
    const text = shortNumber(Number(value.toPrecision(2)));
    if (context.measureText(text).width > this.cell - 4) return;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.fillStyle = color(scale.isStrong(value) ? 'heat-ink-strong' : 'heat-ink');
    context.fillText(text, x, y);
  }

  hatch(x, y, size) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, size, size);
    context.clip();
    context.beginPath();
    const step = Math.max(4, size / 4);
    for (let d = -size; d < size; d += step) {
      context.moveTo(x + d, y + size);
      context.lineTo(x + d + size, y);
    }
    context.strokeStyle = color('hatch');
    context.lineWidth = 1;
    context.stroke();
    context.restore();
  }

  /** As many as there is room for; those of the cell in focus always. */
  drawLabels(focus) {
    const { context, map, cell } = this;
    const step = Math.ceil(ROOM_FOR_LABEL / cell);
    const pick = (i, chosen) => (focus ? i === chosen || (i % step === 0 && Math.abs(i - chosen) >= step) : i % step === 0);
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    map.rowLabels.forEach((label, row) => {
      if (!pick(row, focus?.row)) return;
      context.fillStyle = color(focus?.row === row ? 'accent' : 'muted');
      context.fillText(label, this.left - 5, this.top + (row + 0.5) * cell, this.left - 6);
    });
    map.columnLabels.forEach((label, column) => {
      if (!pick(column, focus?.column)) return;
      context.fillStyle = color(focus?.column === column ? 'accent' : 'muted');
      context.save();
      context.translate(this.left + (column + 0.5) * cell, this.top - 5);
      context.textAlign = this.isTurned ? 'left' : 'center';
      if (this.isTurned) context.rotate(-Math.PI / 2);
      context.fillText(label, 0, this.isTurned ? 0 : -4, this.isTurned ? this.top - 6 : cell);
      context.restore();
    });
  }

  drawFocus({ row, column }) {
    const { context, cell } = this;
    context.strokeStyle = color('accent');
    context.lineWidth = 2;
    context.strokeRect(this.left + column * cell - 1, this.top + row * cell - 1, cell + 1, cell + 1);
  }

  /** The cell under a pointer; null beside the map. */
  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - this.top) / this.cell);
    const column = Math.floor((event.clientX - box.left - this.left) / this.cell);
    const inside = row >= 0 && row < this.map.rows && column >= 0 && column < this.map.columns;
    return inside ? { row, column } : null;
  }
}
