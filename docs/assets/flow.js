// The film of the home page: samples of a learned flow, from the normal density to the data and
// back, over the density at each time. docs/_extensions/flow.py writes the numbers.
(() => {
  const FORWARD = 4200, REST = 1800, BACK = 2200, PAUSE = 700; // milliseconds
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  const read = (film) => ({
    ...film,
    positions: new Int16Array(bytes(film.positions).buffer),
    moons: bytes(film.moons),
    density: bytes(film.density),
  });

  /** The film's time, 0 (normal) to 1 (data), at a moment of the loop. */
  const phase = (moment) => {
    const ease = (s) => s * s * (3 - 2 * s);
    let m = moment % (FORWARD + REST + BACK + PAUSE);
    if (m < FORWARD) return ease(m / FORWARD);
    if ((m -= FORWARD) < REST) return 1;
    if ((m -= REST) < BACK) return 1 - ease(m / BACK);
    return 0;
  };

  const color = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

  /** The density of one frame as a picture in one colour. */
  const cloud = (film, frame, rgb) => {
    const { rows, columns, density } = film;
    const small = document.createElement("canvas");
    [small.width, small.height] = [columns, rows];
    const pen = small.getContext("2d");
    const image = pen.createImageData(columns, rows);
    const start = frame * rows * columns;
    for (let i = 0; i < rows * columns; i++)
      image.data.set([...rgb, 0.34 * density[start + i]], 4 * i);
    pen.putImageData(image, 0, 0);
    return small;
  };

  const play = (canvas, film) => {
    const pen = canvas.getContext("2d");
    let scheme, clouds, ink;
    const paint = () => {
      scheme = document.body.dataset.mdColorScheme;
      ink = ["--flow-0", "--flow-1"].map(color);
      const rgb = color("--flow-cloud").split(" ").map(Number);
      clouds = Array.from({ length: film.frames }, (_, k) => cloud(film, k, rgb));
    };
    const at = (time, i) => {
      const place = Math.min(Math.max(time, 0), 1) * (film.frames - 1);
      const k = Math.min(Math.floor(place), film.frames - 2), s = place - k;
      const p = 2 * (k * film.samples + i), q = p + 2 * film.samples;
      const mix = (j) => ((1 - s) * film.positions[p + j] + s * film.positions[q + j]) / 16384;
      return [(mix(0) + 1) / 2 * canvas.width, (1 - mix(1)) / 2 * canvas.height];
    };
    const draw = (time) => {
      if (scheme !== document.body.dataset.mdColorScheme) paint();
      pen.clearRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(clouds[Math.round(time * (film.frames - 1))], 0, 0, canvas.width, canvas.height);
      const size = canvas.width / 300;
      pen.lineWidth = 0.7 * size;
      for (let i = 0; i < film.samples; i++) {
        pen.strokeStyle = pen.fillStyle = ink[film.moons[i]];
        pen.globalAlpha = 0.28;
        pen.beginPath();
        for (let step = 0; step <= 5; step++) pen.lineTo(...at(time - 0.16 * (1 - step / 5), i));
        pen.stroke();
        pen.globalAlpha = 0.9;
        pen.beginPath();
        pen.arc(...at(time, i), size, 0, 2 * Math.PI);
        pen.fill();
      }
      pen.globalAlpha = 1;
    };
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    const began = performance.now();
    const tick = (now) => {
      if (!canvas.isConnected) return;
      draw(still.matches ? 1 : phase(now - began));
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  };

  const start = () => {
    const canvas = document.querySelector("canvas[data-flow]");
    if (!canvas || !window.flowFilm) return;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    play(canvas, read(window.flowFilm));
  };
  if (window.document$) window.document$.subscribe(start);
  else start();
})();
