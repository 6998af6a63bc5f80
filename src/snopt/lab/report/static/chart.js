// One chart: the curves of one quantity, drawn as SVG.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, parent, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  node.textContent = text;
  return node;
}

// Elements are made from properties and text alone: no markup is ever parsed.
function element(name, properties = {}, children = []) {
  const node = document.createElement(name);
  const { data, ...rest } = properties;
  Object.assign(node, rest);
  Object.assign(node.dataset, data || {});
  node.append(...children);
  return node;
}

function toggleButton(text, title, pressed, onClick, data = {}) {
  const button = element("button", { type: "button", title, textContent: text, data });
  button.setAttribute("aria-pressed", String(pressed));
  button.addEventListener("click", onClick);
  return button;
}

const HEIGHT = 280;
const COLORS = 8; // As many as the style sheet has.
const MARKED = 30; // Curves of at most so many points show them.

function colorClass(group) {
  return `color-${group.color % COLORS}${group.color < COLORS ? "" : " again"}`;
}

class Chart {
  // `view` holds what the charts of a task share: axis, logX, spread, hidden.
  constructor(task, view, key) {
    Object.assign(this, { task, view, key, logY: this.spansDecades(task, key) });
    this.plot = element("div", { className: "plot" });
    this.tip = element("div", { className: "tip", hidden: true });
    this.logButton = toggleButton("log y", "Logarithmic vertical axis", this.logY, () => {
      this.logY = !this.logY;
      this.draw();
    }, { log: "y" });
    this.root = element("figure", { className: "card chart", data: { quantity: key } }, [
      element("figcaption", {}, [this.makeSelect(), this.logButton]), this.plot,
    ]);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  spansDecades(task, key) {
    const means = task.groups.flatMap((group) => group.curves[key]?.mean ?? []);
    const [low, high] = extentOf(means, false);
    return low > 0 && high / low > 100;
  }

  makeSelect() {
    const select = element("select", { ariaLabel: "Quantity" });
    for (const { key, text } of this.task.quantities) {
      const selected = key === this.key;
      select.append(element("option", { value: key, textContent: text, selected }));
    }
    select.addEventListener("change", () => {
      this.key = this.root.dataset.quantity = select.value;
      this.logY = this.spansDecades(this.task, this.key);
      this.draw();
    });
    return select;
  }

  listen() {
    const at = (event) => event.clientX - this.plot.getBoundingClientRect().left;
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "img");
    this.plot.addEventListener("pointermove", (event) => this.point(at(event)));
    this.plot.addEventListener("pointerdown", (event) => this.point(at(event)));
    this.plot.addEventListener("pointerleave", () => this.unpoint());
    this.plot.addEventListener("blur", () => this.unpoint());
    this.plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -8, ArrowRight: 8 }[event.key];
      if (!step || !this.frame) return;
      event.preventDefault();
      const { left, right } = this.frame;
      this.point(Math.min(right, Math.max(left, (this.pointed ?? left) + step)));
    });
  }

  // The curves to draw: one per visible group that has the quantity.
  curves() {
    const fits = (value, log) => value !== null && (!log || value > 0);
    return this.task.groups
      .filter((group) => !this.view.hidden.has(group.label) && group.curves[this.key])
      .map((group) => {
        const curve = group.curves[this.key];
        const x = curve[this.view.axis];
        const indices = [...x.keys()]
          .filter((k) => fits(x[k], this.view.logX) && fits(curve.mean[k], this.logY));
        return { group, curve, x, indices, ...this.spread(curve) };
      })
      .filter((drawn) => drawn.indices.length);
  }

  spread(curve) {
    if (!curve.below || this.view.spread === "none") return {};
    if (this.view.spread === "range") return { low: curve.low, high: curve.high };
    return { low: curve.below, high: curve.above };
  }

  target() {
    return this.key === this.task.targetQuantity ? this.task.target : null;
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    this.logButton.setAttribute("aria-pressed", String(this.logY));
    const drawn = this.curves();
    const xs = drawn.flatMap(({ x, indices }) => indices.map((k) => x[k]));
    const ys = drawn.flatMap(({ curve, low, high, indices }) => indices.flatMap((k) => (
      low ? [curve.mean[k], low[k], high[k]] : [curve.mean[k]])));
    if (this.target() !== null) ys.push(this.target());
    const [xLow, xHigh] = extentOf(this.view.logX ? xs : [0, ...xs], this.view.logX);
    const [yLow, yHigh] = paddedExtent(ys, this.logY);
    const yTicks = axisTicks({ low: yLow, high: yHigh, log: this.logY }, HEIGHT / 42);
    const left = 14 + 7 * Math.max(...yTicks.map((v) => numberText(v).length), 2);
    const frame = { left, right: width - 14, top: 10, bottom: HEIGHT - 40 };
    const x = makeScale(xLow, xHigh, frame.left, frame.right, this.view.logX);
    const y = makeScale(yLow, yHigh, frame.bottom, frame.top, this.logY);
    Object.assign(this, { frame, x, y, drawn });
    const canvas = svg("svg", { width, height: HEIGHT, "aria-hidden": true });
    this.drawAxes(canvas, yTicks);
    for (const curve of drawn) this.drawCurve(canvas, curve);
    this.cursor = svg("g", { class: "cursor" }, canvas);
    this.plot.replaceChildren(canvas, this.tip);
    this.plot.setAttribute("aria-label", `${this.key} against ${this.axisText()}`);
    this.unpoint();
  }

  axisText() {
    return this.view.axis === "seconds" ? "seconds of training" : "iterations";
  }

  drawAxes(canvas, yTicks) {
    const { left, right, top, bottom } = this.frame;
    const grid = svg("g", { class: "axes" }, canvas);
    for (const v of yTicks) {
      const at = this.y.scale(v);
      svg("line", { x1: left, x2: right, y1: at, y2: at }, grid);
      svg("text", { x: left - 8, y: at + 4, class: "y", "data-tick": "y" }, grid, numberText(v));
    }
    let free = -Infinity; // Where the previous label ends: labels never overlap.
    for (const v of axisTicks(this.x, (right - left) / 64)) {
      const at = this.x.scale(v);
      const half = numberText(v).length * 3.6;
      svg("line", { x1: at, x2: at, y1: top, y2: bottom, class: "faint" }, grid);
      if (at - half < free + 6 || at + half > right + 14) continue;
      free = at + half;
      svg("text", { x: at, y: bottom + 17, class: "x", "data-tick": "x" }, grid, numberText(v));
    }
    svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "base" }, grid);
    svg("text", { x: (left + right) / 2, y: bottom + 35, class: "x" }, grid, this.axisText());
    if (this.target() === null) return;
    const at = this.y.scale(this.target());
    svg("line", { x1: left, x2: right, y1: at, y2: at, class: "target" }, grid);
    const above = at < top + 14 ? at + 14 : at - 5;
    const text = `target ${numberText(this.target())}`;
    svg("text", { x: left + 6, y: above, class: "target" }, grid, text);
  }

  drawCurve(canvas, { group, curve, x, indices, low, high }) {
    const names = { class: `series ${colorClass(group)}`, "data-series": group.label };
    const part = svg("g", names, canvas);
    const at = (k, v) => `${this.x.scale(x[k]).toFixed(1)},${this.y.scale(v).toFixed(1)}`;
    if (low && indices.length > 1) {
      const floor = (v) => Math.max(v, this.y.low);
      const above = indices.map((k) => at(k, floor(high[k])));
      const below = indices.map((k) => at(k, floor(low[k])));
      svg("path", { d: `M${[...above, ...below.reverse()].join("L")}Z`, class: "band" }, part);
    }
    // Dashed from where a seed has stopped: the mean is then over fewer of them.
    const all = (k) => !curve.count || curve.count[k] === group.seeds;
    const full = indices.filter(all);
    const rest = indices.filter((k) => !all(k) || k === full[full.length - 1]);
    for (const [stretch, style] of [[full, "line"], [rest, "line fewer"]]) {
      const points = stretch.map((k) => at(k, curve.mean[k]));
      if (points.length > 1) svg("path", { d: `M${points.join("L")}`, class: style }, part);
    }
    if (indices.length > MARKED) return;
    for (const k of indices) {
      svg("circle", { cx: this.x.scale(x[k]), cy: this.y.scale(curve.mean[k]), r: 2.6 }, part);
    }
  }

  // Show what the curves are at a horizontal position.
  point(pixel) {
    if (!this.frame || !this.drawn.length) return;
    const { left, right, top, bottom } = this.frame;
    this.pointed = Math.min(right, Math.max(left, pixel));
    const value = this.x.inverse(this.pointed);
    this.cursor.replaceChildren();
    svg("line", { x1: this.pointed, x2: this.pointed, y1: top, y2: bottom }, this.cursor);
    const inSeconds = this.view.axis === "seconds";
    const where = inSeconds ? `${numberText(value)} s` : `iteration ${Math.round(value)}`;
    const rows = [element("strong", { textContent: where })];
    for (const { group, curve, x, indices, low, high } of this.drawn) {
      const k = nearest(x, indices, value);
      if (value > x[indices[indices.length - 1]] + (this.x.high - this.x.low) * 0.01) continue;
      const [cx, cy] = [this.x.scale(x[k]), this.y.scale(curve.mean[k])];
      svg("circle", { cx, cy, r: 4.5, class: colorClass(group) }, this.cursor);
      const range = low ? ` (${numberText(low[k], 3)} to ${numberText(high[k], 3)})` : "";
      rows.push(element("div", { className: colorClass(group), data: { read: group.label } }, [
        element("i"), element("span", { textContent: group.label }),
        element("b", { textContent: numberText(curve.mean[k]) }),
        element("small", { textContent: range }),
      ]));
    }
    this.tip.replaceChildren(...rows);
    this.tip.hidden = false;
    const before = this.pointed > (left + right) / 2;
    const room = this.plot.clientWidth - this.tip.offsetWidth;
    const offset = before ? this.pointed - this.tip.offsetWidth - 14 : this.pointed + 14;
    this.tip.style.left = `${Math.max(0, Math.min(offset, room))}px`;
  }

  unpoint() {
    this.pointed = null;
    this.tip.hidden = true;
    this.cursor?.replaceChildren();
  }
}

// Index, among `indices`, of the entry of the increasing `x` that is nearest to `value`.
function nearest(x, indices, value) {
  let [low, high] = [0, indices.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[indices[middle]] < value) low = middle;
    else high = middle;
  }
  const [before, after] = [indices[low], indices[high]];
  return value - x[before] <= x[after] - value ? before : after;
}
