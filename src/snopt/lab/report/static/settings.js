// The settings of two runs side by side: only what differs.

// {"train": {"seed": 1}} as {"train.seed": "1"}.
function flatten(value, name = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    return { [name]: typeof value === "string" ? value : JSON.stringify(value) };
  }
  return Object.assign({}, ...Object.entries(value).map(([key, inner]) => (
    flatten(inner, name ? `${name}.${key}` : key))));
}

function differences(a, b) {
  // Every run has a name of its own, `run`, which is no setting.
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  names.delete("run");
  // A configuration repeats some settings of the experiment in it.
  const repeated = (name) => {
    const outer = name.replace(/^experiment\./, "");
    return outer !== name && a[outer] === a[name] && b[outer] === b[name];
  };
  return [...names].filter((name) => a[name] !== b[name] && !repeated(name))
    .map((name) => [name, a[name] ?? "–", b[name] ?? "–"]);
}

// The configurations that are on the page, by the name of their run.
function configurations() {
  return [...document.querySelectorAll("[data-run]")].map((node) => {
    const text = node.querySelector("[data-config]")?.textContent;
    return { name: node.dataset.run, settings: text ? flatten(JSON.parse(text)) : {} };
  });
}

// `picked` are the places of the two runs; `onPick` is called with new ones.
function showSettings(runs, root, picked, onPick) {
  const result = element("div", { className: "card tabled", role: "status", data: { differing: "" } });
  const select = (which) => {
    const node = element("select", { ariaLabel: `${which ? "Second" : "First"} run to compare` },
      runs.map(({ name }, k) => (
        element("option", { value: k, textContent: name, selected: k === picked[which] }))));
    node.addEventListener("change", () => {
      picked[which] = Number(node.value);
      show();
      onPick(picked);
    });
    return node;
  };
  const show = () => {
    const [a, b] = picked.map((k) => runs[k]);
    const rows = differences(a.settings, b.settings);
    result.replaceChildren(rows.length
      ? makeTable("Settings that differ", ["setting", a.name, b.name], rows)
      : element("p", { className: "caption", textContent: "These runs have the same settings." }));
    result.querySelector("table")?.classList.add("text");
  };
  show();
  root.replaceChildren(
    element("h3", { textContent: "Settings that differ between two runs" }),
    element("div", { className: "toolbar pair" }, [select(0), "and", select(1)]),
    result,
  );
}
