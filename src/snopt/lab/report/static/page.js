// Puts charts and pictures into the page, and wires the controls that a task's charts share.

function choice(name, options, current, onPick) {
  const pick = (value) => {
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(button.dataset[name] === value));
    }
    onPick(value);
  };
  const buttons = options.map(([value, text, title]) => (
    toggleButton(text, title, value === current, () => pick(value), { [name]: value })
  ));
  const group = element("div", { className: "choice" }, buttons);
  group.setAttribute("role", "group");
  return group;
}

function makeToolbar(view, redraw, severalSeeds) {
  const set = (name) => (value) => {
    view[name] = value;
    redraw();
  };
  const logX = toggleButton("log x", "Logarithmic horizontal axis", view.logX, () => {
    view.logX = !view.logX;
    logX.setAttribute("aria-pressed", String(view.logX));
    redraw();
  }, { log: "x" });
  const parts = [
    choice("axis", [
      ["seconds", "seconds", "Against seconds of training"],
      ["iteration", "iterations", "Against iterations"],
    ], view.axis, set("axis")),
    logX,
  ];
  if (severalSeeds) {
    parts.push(choice("spread", [
      ["sd", "± sd", "Bands of one standard deviation over seeds, within their range"],
      ["range", "min–max", "Bands from the lowest to the highest seed"],
      ["none", "no band", "Means alone"],
    ], view.spread, set("spread")));
  }
  return element("div", { className: "toolbar" }, parts);
}

function makeLegend(task, view, redraw) {
  return element("div", { className: "legend" }, task.groups.map((group) => {
    const button = toggleButton("", "Show or hide this curve", true, () => {
      if (!view.hidden.delete(group.label)) view.hidden.add(group.label);
      button.setAttribute("aria-pressed", String(!view.hidden.has(group.label)));
      redraw();
    }, { legend: group.label });
    button.className = colorClass(group);
    button.append(element("i"), group.label);
    return button;
  }));
}

function showTask(task, root) {
  const view = { axis: "seconds", logX: false, spread: "sd", hidden: new Set() };
  const charts = task.charts.map((key) => new Chart(task, view, key));
  const redraw = () => charts.forEach((chart) => chart.draw());
  if (charts.length) {
    root.append(
      element("div", { className: "controls" }, [
        makeLegend(task, view, redraw),
        makeToolbar(view, redraw, task.groups.some((group) => group.seeds > 1)),
      ]),
      element("div", { className: "charts" }, charts.map((chart) => chart.root)),
    );
  }
  return { name: task.name, view, charts };
}

function showPictures(pictures, root) {
  root.append(...pictures.map((picture) => new FlowPicture(picture).root));
}

const report = JSON.parse(document.getElementById("report-data").textContent);
const shown = report.tasks.map((task, k) => {
  showPictures(task.pictures, document.querySelector(`[data-pictures="${k}"]`));
  showPictures(task.otherPictures, document.querySelector(`[data-other-pictures="${k}"]`));
  return showTask(task, document.querySelector(`[data-charts="${k}"]`));
});
window.snoptReport = { tasks: shown };
