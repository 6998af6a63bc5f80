// Elements are made from properties and text only: no markup is ever parsed.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, parent, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  node.textContent = text;
  return node;
}

function element(name, properties = {}, children = []) {
  const node = document.createElement(name);
  const { data, role, ariaLabel, ...rest } = properties;
  Object.assign(node, rest);
  Object.assign(node.dataset, data || {});
  if (role) node.setAttribute("role", role);
  if (ariaLabel) node.setAttribute("aria-label", ariaLabel);
  node.append(...children);
  return node;
}

function button(text, title, onClick, data = {}) {
  const node = element("button", { type: "button", title, textContent: text, data });
  node.addEventListener("click", onClick);
  return node;
}

function press(node, pressed) {
  node.setAttribute("aria-pressed", String(pressed));
  return node;
}

function toggleButton(text, title, pressed, onClick, data = {}) {
  return press(button(text, title, onClick, data), pressed);
}

// Buttons of which one is pressed.
function choice(name, label, options, current, onPick) {
  const pick = (value) => {
    for (const node of buttons) press(node, node.dataset[name] === value);
    onPick(value);
  };
  const buttons = options.map(([value, text, title]) => (
    toggleButton(text, title, value === current, () => pick(value), { [name]: value })
  ));
  return element("div", { className: "choice", role: "group", ariaLabel: label }, buttons);
}

function slider(label, properties, onInput) {
  const input = element("input", { type: "range", ariaLabel: label, ...properties });
  input.addEventListener("input", () => onInput(Number(input.value)));
  return input;
}

// A table with a heading per column and per row, and a name for screen readers.
function makeTable(name, columns, rows) {
  const heading = (scope) => (text) => element("th", { scope, textContent: text });
  const body = rows.map(([first, ...rest]) => element("tr", {}, [
    heading("row")(first), ...rest.map((text) => element("td", { textContent: text })),
  ]));
  const table = element("table", { ariaLabel: name }, [
    element("thead", {}, [element("tr", {}, columns.map(heading("col")))]),
    element("tbody", {}, body),
  ]);
  const scroll = { className: "scroll", tabIndex: 0, role: "region", ariaLabel: name };
  return element("div", scroll, [table]);
}
