// Pictures of states: points, paths over time, densities on a grid; drawn on a canvas.

const SIDE = 260;
const FILM = 5000; // Milliseconds from start to end.
const CLASSES = 10; // Colours of classes in the style sheet; none is an optimizer's.
// Dark to light through blue and green: the order survives in grey and for every eye.
const DENSITY = [[18, 18, 44], [28, 62, 116], [22, 118, 132], [94, 174, 98], [246, 226, 92]];

class FlowPicture {
  constructor(task, picture) {
    this.picture = picture;
    this.time = 1;
    const name = `${task.name} ${picture.label} ${picture.title || picture.kind}`;
    this.canvas = element("canvas", { ariaLabel: this.description(), role: "img" });
    const parts = [this.canvas, element("figcaption", {}, [
      element("span", {}, [element("b", { textContent: picture.label }), ` ${picture.title}`]),
      csvButton(() => name, () => pictureRows(picture)),
    ])];
    if (picture.kind === "paths") parts.splice(1, 0, this.makeSlider());
    if (picture.classes.length) parts.push(this.makeLegend());
    const data = { picture: picture.kind };
    this.root = element("figure", { className: "card picture", data }, parts);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    for (const media of ["(prefers-color-scheme: dark)", "print"]) {
      matchMedia(media).addEventListener("change", () => this.draw());
    }
  }

  makeLegend() {
    const classes = [...new Set(this.picture.classes)].sort((a, b) => a - b);
    return element("div", { className: "classes" }, classes.map((k) => (
      element("span", { className: `class-${classIndex(k)}` }, [element("i"), `class ${k}`])
    )));
  }

  // The picture in words, for those who do not see it.
  description() {
    const { kind, label, title, points, paths, classes, values, frames } = this.picture;
    const count = {
      points: `${points.length} points`,
      paths: `${paths.length} paths over time${frames.length ? " over their density" : ""}`,
      grid: `density on ${values.length} by ${values[0]?.length} cells`,
    }[kind];
    const sorts = new Set(classes).size;
    return `${label} ${title}: ${count}${sorts ? ` of ${sorts} classes` : ""}`;
  }

  makeSlider() {
    const range = { min: 0, max: 1, step: 0.01, value: 1 };
    this.slider = slider("Time", range, (value) => {
      this.began = null;
      this.time = value;
      this.draw();
    });
    const play = button("play", "Play from start to end", () => this.play(), { play: "" });
    this.playWhenSeen();
    return element("div", { className: "time" }, [play, "start", this.slider, "end"]);
  }

  // Once, unless the reader prefers pages that stand still.
  playWhenSeen() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const seen = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) return;
      seen.disconnect();
      this.play();
    });
    seen.observe(this.canvas);
  }

  play() {
    this.began = performance.now();
    const began = this.began;
    const tick = (now) => {
      if (this.began !== began) return; // Played again, or moved by hand.
      this.time = Math.min(Math.max(now - began, 0) / FILM, 1);
      this.slider.value = this.time;
      this.draw();
      if (this.time < 1) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const side = this.canvas.clientWidth || SIDE;
    this.canvas.width = this.canvas.height = Math.round(side * ratio);
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this[this.picture.kind](pen, side);
  }

  color(index) {
    return getComputedStyle(this.canvas).getPropertyValue(`--k${classIndex(index)}`).trim();
  }

  // Both directions on one scale, centred.
  frame(points, side) {
    const [left, right] = extentOf(points.map((p) => p[0]), false);
    const [bottom, top] = extentOf(points.map((p) => p[1]), false);
    const unit = (side - 24) / Math.max(right - left, top - bottom);
    const [middleX, middleY] = [(left + right) / 2, (bottom + top) / 2];
    return ([x, y]) => [side / 2 + (x - middleX) * unit, side / 2 - (y - middleY) * unit];
  }

  points(pen, side) {
    const { points, classes } = this.picture;
    const place = this.frame(points, side);
    points.forEach((point, k) => this.dot(pen, place(point), classes[k] ?? 0, 2.2));
  }

  paths(pen, side) {
    const { paths, classes, frames, extent } = this.picture;
    const [left, right, bottom, top] = extent;
    const corners = frames.length ? [[left, bottom], [right, top]] : [];
    const place = this.frame([...paths.flat(), ...corners], side);
    if (frames.length) this.cloud(pen, place);
    const heads = paths.map((path) => {
      const reached = this.time * (path.length - 1);
      const k = Math.min(Math.floor(reached), Math.max(path.length - 2, 0));
      const [a, b] = [path[k], path[Math.min(k + 1, path.length - 1)]];
      const head = [0, 1].map((i) => a[i] + (reached - k) * (b[i] - a[i]));
      return { trail: [...path.slice(0, k + 1), head].map(place), head: place(head) };
    });
    pen.lineWidth = 1;
    pen.globalAlpha = paths.length > 100 ? 0.25 : 0.5;
    heads.forEach(({ trail }, i) => {
      pen.strokeStyle = this.color(classes[i] ?? 0);
      pen.beginPath();
      trail.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.stroke();
    });
    const radius = paths.length > 100 ? 1.7 : 2.4;
    heads.forEach(({ head }, i) => this.dot(pen, head, classes[i] ?? 0, radius));
  }

  // The density at this time, in the colour of the page.
  cloud(pen, place) {
    const { frames, extent } = this.picture;
    const rows = frames[Math.round(this.time * (frames.length - 1))];
    const [[x0, y0], [x1, y1]] = [place([extent[0], extent[3]]), place([extent[1], extent[2]])];
    const color = getComputedStyle(this.canvas).getPropertyValue("--accent");
    const rgb = color.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
    pen.drawImage(cellImage(rows, (value) => [...rgb, 0.7 * value]), x0, y0, x1 - x0, y1 - y0);
  }

  dot(pen, [x, y], index, radius) {
    pen.globalAlpha = 0.9;
    pen.fillStyle = this.color(index);
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
  }

  grid(pen, side) {
    const { values, extent } = this.picture;
    const [low, high] = extentOf(values.flat(), false);
    const small = cellImage(values, (value) => densityColor((value - low) / (high - low)));
    const aspect = (extent[1] - extent[0]) / (extent[3] - extent[2]);
    const [width, height] = aspect > 1 ? [side, side / aspect] : [side * aspect, side];
    pen.drawImage(small, (side - width) / 2, (side - height) / 2, width, height);
  }
}

// A pixel per cell. The first row is the lowest; images begin at the top.
function cellImage(rows, color) {
  const [height, width] = [rows.length, rows[0].length];
  const cells = new ImageData(width, height);
  rows.forEach((row, r) => row.forEach((value, c) => {
    cells.data.set(color(value), 4 * ((height - 1 - r) * width + c));
  }));
  const image = element("canvas", { width, height });
  image.getContext("2d").putImageData(cells, 0, 0);
  return image;
}

function classIndex(k) {
  return ((k % CLASSES) + CLASSES) % CLASSES;
}

function densityColor(value) {
  const place = Math.min(Math.max(value, 0), 1) * (DENSITY.length - 1);
  const k = Math.min(Math.floor(place), DENSITY.length - 2);
  return [...DENSITY[k].map((from, i) => from + (place - k) * (DENSITY[k + 1][i] - from)), 255];
}
