// One chart: the curves of one quantity, drawn as SVG.

const HEIGHT = 280;
const COLORS = 8; // As many as the style sheet has.
const MARKED = 30; // Curves of at most so many points show them.

function colorClass(group) {
  return `color-${group.color % COLORS}${group.color < COLORS ? "" : " again"}`;
}

function spansDecades(task, key) {
  const means = task.groups.flatMap((group) => group.curves[key]?.mean ?? []);
  const [low, high] = extentOf(means, false);
  return low > 0 && high / low > 100;
}

class Chart {
  // `view` holds what the charts of a task share: axis, logX, spread, smooth, hidden; `drawn` the
  // quantity of this one, `key`, and `logY`. `moved` is called when the reader changes it.
  constructor(task, view, drawn, moved) {
    Object.assign(this, { task, view, shown: drawn, moved });
    this.plot = element("div", { className: "plot" });
    this.tip = element("div", { className: "tip", hidden: true, role: "status" });
    this.logButton = toggleButton("log y", "Logarithmic vertical axis", drawn.logY, () => {
      drawn.logY = !drawn.logY;
      this.changed();
    }, { log: "y" });
    this.root = element("figure", { className: "card chart", data: { quantity: drawn.key } }, [
      element("figcaption", {}, [this.makeSelect(), this.logButton]),
      element("div", { className: "stage" }, [this.plot, this.tip]),
      this.makeData(),
    ]);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  get key() {
    return this.shown.key;
  }

  get logY() {
    return this.shown.logY;
  }

  get text() {
    return this.task.quantities.find(({ key }) => key === this.key)?.text ?? this.key;
  }

  changed() {
    this.draw();
    this.moved();
  }

  makeSelect() {
    const select = element("select", { ariaLabel: "Quantity" });
    for (const { key, text } of this.task.quantities) {
      const selected = key === this.key;
      select.append(element("option", { value: key, textContent: text, selected }));
    }
    select.addEventListener("change", () => {
      this.shown.key = this.root.dataset.quantity = select.value;
      this.shown.logY = spansDecades(this.task, this.key);
      this.changed();
    });
    return select;
  }

  // The numbers as a table, filled when it is opened, and as a file.
  makeData() {
    this.table = element("div");
    const name = () => `${this.task.name} ${this.text}`;
    const save = csvButton(name, () => curveRows(this.task, this.key));
    this.details = element("details", { className: "numbers" }, [
      element("summary", {}, ["Table"]), this.table,
    ]);
    this.details.addEventListener("toggle", () => this.fillTable());
    return element("div", { className: "data" }, [this.details, save]);
  }

  fillTable() {
    if (!this.details.open || !this.drawn) return;
    const count = this.view.logX ? 8 : 12;
    const places = axisTicks(this.x, count).filter((v) => v >= this.x.low && v <= this.x.high);
    const rows = places.map((v) => [numberText(v), ...this.drawn.map((curve) => {
      const k = nearest(curve.x, curve.indices, v);
      return this.reaches(curve, v) ? numberText(curve.mean[k]) + this.rangeText(curve, k) : "–";
    })]);
    const columns = [this.axisText(), ...this.drawn.map(({ group }) => group.label)];
    this.table.replaceChildren(makeTable(this.description(), columns, rows));
  }

  listen() {
    const at = (event) => event.clientX - this.plot.getBoundingClientRect().left;
    this.plot.tabIndex = 0;
    // An application, so that screen readers pass the arrow keys on.
    this.plot.setAttribute("role", "application");
    this.plot.setAttribute("aria-roledescription", "chart");
    this.plot.addEventListener("pointermove", (event) => this.point(at(event)));
    this.plot.addEventListener("pointerdown", (event) => this.point(at(event)));
    this.plot.addEventListener("pointerleave", () => this.unpoint());
    this.plot.addEventListener("blur", () => this.unpoint());
    this.plot.addEventListener("keydown", (event) => {
      if (!this.frame) return;
      const { left, right } = this.frame;
      const now = this.pointed ?? left;
      const to = { ArrowLeft: now - 8, ArrowRight: now + 8, Home: left, End: right }[event.key];
      if (event.key === "Escape") this.unpoint();
      if (to === undefined) return;
      event.preventDefault();
      this.point(to);
    });
  }

  // The curves to draw: one per visible group that has the quantity.
  curves() {
    const fits = (value, log) => value !== null && (!log || value > 0);
    return this.task.groups
      .filter((group) => !this.view.hidden.has(group.label) && group.curves[this.key])
      .map((group) => {
        const curve = group.curves[this.key];
        const [low, high] = this.spread(curve);
        const smooth = (values) => smoothed(curve.iteration, values, this.view.smooth);
        const x = curve[this.view.axis];
        const mean = smooth(curve.mean);
        const indices = [...x.keys()]
          .filter((k) => fits(x[k], this.view.logX) && fits(mean[k], this.logY));
        const recorded = { mean: curve.mean, low, high };
        const band = { low: smooth(low), high: smooth(high) };
        return { group, x, mean, count: curve.count, indices, ...band, recorded };
      })
      .filter((drawn) => drawn.indices.length);
  }

  spread(curve) {
    if (!curve.below || this.view.spread === "none") return [];
    return this.view.spread === "range" ? [curve.low, curve.high] : [curve.below, curve.above];
  }

  target() {
    return this.key === this.task.targetQuantity ? this.task.target : null;
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    press(this.logButton, this.logY);
    const drawn = this.curves();
    const xs = drawn.flatMap(({ x, indices }) => indices.map((k) => x[k]));
    // Of what was recorded: smoothing moves curves, not axes.
    const ys = drawn.flatMap(({ recorded: { mean, low, high }, indices }) => indices.flatMap((k) => (
      low ? [mean[k], low[k], high[k]] : [mean[k]])));
    if (this.target() !== null) ys.push(this.target());
    const [xLow, xHigh] = extentOf(this.view.logX ? xs : [0, ...xs], this.view.logX);
    const [yLow, yHigh] = paddedExtent(ys, this.logY);
    const yTicks = axisTicks({ low: yLow, high: yHigh, log: this.logY }, HEIGHT / 42);
    const left = 14 + 7 * Math.max(...yTicks.map((v) => numberText(v).length), 2);
    const frame = { left, right: width - 14, top: 10, bottom: HEIGHT - 40 };
    const x = makeScale(xLow, xHigh, frame.left, frame.right, this.view.logX);
    const y = makeScale(yLow, yHigh, frame.bottom, frame.top, this.logY);
    Object.assign(this, { frame, x, y, drawn });
    const box = { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` };
    const canvas = svg("svg", { ...box, "aria-hidden": true });
    this.drawAxes(canvas, yTicks);
    for (const curve of drawn) this.drawCurve(canvas, curve);
    if (this.target() !== null) this.drawTarget(canvas);
    this.cursor = svg("g", { class: "cursor" }, canvas);
    this.plot.replaceChildren(canvas);
    this.plot.setAttribute("aria-label", `${this.description()}. Arrow keys read the curves.`);
    this.unpoint();
    this.fillTable();
  }

  // The chart in words, for those who do not see it.
  description() {
    const curves = this.drawn.map(({ group, mean, indices }) => (
      `${group.label} from ${numberText(mean[indices[0]])} to ${numberText(mean[indices.at(-1)])}`));
    const unit = this.view.axis === "seconds" ? " s" : " iterations";
    const reached = this.target() === null ? [] : this.drawn
      .filter(({ group }) => group.reached)
      .map(({ group }) => `${group.label} at ${numberText(group.reached[this.view.axis])}${unit}`);
    const target = this.target() === null ? [] : [
      [`target ${numberText(this.target())}`, ...reached].join(", "),
    ];
    return [`${this.text} against ${this.axisText()}`, ...curves, ...target].join("; ");
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
  }

  // The target, and for each curve a diamond at the mean time at which its seeds reached it.
  drawTarget(canvas) {
    const { left, right, top } = this.frame;
    const part = svg("g", { class: "target" }, canvas);
    const at = this.y.scale(this.target());
    svg("line", { x1: left, x2: right, y1: at, y2: at }, part);
    const text = `target ${numberText(this.target())}`;
    svg("text", { x: left + 6, y: at < top + 14 ? at + 16 : at - 6 }, part, text);
    for (const { group } of this.drawn) {
      const reached = group.reached?.[this.view.axis];
      if (reached === undefined || (this.view.logX && reached <= 0)) continue;
      const d = `M${this.x.scale(reached)} ${at - 7}l6 7l-6 7l-6 -7z`;
      svg("path", { d, class: colorClass(group), "data-reached": group.label }, part);
    }
  }

  drawCurve(canvas, { group, x, mean, recorded, count, indices, low, high }) {
    const names = { class: `series ${colorClass(group)}`, "data-series": group.label };
    const part = svg("g", names, canvas);
    const within = (v) => Math.min(Math.max(v, this.y.low), this.y.high);
    const at = (k, v) => `${this.x.scale(x[k]).toFixed(1)},${this.y.scale(within(v)).toFixed(1)}`;
    const line = (places, values, style) => {
      const points = places.map((k) => at(k, values[k]));
      if (points.length > 1) svg("path", { d: `M${points.join("L")}`, class: style }, part);
    };
    if (low && indices.length > 1) {
      const above = indices.map((k) => at(k, high[k]));
      const below = indices.map((k) => at(k, low[k]));
      svg("path", { d: `M${[...above, ...below.reverse()].join("L")}Z`, class: "band" }, part);
    }
    if (this.view.smooth) line(indices, recorded.mean, "raw");
    // Dotted from where a seed has stopped: the mean is then over fewer of them.
    const all = (k) => !count || count[k] === group.seeds;
    const full = indices.filter(all);
    line(full, mean, "line");
    line(indices.filter((k) => !all(k) || k === full.at(-1)), mean, "line fewer");
    if (indices.length > MARKED) return;
    for (const k of indices) {
      svg("circle", { cx: this.x.scale(x[k]), cy: this.y.scale(mean[k]), r: 2.6 }, part);
    }
  }

  // Whether a curve goes as far as a value of the horizontal axis.
  reaches({ x, indices }, value) {
    return value <= x[indices.at(-1)] + (this.x.high - this.x.low) * 0.01;
  }

  rangeText({ low, high }, k) {
    return low ? ` (${numberText(low[k], 3)} to ${numberText(high[k], 3)})` : "";
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
    for (const curve of this.drawn) {
      const { group, x, mean, indices } = curve;
      if (!this.reaches(curve, value)) continue;
      const k = nearest(x, indices, value);
      const [cx, cy] = [this.x.scale(x[k]), this.y.scale(mean[k])];
      svg("circle", { cx, cy, r: 4.5, class: colorClass(group) }, this.cursor);
      rows.push(element("div", { className: colorClass(group), data: { read: group.label } }, [
        element("i"), element("span", { textContent: group.label }),
        element("b", { textContent: numberText(mean[k]) }),
        element("small", { textContent: this.rangeText(curve, k) }),
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
