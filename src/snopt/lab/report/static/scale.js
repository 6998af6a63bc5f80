// Scales and ticks: pure functions, no document.

// A scale maps data in [low, high] to pixels in [from, to].
function makeScale(low, high, from, to, log) {
  const f = log ? Math.log10 : (v) => v;
  const a = f(low);
  const span = f(high) - a || 1;
  const scale = (v) => from + ((f(v) - a) / span) * (to - from);
  const inverse = (pixel) => {
    const v = a + ((pixel - from) / (to - from)) * span;
    return log ? 10 ** v : v;
  };
  return { scale, inverse, low, high, log };
}

// Steps of 1, 2 or 5 times a power of ten, about `count` of them.
function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
    ticks.push(Number((k * step).toPrecision(12)));
  }
  return ticks;
}

// Powers of ten; between few of them also 2 and 5 times; within less than one, linear ticks.
function logTicks(low, high, count) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const decades = Math.log10(high / low);
  if (decades < 0.8) return linearTicks(low, high, count).filter((v) => v > 0);
  const every = Math.max(1, Math.ceil(decades / count));
  const factors = decades < count / 2.5 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let e = first; e <= last; e += every) {
    for (const k of factors) ticks.push(Number((k * 10 ** e).toPrecision(12)));
  }
  return ticks.filter((v) => v >= low * 0.999 && v <= high * 1.001);
}

function axisTicks(axis, count) {
  return axis.log ? logTicks(axis.low, axis.high, count) : linearTicks(axis.low, axis.high, count);
}

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

// A number as a reader would write it, with at most `digits` significant digits.
function numberText(value, digits = 4) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e-3 && size < 1e6) {
    const text = size >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(digits)));
    return size >= 1e4 ? text.replace(/\B(?=(\d{3})+$)/g, "\u2009") : text.replace("-", "−");
  }
  const [mantissa, exponent] = value.toExponential(Math.min(digits - 1, 2)).split("e");
  const power = [...String(Number(exponent))].map((c) => SUPERSCRIPTS[c] ?? "⁻").join("");
  const factor = String(Number(mantissa));
  return factor === "1" ? `10${power}` : `${factor}·10${power}`;
}

// The smallest and largest of the numbers, stretched to an interval worth drawing.
function extentOf(values, log) {
  let low = Infinity;
  let high = -Infinity;
  for (const v of values) {
    if (v === null || !Number.isFinite(v) || (log && v <= 0)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  if (low > high) return log ? [1, 10] : [0, 1];
  if (low < high) return [low, high];
  const half = Math.abs(low || 1) / 2;
  return log ? [low / 2, high * 2] : [low - half, high + half];
}

// The same with air above and below, so that curves do not touch the frame.
function paddedExtent(values, log) {
  const [low, high] = extentOf(values, log);
  if (log) {
    const air = (high / low) ** 0.05;
    return [low / air, high * air];
  }
  const air = (high - low) * 0.05;
  // No air below 0 or above 1 where the numbers stay on one side: accuracies end there.
  const top = low >= 0 && high <= 1 ? Math.min(high + air, Math.max(high, 1)) : high + air;
  return [low >= 0 && low - air < 0 ? 0 : low - air, top];
}

const MOST_SMOOTH = 30; // Percent of the iterations.

// Means over a centred window of `percent` of the range of the increasing `x`. Every window is
// summed anew: a diverged value would not cancel when it leaves a running sum.
function smoothed(x, values, percent) {
  if (!percent || !values || x.length < 2) return values;
  const half = ((x[x.length - 1] - x[0]) * percent) / 200;
  let [first, end] = [0, 0];
  return values.map((value, k) => {
    while (end < x.length && x[end] <= x[k] + half) end++;
    while (x[first] < x[k] - half) first++;
    const window = values.slice(first, end).filter((v) => v !== null);
    return value === null ? null : window.reduce((sum, v) => sum + v, 0) / window.length;
  });
}
