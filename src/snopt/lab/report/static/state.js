// What the reader has chosen, kept in the address: a link shows the same view.

// What the charts of a task share, and which charts there are.
function defaultView(task) {
  const charts = task.charts.map((key) => ({ key, logY: spansDecades(task, key) }));
  return { axis: "seconds", logX: false, spread: "sd", smooth: 0, hidden: new Set(), charts };
}

// A view as short words. Optimizers and quantities are named by their place in the task.
function encodeView(task, view) {
  const place = ({ key, logY }) => (
    task.quantities.findIndex((quantity) => quantity.key === key) + (logY ? "l" : ""));
  const hidden = task.groups.flatMap(({ label }, k) => (view.hidden.has(label) ? [k] : []));
  return {
    axis: view.axis, x: view.logX ? "log" : "linear", spread: view.spread,
    smooth: String(view.smooth), hide: hidden.join("."), show: view.charts.map(place).join("."),
  };
}

// The view that the words describe; what does not fit the page keeps its default.
function decodeView(task, words) {
  const view = defaultView(task);
  const oneOf = (value, values, otherwise) => (values.includes(value) ? value : otherwise);
  view.axis = oneOf(words.axis, ["seconds", "iteration"], view.axis);
  view.spread = oneOf(words.spread, ["sd", "range", "none"], view.spread);
  view.logX = words.x === "log";
  view.smooth = Math.min(Math.max(Number(words.smooth) || 0, 0), MOST_SMOOTH);
  for (const k of (words.hide || "").split(".")) {
    if (k in task.groups) view.hidden.add(task.groups[k].label);
  }
  (words.show || "").split(".").forEach((word, k) => {
    const found = task.quantities[parseInt(word, 10)];
    if (found && k < view.charts.length) {
      view.charts[k] = { key: found.key, logY: word.endsWith("l") };
    }
  });
  return view;
}

// "axis=iteration" of the task 2 is "2.axis=iteration"; only what differs from the default.
function writeAddress(tasks, views, others) {
  const words = new URLSearchParams();
  tasks.forEach((task, k) => {
    const usual = encodeView(task, defaultView(task));
    for (const [name, value] of Object.entries(encodeView(task, views[k]))) {
      if (value !== usual[name]) words.set(`${k}.${name}`, value);
    }
  });
  for (const [name, value] of Object.entries(others)) if (value) words.set(name, value);
  const hash = words.toString();
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const ofTask = (k) => Object.fromEntries(
    [...words].filter(([name]) => name.startsWith(`${k}.`))
      .map(([name, value]) => [name.slice(`${k}.`.length), value]),
  );
  return { ofTask, get: (name) => words.get(name) };
}
