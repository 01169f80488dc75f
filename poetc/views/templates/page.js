"use strict";
// What the page does: draws the pictures from the data, fills the tables, and shows the tensor that is picked in all of
// them.
const data = JSON.parse(document.getElementById("data").textContent);
const NONE = -1;
const bytes = (n) => n.toLocaleString("en") + " B";
// As poetc.units has them, in the report and in the rest of the page.
const scaled = (value, least, ...units) => {
  const [unit, size] = units.find(([, size]) => value >= size) ?? [least, 1];
  return (value / size).toFixed(unit === least ? 0 : 3) + " " + unit;
};
const time = (ns) => scaled(ns, "ns", ["s", 1e9], ["ms", 1e6], ["us", 1e3]);
const energy = (nj) => scaled(nj, "nJ", ["J", 1e9], ["mJ", 1e6], ["uJ", 1e3]);
const tensors = data.tensors.map(([name, kind, type, source], tensor) => ({ tensor, name, kind: kind.replace("_", " "), type, source }));
const lives = data.lives.map(([tensor, begins, size, offset, t0, t1, s0, s1]) => ({
  ...tensors[tensor], begins, bytes: size, size: bytes(size), low: offset, high: offset + size, t0, t1, s0, s1,
  from: time(t0), to: time(t1),
}));
const blocks = data.blocks.map(([life, low, t0, t1, s0, s1]) => ({ ...lives[life], low, high: low + lives[life].bytes, t0, t1, s0, s1 }));
const moves = data.moves.map(([tensor, direction, size, t0, t1, nj, stall, step]) => ({
  ...tensors[tensor], lane: "page-" + direction + "s", what: "page-" + direction + " of " + tensors[tensor].name, uses: [tensor],
  size: bytes(size), t0, t1, s0: step, s1: step + 1, took: time(t1 - t0), energy: energy(nj), stall: time(stall),
}));
const percent = (part, whole) => ((100 * part) / Math.max(1, whole)).toFixed(1) + " %";
const runs = data.runs.map(([kernel, source, again, t0, t1, nj, step, reads, writes, tiles]) => {
  const [loops, read, write, slices] = tiles ?? ["", 0, 0, []], whole = t1 - t0, lane = again ? "recomputed" : "kernels";
  return {
    kernel, source, tensor: writes[0] ?? NONE, lane, look: tiles ? "in tiles" : lane, what: kernel, uses: [...reads, ...writes], writes, t0, t1,
    s0: step, s1: step + 1, took: time(whole), energy: energy(nj), nj, again, loops, read, write, slices,
    shares: tiles ? "computing " + percent(whole - read - write, whole) + ", reading " + percent(read, whole) + ", writing " + percent(write, whole) : undefined,
    tiles: tiles ? loops : undefined,
  };
});
// What a kernel in tiles moves is shown together: what it reads at its beginning, what it writes at its end.
const sliced = (run, direction, t0, t1) => {
  const own = run.slices.filter(([, to]) => to === direction);
  return t1 <= t0 ? [] : [{
    tensor: own.length ? own[0][0] : NONE, lane: "page-" + direction + "s", what: "slices of " + run.kernel, uses: own.map(([tensor]) => tensor), t0, t1,
    s0: run.s0, s1: run.s1, took: time(t1 - t0), source: run.source,
    size: own.map(([tensor, , count, size]) => tensors[tensor].name + ": " + bytes(size) + " in " + count.toLocaleString("en")).join("; "),
  }];
};
const slices = runs.flatMap((run) => [...sliced(run, "in", run.t0, run.t0 + run.read), ...sliced(run, "out", run.t1 - run.write, run.t1)]);
// A stall lies between two steps: on the axis of steps it has no width.
const stalls = data.stalls.map(([tensor, direction, t0, t1]) => ({
  ...tensors[tensor], lane: "stalls", what: "wait for the page-" + direction + " of " + tensors[tensor].name, uses: [tensor],
  t0, t1, s0: 0, s1: 0, took: time(t1 - t0),
}));
let picked = NONE, axis = "time", view = null;

const kinds = data.kinds.map((kind) => kind.replace("_", " "));
const colours = ["#4c78a8", "#9ecae9", "#f58518", "#e45756", "#54a24b", "#b279a2", "#bab0ac", "#9d755d"];
const shown = kinds.flatMap((kind, at) => (lives.some((life) => life.kind === kind) ? [at] : []));
const lanes = ["kernels", "recomputed", "stalls", "page-ins", "page-outs"];

