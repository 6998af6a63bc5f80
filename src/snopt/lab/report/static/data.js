// The numbers behind a figure: a file to download, and a table for those who cannot see curves.

// Spreadsheets compute what begins like a formula, and labels come from other people's runs.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvText(rows) {
  return rows.map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");
}

function download(name, rows) {
  const file = `${name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "")}.csv`;
  const url = URL.createObjectURL(new Blob([csvText(rows)], { type: "text/csv" }));
  element("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function csvButton(name, rows) {
  const title = "Download the numbers of this figure as CSV";
  return button("CSV", title, () => download(name(), rows()), { csv: "" });
}

// Every point of the curves of one quantity, as recorded: neither smoothed nor thinned further.
function curveRows(task, key) {
  const columns = ["iteration", "seconds", "mean", "below", "above", "low", "high", "count"];
  const rows = [["optimizer", ...columns]];
  for (const { label, seeds, curves } of task.groups) {
    const curve = curves[key];
    if (!curve) continue;
    curve.mean.forEach((mean, k) => {
      const cells = columns.map((name) => curve[name]?.[k]);
      cells[columns.length - 1] ??= seeds;
      rows.push([label, ...cells]);
    });
  }
  return rows;
}

function pictureRows({ kind, points, paths, classes, extent, values }) {
  if (kind === "points") {
    return [["x", "y", "class"], ...points.map((point, k) => [...point, classes[k]])];
  }
  if (kind === "paths") {
    const rows = paths.flatMap((path, k) => path.map((point, i) => [k, i, ...point, classes[k]]));
    return [["path", "position", "x", "y", "class"], ...rows];
  }
  const at = (low, high, k, count) => low + (high - low) * ((k + 0.5) / count);
  const rows = values.flatMap((row, r) => row.map((value, c) => [
    at(extent[0], extent[1], c, row.length), at(extent[2], extent[3], r, values.length), value,
  ]));
  return [["x", "y", "value"], ...rows];
}
