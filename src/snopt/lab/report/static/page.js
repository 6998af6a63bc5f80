// Puts charts and pictures into the page, and connects the controls that a task's charts share.

function makeToolbar(view, changed, severalSeeds) {
  const set = (name) => (value) => {
    view[name] = value;
    changed();
  };
  const logX = toggleButton("log x", "Logarithmic horizontal axis", view.logX, () => {
    view.logX = !view.logX;
    press(logX, view.logX);
    changed();
  }, { log: "x" });
  const amount = element("output", { textContent: `${view.smooth} %` });
  const smooth = slider("Smoothing, in percent of the iterations", {
    min: 0, max: MOST_SMOOTH, step: 1, value: view.smooth, data: { smooth: "" },
  }, (value) => {
    amount.textContent = `${value} %`;
    set("smooth")(value);
  });
  const parts = [
    choice("axis", "Horizontal axis", [
      ["seconds", "seconds", "Against seconds of training"],
      ["iteration", "iterations", "Against iterations"],
    ], view.axis, set("axis")),
    logX,
  ];
  if (severalSeeds) {
    parts.push(choice("spread", "Bands", [
      ["sd", "± sd", "Bands of one standard deviation over seeds, within their range"],
      ["range", "min–max", "Bands from the lowest to the highest seed"],
      ["none", "no band", "Means only"],
    ], view.spread, set("spread")));
  }
  const title = "Mean over a window of so many percent of the iterations";
  parts.push(element("label", { className: "smooth", title }, ["smoothing", smooth, amount]));
  return element("div", { className: "toolbar", role: "toolbar", ariaLabel: "Curves" }, parts);
}

function makeLegend(task, view, changed) {
  const buttons = task.groups.map((group) => {
    const shown = () => !view.hidden.has(group.label);
    const node = toggleButton("", "Show or hide this curve", shown(), () => {
      if (!view.hidden.delete(group.label)) view.hidden.add(group.label);
      press(node, shown());
      changed();
    }, { legend: group.label });
    node.className = colorClass(group);
    node.append(element("i"), group.label);
    return node;
  });
  return element("div", { className: "legend", role: "group", ariaLabel: "Curves shown" }, buttons);
}

function showTask(task, root, view, moved) {
  const charts = view.charts.map((drawn) => new Chart(task, view, drawn, moved));
  const changed = () => {
    charts.forEach((chart) => chart.draw());
    moved();
  };
  root.replaceChildren();
  if (charts.length) {
    root.append(
      element("div", { className: "controls" }, [
        makeLegend(task, view, changed),
        makeToolbar(view, changed, task.groups.some((group) => group.seeds > 1)),
      ]),
      element("div", { className: "charts" }, charts.map((chart) => chart.root)),
    );
  }
  return { name: task.name, view, charts };
}

function showPictures(task, pictures, root) {
  root.append(...pictures.map((picture) => new FlowPicture(task, picture).root));
}

function makeShare() {
  const told = element("span", { className: "soft", role: "status" });
  const copy = button("Copy link to this view", "The address holds every choice made here", () => {
    const done = navigator.clipboard?.writeText(location.href) ?? Promise.reject();
    done.then(
      () => { told.textContent = "Copied."; },
      () => { told.textContent = "Copy the address of this page: it holds every choice."; },
    );
  }, { copy: "" });
  return element("p", { className: "toolbar" }, [copy, told]);
}

const report = JSON.parse(document.getElementById("report-data").textContent);
const runs = configurations();
window.snoptReport = {};

// Draw what the address says: when the page opens, and when the reader enters another address.
function show() {
  const address = readAddress();
  const picked = (address.get("compare") ?? "").split(".").map(Number);
  const pair = [0, 1].map((k) => (picked[k] in runs ? picked[k] : Math.min(k, runs.length - 1)));
  let compared = address.get("compare") ? pair.join(".") : "";
  const views = report.tasks.map((task, k) => decodeView(task, address.ofTask(k)));
  const moved = () => writeAddress(report.tasks, views, { compare: compared });
  window.snoptReport.tasks = report.tasks.map((task, k) => (
    showTask(task, document.querySelector(`[data-charts="${k}"]`), views[k], moved)));
  if (runs.length < 2) return;
  showSettings(runs, document.querySelector("[data-settings]"), pair, (now) => {
    compared = now.join(".");
    moved();
  });
}

report.tasks.forEach((task, k) => {
  // Films open the task; other pictures follow its table.
  const films = task.pictures.filter(({ kind }) => kind === "paths");
  const stills = task.pictures.filter(({ kind }) => kind !== "paths");
  showPictures(task, films, document.querySelector(`[data-films="${k}"]`));
  showPictures(task, stills, document.querySelector(`[data-pictures="${k}"]`));
  if (task.otherPictures.length) {
    const others = element("div", { className: "pictures" });
    showPictures(task, task.otherPictures, others);
    document.querySelector(`[data-other-pictures="${k}"]`).append(element("details", {}, [
      element("summary", { textContent: "Pictures of the other seeds" }), others,
    ]));
  }
});
if (report.tasks.length) document.querySelector("[data-share]").append(makeShare());
show();
window.addEventListener("hashchange", show);