function spec(width) {
  // t: nanoseconds, in milliseconds on the axis.
  const along = [
    { calculate: "axis == 'time' ? datum.t0 / 1e6 : datum.s0", as: "x0" },
    { calculate: "axis == 'time' ? datum.t1 / 1e6 : datum.s1", as: "x1" },
    { filter: "datum.x1 > datum.x0" },
  ];
  const x = { field: "x0", type: "quantitative", title: axis === "time" ? "ms" : "steps", scale: { nice: false }, axis: { grid: false } };
  const tensorTips = [["name", "tensor"], ["kind"], ["size", "bytes"], ["type"], ["source", "from"], ["begins", "put there by"], ["from", "live from"], ["to", "until"]];
  const tips = (list) => list.map(([field, title]) => ({ field, type: "nominal", title: title ?? field }));
  const isPicked = "picked < 0 || datum.tensor == picked";
  const memory = (name, title, values) => ({
    name, width, height: 260, title,
    data: { values }, transform: along,
    mark: { type: "rect", cursor: "pointer", strokeWidth: 0.4 },
    encoding: {
      x, x2: { field: "x1" },
      y: { field: "low", type: "quantitative", title: "bytes", scale: { domain: [0, data.arena], nice: false }, axis: { format: "~s" } }, y2: { field: "high" },
      color: { field: "kind", type: "nominal", title: "kind", scale: { domain: shown.map((at) => kinds[at]), range: shown.map((at) => colours[at]) }, ...(name === "arena" ? { legend: null } : {}) },
      opacity: { condition: { test: isPicked, value: 1 }, value: 0.15 },
      stroke: { value: "currentColor" },
      tooltip: tips(tensorTips),
    },
  });
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    background: null,
    params: [
      { name: "picked", value: picked },
      { name: "axis", value: axis },
      { name: "along", select: { type: "interval", encodings: ["x"] }, bind: "scales", views: ["memory", "arena", "timeline"] },
    ],
    vconcat: [
      memory("memory", "Live bytes, stacked", blocks),
      memory("arena", "Arena: where each buffer lies", lives),
      {
        name: "timeline", width, height: 130, title: "Timeline",
        data: { values: [...runs, ...moves, ...slices, ...stalls] }, transform: [{ calculate: "datum.look || datum.lane", as: "look" }, ...along],
        mark: { type: "rect", cursor: "pointer", strokeWidth: 0.4 },
        encoding: {
          x, x2: { field: "x1" },
          y: { field: "lane", type: "nominal", title: null, sort: lanes, scale: { domain: lanes } },
          color: { field: "look", type: "nominal", scale: { domain: [...lanes, "in tiles"], range: ["#4c78a8", "#f58518", "#e45756", "#54a24b", "#b279a2", "#72b7b2"] }, legend: null },
          opacity: { condition: { test: "picked < 0 || indexof(datum.uses, picked) >= 0", value: 1 }, value: 0.15 },
          stroke: { value: "currentColor" },
          tooltip: tips([["what"], ["took"], ["energy"], ["tiles", "in tiles"], ["shares", "of the time"], ["stall", "computing waits"], ["size", "bytes"], ["source", "from"]]),
        },
      },
    ],
    resolve: { scale: { color: "independent", x: "shared" } },
    config: {
      view: { stroke: null },
      axis: { labelColor: "currentColor", titleColor: "currentColor", domainColor: "currentColor", tickColor: "currentColor", gridOpacity: 0.15 },
      axisY: { minExtent: 72 },
      legend: { labelColor: "currentColor", titleColor: "currentColor", orient: "right" },
      title: { color: "currentColor", anchor: "start", fontWeight: "normal" },
    },
  };
}

async function draw() {
  const room = document.getElementById("picture").clientWidth;
  const result = await vegaEmbed("#picture", spec(Math.max(240, room - 240)), { renderer: "svg", actions: false });
  view = result.view;
  view.addEventListener("click", (event, item) => pick(item && item.datum && item.datum.tensor !== undefined ? item.datum.tensor : NONE));
  document.body.dataset.drawn = axis;
}

function pick(tensor) {
  picked = tensor;
  if (view) view.signal("picked", picked).runAsync();
  for (const row of document.querySelectorAll("tr[data-uses]")) row.classList.toggle("picked", JSON.parse(row.dataset.uses).includes(picked));
  for (const area of document.querySelectorAll(".scroll")) {
    const row = area.querySelector("tr.picked");
    if (row && !area.contains(document.activeElement)) area.scrollTop = row.offsetTop - 60;
  }
  document.getElementById("life").textContent = picked === NONE ? "" : story(picked);
}

