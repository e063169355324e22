// Numbers as JSON has them, and as a reader wants them.

const SPECIAL = { NaN: NaN, Infinity: Infinity, '-Infinity': -Infinity };

/** A number of the results, of which those that are not finite are strings. */
function numberOf(value) {
  return typeof value === 'string' ? SPECIAL[value] : value;
}

/** Four significant digits. */
function shortNumber(value) {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value).replace('-', '−');
  const text = size >= 1e-4 && size < 1e6
    ? String(Number(value.toPrecision(4)))
    : value.toExponential(3).replace(/\.?0+e/, 'e').replace('e+', 'e');
  return text.replaceAll('-', '−');
}

function groupedNumber(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ',').replace('-', '−');
}

function smallest(values) {
  return values.reduce((least, value) => Math.min(least, value), Infinity);
}
function largest(values) {
  return values.reduce((most, value) => Math.max(most, value), -Infinity);
}