// The life of a tensor, a line for each thing that happens to it.
function story(tensor) {
  const { name, kind, type, source } = tensors[tensor];
  const found = [];
  for (const life of lives) if (life.tensor === tensor) found.push([life.t0, life.s0, life.size + " at offset " + life.low.toLocaleString("en") + ", put there by " + life.begins + ", until " + life.to]);
  for (const move of moves) if (move.tensor === tensor) found.push([move.t0, move.s0, move.what + ", " + move.took + ", " + move.energy]);
  for (const run of runs) if (run.uses.includes(tensor)) {
    const moved = run.slices.filter(([of]) => of === tensor).map(([, , count, size]) => ", in tiles: " + bytes(size) + " in " + count.toLocaleString("en") + " slices");
    found.push([run.t0, run.s0, (run.writes.includes(tensor) ? (run.again ? "recomputed by " : "computed by ") : "read by ") + run.kernel + moved.join("")]);
  }
  found.sort((a, b) => a[1] - b[1] || a[0] - b[0]);
  return [name + ": " + kind + ", " + type + (source ? ", from " + source : ""), ...found.map(([at, , what]) => time(at) + "  " + what)].join("\n");
}

// A table whose rows are picked with a button in the first column, and sorted with one in each head.
function fill(id, columns, rows, by = null) {
  const table = document.getElementById(id);
  let down = true;
  const body = document.createElement("tbody");
  const show = () => {
    const sorted = by === null ? rows : [...rows].sort((a, b) => (a.keys[by] < b.keys[by] ? -1 : a.keys[by] > b.keys[by] ? 1 : 0) * (down ? -1 : 1));
    body.replaceChildren(...sorted.map((row) => row.element));
  };
  const head = document.createElement("tr");
  columns.forEach(([title, number], column) => {
    const cell = document.createElement("th"), button = document.createElement("button");
    cell.scope = "col";
    if (number) cell.className = "number";
    button.textContent = title;
    button.onclick = () => {
      down = by === column ? !down : number;
      by = column;
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      show();
    };
    cell.append(button);
    head.append(cell);
  });
  for (const row of rows) {
    row.element = document.createElement("tr");
    row.element.dataset.uses = JSON.stringify(row.uses);
    row.element.title = row.hover ?? "";
    row.texts.forEach((text, column) => {
      const cell = document.createElement("td");
      if (columns[column][1]) cell.className = "number";
      if (column === 0) {
        const button = document.createElement("button");
        button.textContent = text;
        button.onclick = () => pick(row.pick);
        cell.append(button);
      } else cell.textContent = text ?? "";
      row.element.append(cell);
    });
  }
  const top = document.createElement("thead");
  top.append(head);
  table.append(top, body);
  show();
}

const most = tensors.map(() => 0), residences = tensors.map(() => 0), computed = tensors.map(() => 0), moved = tensors.map(() => 0), movedBytes = tensors.map(() => 0);
for (const life of lives) {
  most[life.tensor] = Math.max(most[life.tensor], life.bytes);
  residences[life.tensor] += 1;
}
for (const run of runs) for (const tensor of run.writes) computed[tensor] += 1;
const transfers = [...data.moves.map(([tensor, , size]) => [tensor, 1, size]), ...runs.flatMap((run) => run.slices.map(([tensor, , count, size]) => [tensor, count, size]))];
for (const [tensor, count, size] of transfers) {
  moved[tensor] += count;
  movedBytes[tensor] += size;
}
const share = (nj) => (data.energy ? ((100 * nj) / data.energy).toFixed(2) + " %" : "");
fill("kernels", [["kernel", false], ["time", true], ["energy", true], ["share", true], ["runs", false], ["from", false]],
  runs.map((run) => ({
    pick: run.tensor, uses: run.uses,
    texts: [run.kernel, run.took, run.energy, share(run.nj), [run.again ? "recomputed" : "", run.tiles === undefined ? "" : "in tiles"].filter(Boolean).join(", "), run.source],
    keys: [run.kernel, run.t1 - run.t0, run.nj, run.nj, 2 * run.again + (run.tiles !== undefined), run.source ?? ""],
    hover: run.tiles === undefined ? "" : "tiles: " + run.tiles + "; " + run.shares,
  })), 2);
fill("tensors", [["tensor", false], ["kind", false], ["bytes", true], ["live ranges", true], ["runs", true], ["transfers", true], ["bytes moved", true], ["type", false], ["from", false]],
  tensors.map((t) => ({
    pick: t.tensor, uses: [t.tensor],
    texts: [t.name, t.kind, most[t.tensor].toLocaleString("en"), residences[t.tensor], computed[t.tensor], moved[t.tensor].toLocaleString("en"), movedBytes[t.tensor].toLocaleString("en"), t.type, t.source],
    keys: [t.name, t.kind, most[t.tensor], residences[t.tensor], computed[t.tensor], moved[t.tensor], movedBytes[t.tensor], t.type, t.source ?? ""],
  })));

for (const radio of document.querySelectorAll("input[name=axis]")) radio.onchange = () => { axis = radio.value; draw(); };
document.getElementById("clear").onclick = () => pick(NONE);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") pick(NONE); });
let waiting = null;
window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 150); });
draw();
