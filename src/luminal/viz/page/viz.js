"use strict";
// The viewer of `luminal viz`. It reads one document, the JSON in the page, and asks no network for
// anything. By subject: elements, words of numbers, the document, the selection, parts that views
// share (tables, lines, drawings), the views in the order of their tabs, search, keys, the start.
// Whatever comes from a user's program is put in as text, never as HTML.
// It is longer than other files: seven views in one file that no step builds and no framework carries.
// A view's functions stand together and use only what stands above the views.

// --- Elements

const by = id => document.getElementById(id);

// An element with attributes and children. Attributes that begin with "on" are listeners; null and
// false leave an attribute out.
function element(name, attributes = {}, ...children) {
  return dressed(document.createElement(name), attributes, children);
}

function drawing(name, attributes = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function dressed(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== ""));
  return made;
}

function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

function link(text, onclick, attributes = {}) {
  return button(text, onclick, { class: "plain", ...attributes });
}

// Buttons of which one is pressed.
function choice(label, names, chosen, pick) {
  const buttons = names.map(([name, text]) =>
    button(text, () => { press(name); pick(name); }, { "data-name": name }));
  const press = name => buttons.forEach(one => one.setAttribute("aria-pressed", String(one.dataset.name === name)));
  press(chosen);
  return element("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

// --- Words of numbers

// Three digits: 1.02, 31.1, 311.
function digits(value) {
  const size = Math.abs(value);
  return size >= 99.95 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

const ROUNDS_UP = 0.9995; // of a unit: three digits of the next smaller one would be 1000

// A time in the unit that suits it: 1.02 s, 311 us.
function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "";
  if (seconds === 0) return "0 s";
  const size = Math.abs(seconds);
  for (const [unit, factor] of [["s", 1], ["ms", 1e3], ["us", 1e6]]) {
    if (size * factor >= ROUNDS_UP) return `${digits(seconds * factor)} ${unit}`;
  }
  return `${digits(seconds * 1e9)} ns`;
}

// An amount with a prefix: 3.20 GFLOP/s, 12 B.
function amount(value, unit) {
  if (value === null || value === undefined || !isFinite(value)) return "";
  const size = Math.abs(value);
  for (const [prefix, factor] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (size >= factor * ROUNDS_UP) return `${digits(value / factor)} ${prefix}${unit}`.trim();
  }
  return `${Number.isInteger(value) ? value : digits(value)} ${unit}`.trim();
}

const bytes = value => amount(value, "B");
const whole = value => (value ?? 0).toLocaleString("en-US");

function percent(part) {
  if (part === null || part === undefined || !isFinite(part)) return "";
  if (part === 0) return "0%";
  if (Math.abs(part) < 0.00005) return "<0.01%";
  return Math.abs(part) < 0.00995 ? `${(100 * part).toFixed(2)}%`
    : Math.abs(part) < 0.0995 ? `${(100 * part).toFixed(1)}%` : `${(100 * part).toFixed(0)}%`;
}

const sentence = text => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function counted(count, noun, plural = `${noun}s`) {
  return `${whole(count)} ${count === 1 ? noun : plural}`;
}

// --- The document, and what is derived of it once

const given = JSON.parse(by("document").textContent);
const values = given?.values ?? { op: [], ops: [], inputs: [] };
const modules = given?.modules ?? [];
const files = given?.files ?? [];
const kernels = given?.kernels ?? [];
const launches = given?.launches ?? [];
const buffers = given?.memory?.buffers ?? [];
const notes = given?.notes ?? {};
const kernelByNumber = new Map(kernels.map(kernel => [kernel.number, kernel]));
const stages = [stage("hlir", values, hlirText), ...(given?.stages ?? []).map(one => stage(one.name, one))];
const launchSum = launches.reduce((sum, row) => sum + (row.seconds ?? 0), 0);
const isTimed = launches.some(row => row.seconds !== null && row.seconds !== undefined);
const order = kernelsByTime();
const NAMED = 7; // kernels that have a colour of their own; all others share the last
const colours = new Map(order.slice(0, NAMED).map((row, k) => [row.kernel, k]));
const kernelOfValue = valueKernels();

// A stage as the views read it: what each node is, reads, and computes of the HLIR's values.
function stage(name, columns, write) {
  const ops = columns.ops ?? values.ops;
  const op = i => (typeof columns.op[i] === "number" ? ops[columns.op[i]] : columns.op[i]) ?? "";
  return {
    name, op, count: columns.op.length, inputs: columns.inputs ?? [],
    text: write ?? (i => columns.text?.[i] ?? op(i)),
    of: columns === values ? i => [i] : i => columns.of?.[i] ?? [],
    module: i => columns.module?.[i] ?? -1,
    launch: launchesOf(name, columns, op), columns,
  };
}

// Of each node of the Program the launch that it is; -1 for Loops.
function launchesOf(name, columns, op) {
  let next = 0;
  return name === "program" ? columns.op.map((_, i) => (op(i) === "Loop" ? -1 : next++)) : null;
}

function hlirText(i) {
  const name = values.name?.[i] ? ` ${values.name[i]}` : "";
  const read = values.inputs[i].map(input => ` %${input}`).join(",");
  return `%${i} = ${values.ops[values.op[i]]}${name}${read} : ${typeText(i)}`;
}

function typeText(i) {
  const shape = values.shape?.[i] ?? "";
  return `${values.dtype?.[i] ?? ""}${/^[[(]/.test(shape) ? shape : `[${shape}]`}`;
}

// All launch sites of each kernel together, the longest first. Without times: in program order.
function kernelsByTime() {
  const found = new Map();
  for (const [index, row] of launches.entries()) {
    const one = found.get(row.kernel) ?? { kernel: row.kernel, label: row.label, origin: row.origin, seconds: 0, sites: [] };
    one.seconds += row.seconds ?? 0;
    one.sites.push(index);
    found.set(row.kernel, one);
  }
  return [...found.values()].sort((a, b) => b.seconds - a.seconds);
}

function valueKernels() {
  const found = new Int32Array(values.op.length).fill(-1);
  for (const kernel of kernels) for (const value of kernel.of ?? []) found[value] = kernel.number;
  return found;
}

const colourOf = kernel => `k${colours.get(kernel) ?? NAMED}`;
const patch = colour => element("span", colour ? { class: "patch", style: `background: var(--${colour})` } : { class: "patch between" });
const patched = (colour, what) => element("span", { class: "patched" }, patch(colour), element("span", {}, what));
const kernelName = number => (number < 0 ? "a collective" : `k${number}`);
const launchName = row => row.origin || row.label || kernelName(row.kernel);

// The nodes of a stage that compute or stand for one of the values, ascending.
function nodesOf(one, wanted) {
  if (!wanted.size) return [];
  if (one.columns === values) return [...wanted].sort((a, b) => a - b);
  one.byValue ??= related(one.count, one.of);
  return meeting(one.byValue, wanted);
}

function related(count, of) {
  const found = new Map();
  for (let i = 0; i < count; i++) {
    for (const value of of(i)) {
      if (!found.has(value)) found.set(value, []);
      found.get(value).push(i);
    }
  }
  return found;
}

function meeting(byValue, wanted) {
  const found = new Set();
  for (const value of wanted) for (const i of byValue.get(value) ?? []) found.add(i);
  return [...found].sort((a, b) => a - b);
}

const relations = new Map();
function meets(name, list, wanted) {
  if (!relations.has(name)) relations.set(name, related(list.length, i => list[i].of ?? []));
  return meeting(relations.get(name), wanted);
}

const modulePath = index => modules[index]?.path ?? "";
const isInside = (path, outer) => outer === "" || path === outer || path.startsWith(`${outer}.`);

function place(file, line) {
  return file >= 0 && files[file] ? `${files[file].path}:${line}` : "";
}

// --- The selection: one thing, and the values that it stands for

const NOTHING = { kind: "", id: -1, values: new Set() };
let selection = NOTHING;
let folding = ""; // of drawn graphs: "none", "all", or as is best at first

// What a kind of thing stands for.
function valuesOf(kind, id) {
  const ofStage = stages.find(one => one.name === kind);
  if (kind === "value") return [id];
  if (ofStage) return ofStage.of(id);
  if (kind === "kernel") return kernelByNumber.get(id)?.of ?? [];
  if (kind === "launch") return launches[id].of ?? kernelByNumber.get(launches[id].kernel)?.of ?? [];
  if (kind === "buffer") return buffers[id].of ?? [];
  if (kind === "module") return valuesInside(id);
  return [];
}

function valuesInside(path) {
  const inside = modules.map(one => isInside(one.path, path));
  const found = [];
  for (let i = 0; i < values.op.length; i++) {
    const index = values.module?.[i] ?? -1;
    if (index < 0 ? path === "" : inside[index]) found.push(i);
  }
  return found;
}

function exists(kind, id) {
  const count = { value: values.op.length, launch: launches.length, buffer: buffers.length }[kind]
    ?? stages.find(one => one.name === kind)?.count;
  if (count !== undefined) return Number.isInteger(id) && id >= 0 && id < count;
  if (kind === "kernel") return kernelByNumber.has(id);
  return kind === "module" && modules.some(one => isInside(one.path, id));
}

function select(kind, id) {
  if (!exists(kind, id)) return clear();
  selection = { kind: kind === "hlir" ? "value" : kind, id, values: new Set(valuesOf(kind, id)) };
  changed();
  by("said").textContent = `Selected: ${titleOf(selection)}`;
}

function clear() {
  if (selection === NOTHING) return;
  selection = NOTHING;
  changed();
}

function changed() {
  drawInspector();
  views[shown].update?.();
  remember();
}

function titleOf({ kind, id }) {
  if (kind === "value") return `%${id} ${values.ops[values.op[id]]}`;
  if (kind === "kernel") return `Kernel ${id}`;
  if (kind === "launch") return `Launch ${id} of ${kernelName(launches[id].kernel)}`;
  if (kind === "buffer") return `Buffer ${buffers[id].name}`;
  if (kind === "module") return id ? `Module ${id}` : "The whole model";
  return `${kind} ${id}: ${stages.find(one => one.name === kind).op(id)}`;
}

// The address says which view is open and what is selected, so that a link shows the same.
function remember() {
  const fields = [`view=${shown}`];
  if (folding) fields.push(`fold=${folding}`);
  if (selection.kind) fields.push(`select=${selection.kind}:${encodeURIComponent(selection.id)}`);
  const address = `#${fields.join("&")}`;
  if (location.hash !== address) history.replaceState(null, "", address);
}

function follow() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const [kind, ...rest] = (fields.get("select") ?? "").split(":");
  const id = rest.join(":");
  const isNumber = kind !== "module";
  folding = /^(none|all)$/.test(fields.get("fold")) ? fields.get("fold") : "";
  selection = NOTHING;
  if (kind && exists(kind, isNumber ? Number(id) : id)) {
    const key = isNumber ? Number(id) : id;
    selection = { kind, id: key, values: new Set(valuesOf(kind, key)) };
  }
  drawInspector();
  open(views[fields.get("view")] ? fields.get("view") : "overview");
}

// --- Beside every view: what is selected, where it was written, and what it became

const SHOWN = 12; // of a long list of relations

function drawInspector() {
  const side = by("inspector");
  side.hidden = !selection.kind;
  side.replaceChildren();
  if (side.hidden) return;
  side.append(
    element("div", { class: "head" }, element("h2", {}, titleOf(selection)),
      button("×", clear, { "aria-label": "Select nothing (Escape)", title: "Select nothing (Escape)" })),
    ...facts(), ...sources(), ...became(),
  );
}

function facts() {
  const { kind, id } = selection;
  if (kind === "value") return [list(valueFacts(id))];
  if (kind === "kernel") return [list(kernelFacts(id))];
  if (kind === "launch") return [list(launchFacts(launches[id]))];
  if (kind === "buffer") return [list(bufferFacts(buffers[id]))];
  if (kind === "module") return [list([["holds", counted(selection.values.size, "value")],
    ["class", modules.find(one => one.path === id)?.class]])];
  const text = stages.find(one => one.name === kind).text(id);
  return [element("pre", {}, text), list([["stands for", counted(selection.values.size, "value")]])];
}

function list(rows) {
  return element("dl", {}, rows.filter(([, what]) => what || what === 0)
    .map(([name, what]) => [element("dt", {}, name), element("dd", {}, what)]));
}

function valueFacts(id) {
  const index = values.module?.[id] ?? -1;
  const readers = readersOf(id);
  return [
    ["name", values.name?.[id]], ["type", typeText(id)], ["call", values.call?.[id]],
    ["module", index >= 0 && modulePath(index) && link(modulePath(index), () => select("module", modulePath(index)))],
    ["reads", links(values.inputs[id], "value", i => `%${i}`)],
    ["read by", links(readers, "value", i => `%${i}`)],
  ];
}

let readers = null;
function readersOf(id) {
  readers ??= related(values.op.length, i => values.inputs[i]);
  return readers.get(id) ?? [];
}

function kernelFacts(number) {
  const one = order.find(row => row.kernel === number);
  const kernel = kernelByNumber.get(number);
  return [
    ["of", kernel.origin], ["label", kernel.label],
    ["time", one && isTimed && `${duration(one.seconds)}, ${percent(one.seconds / launchSum)} of all launches`],
    ["launches", one && links(one.sites, "launch", i => String(i))],
  ];
}

function launchFacts(row) {
  return [
    ["of", row.origin], ["label", row.label],
    ["kernel", row.kernel >= 0 && link(kernelName(row.kernel), () => select("kernel", row.kernel))],
    ["time", isTimed && `${duration(row.seconds)}, ${percent(row.seconds / launchSum)} of all launches`],
    ["trips", row.trips > 1 && `${whole(row.trips)}, ${duration((row.seconds ?? NaN) / row.trips)} each`],
    ["work", [row.flops && amount(row.flops, "FLOP"), row.bytes && `${bytes(row.bytes)} moved`].filter(Boolean).join(", ")],
    ["bound", row.bound && `${row.bound}${row.roofline ? `, ${percent(row.roofline)} of that roof` : ""}`],
    ["doubt", doubtOf(row)], ["", row.note],
    ["occupancy", occupancy(row)], ["model", row.explained?.join("\n")],
    ["reads", links(known(row.reads), "buffer", i => buffers[i].name)],
    ["writes", links(known(row.writes), "buffer", i => buffers[i].name)],
  ];
}

const known = ids => (ids ?? []).filter(id => buffers[id]);

function occupancy(row) {
  const found = row.occupancy;
  if (found === null || found === undefined) return "";
  return typeof found === "object" ? Object.entries(found).map(([name, what]) => `${name} ${what}`).join(", ") : String(found);
}

// Why a share of a roof is missing or passes 1.
function doubtOf(row) {
  if (row.impossible) return "It seems to take less time than its work needs: it leaves part of that out, or its time is wrong.";
  if (row.roofline > 1.005) return ABOVE[row.bound] ?? ABOVE.memory;
  return "";
}

const ABOVE = {
  compute: "Above 100%: the roof is float32's, as it was measured; products of narrower numbers pass it, and so do launches that ran while the machine was faster than then.",
  cache: "Above 100%: what it reads lay in a nearer cache than the one that was measured.",
  memory: "Above 100%: part of what it reads still lay in a cache.",
};

function bufferFacts(one) {
  return [
    ["kind", one.kind], ["size", bytes(one.bytes)], ["of", one.origin],
    ["lies at", one.kind === "arena" && one.offset !== undefined && one.offset !== null ? `${whole(one.offset)} of the arena` : ""],
    ["held from", one.first >= 0 && `launch ${one.first} to ${one.last}`],
  ];
}

// Things as links in a row, some of them where there are many.
function links(ids, kind, name) {
  if (!ids?.length) return "";
  const made = ids.slice(0, SHOWN).flatMap(id => [link(name(id), () => select(kind, id)), " "]);
  return element("span", {}, made, ids.length > SHOWN ? `and ${whole(ids.length - SHOWN)} more` : "");
}

// The lines of the user that the selection comes from, with those around them.
function sources() {
  const counts = new Map();
  for (const value of selection.values) {
    const key = `${values.file?.[value] ?? -1}:${values.line?.[value] ?? 0}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const given = selection.kind === "kernel" ? kernelByNumber.get(selection.id).lines : selection.kind === "buffer" ? buffers[selection.id].lines : null;
  const places = (given ?? []).length ? given : [...counts].sort((a, b) => b[1] - a[1]).map(([key]) => key.split(":").map(Number));
  const byFile = new Map();
  for (const [file, line] of places.filter(([file]) => files[file]).slice(0, SHOWN)) byFile.set(file, [...(byFile.get(file) ?? []), line]);
  return [...byFile].map(([file, mine]) => excerpt(file, mine));
}

// Lines of a file with two around each; dots where lines between are left out.
function excerpt(file, mine) {
  const { path, lines } = files[file];
  const near = Object.keys(lines).map(Number).filter(n => mine.some(line => Math.abs(n - line) <= 2)).sort((a, b) => a - b);
  const margin = String(near.at(-1) ?? 0).length;
  const texts = near.map((n, k) => [k && n > near[k - 1] + 1 ? element("span", { class: "line faint" }, "⋯") : "",
    element("span", { class: mine.includes(n) ? "line here" : "line" }, `${String(n).padStart(margin)}  ${lines[n]}`)]);
  const name = `${path}:${[...mine].sort((a, b) => a - b).join(", ")}`;
  return element("figure", {}, element("figcaption", { class: "faint" }, name), near.length ? element("pre", { tabindex: 0, "aria-label": name }, texts) : "");
}

// What became of the selection: nodes of stages, kernels, launches, buffers, spellings.
function became() {
  const wanted = selection.values;
  const rows = stages.filter(one => one.name !== selection.kind && !(one.name === "hlir" && selection.kind === "value"))
    .map(one => [one.name, stageLinks(one, nodesOf(one, wanted))]);
  const inKernels = meets("kernels", kernels, wanted).map(i => kernels[i].number);
  if (selection.kind !== "kernel") rows.push(["kernels", links(inKernels, "kernel", number => kernelName(number))]);
  if (selection.kind !== "buffer") rows.push(["memory", links(meets("buffers", buffers, wanted), "buffer", i => buffers[i].name)]);
  const spelled = meets("spellings", given.spellings ?? [], wanted);
  if (spelled.length) rows.push(["spellings", link(counted(spelled.length, "class", "classes"), () => open("spellings"))]);
  const found = rows.filter(([, what]) => what);
  const ways = element("div", { class: "bar" }, button("Show in graph", () => open("graph")),
    inKernels.length ? button("Show kernel", () => open("kernels")) : "");
  return found.length ? [element("h3", {}, "Became"), list(found), ways] : [ways];
}

function stageLinks(one, nodes) {
  const number = i => (one.text(i).match(/^%\d+/) ?? [one.name === "program" ? one.op(i) : `#${i}`])[0];
  return links(nodes, one.name, number);
}

// --- Tables that are sorted by a click on a head

const ROWS = 400; // that a table shows before it is asked for all

// Columns: { title, value(row), show(row), text }. A column whose values are numbers stands right.
// `pick` makes rows things that can be chosen; `isChosen` says which are.
function table(label, columns, rows, { sorted = null, isDown = true, pick = null, isChosen = () => false } = {}) {
  let column = sorted, limit = ROWS;
  const body = element("tbody", { onkeydown: rowKeys });
  const heads = columns.map((one, k) => element("th", { scope: "col", class: one.text ? null : "number" },
    button(one.title, () => { isDown = column === k ? !isDown : !one.text; column = k; fill(); }, { title: one.hint })));
  const more = element("p", { class: "faint" });
  const fill = () => {
    heads.forEach((head, k) => (k === column ? head.setAttribute("aria-sort", isDown ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    const inOrder = column === null ? rows : [...rows].sort((a, b) => compare(columns[column], a, b) * (isDown ? -1 : 1));
    body.replaceChildren(...inOrder.slice(0, limit).map(row => tableRow(columns, row, pick, isChosen)));
    more.replaceChildren(...(inOrder.length > limit ? [`${whole(limit)} of ${whole(inOrder.length)} rows. `, link("Show all", () => { limit = Infinity; fill(); })] : []));
  };
  fill();
  const made = element("div", {}, element("div", { class: "wide" },
    element("table", { "aria-label": label }, element("thead", {}, element("tr", {}, heads)), body)), more);
  made.refresh = () => {
    for (const row of body.rows) row.setAttribute("aria-selected", String(isChosen(row.datum)));
  };
  return made;
}

function compare(column, a, b) {
  const [x, y] = [column.value(a), column.value(b)];
  if (typeof x === "string" || typeof y === "string") return String(x ?? "").localeCompare(String(y ?? ""), undefined, { numeric: true });
  return (x ?? -Infinity) - (y ?? -Infinity) || 0;
}

function tableRow(columns, datum, pick, isChosen) {
  const cells = columns.map(one => element("td", { class: one.text === "short" ? null : one.text ? "text" : "number" }, (one.show ?? one.value)(datum) ?? ""));
  const row = element("tr", pick ? { tabindex: 0, "aria-selected": String(isChosen(datum)), onclick: () => pick(datum) } : {}, cells);
  row.datum = datum;
  return row;
}

function rowKeys(event) {
  const row = event.target.closest("tr");
  const next = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling }[event.key];
  if (next) { next.focus(); event.preventDefault(); }
  if ((event.key === "Enter" || event.key === " ") && event.target === row) { row.click(); event.preventDefault(); }
}

// --- Lines of text, of which only those in sight are elements

const LINE = 20; // pixels of one, as in the style

function lines(label, { pick = null } = {}) {
  const inner = element("div", { style: "position: relative" });
  const outer = element("div", { class: "lines code", tabindex: 0, role: pick ? "listbox" : "region", "aria-label": label }, inner);
  let count = 0, write = () => "", mark = () => "", widest = 0;
  const draw = () => {
    const from = Math.max(0, Math.floor(outer.scrollTop / LINE) - 5);
    const to = Math.min(count, Math.ceil((outer.scrollTop + outer.clientHeight) / LINE) + 5);
    const rows = [];
    for (let i = from; i < to; i++) rows.push(line(i, write(i), mark(i)));
    inner.replaceChildren(...rows);
  };
  const line = (i, text, kind) => element("div", {
    class: `row ${pick ? "pick" : ""} ${kind}`, style: `top: ${i * LINE}px`, "data-i": i,
    role: pick ? "option" : null, "aria-selected": pick ? String(kind === "at") : null,
  }, text);
  outer.addEventListener("scroll", draw);
  if (pick) outer.addEventListener("click", event => {
    const row = event.target.closest(".row");
    if (row) pick(Number(row.dataset.i));
  });
  new ResizeObserver(draw).observe(outer);
  return {
    element: outer, draw,
    fill(n, text, longest) {
      [count, write, widest] = [n, text, longest];
      inner.style.height = `${n * LINE}px`;
      inner.style.width = `${widest + 2}ch`;
      draw();
    },
    mark(kind) { mark = kind; draw(); },
    reveal(i) {
      const top = i * LINE;
      if (top < outer.scrollTop || top + LINE > outer.scrollTop + outer.clientHeight) outer.scrollTop = top - outer.clientHeight / 3;
      draw();
    },
  };
}

// The texts of a kernel, one at a time.
const TEXTS = { tile: "Tile IR", expanded: "Expanded IR", llvm: "LLVM IR", asm: "Assembly", c: "C", sass: "SASS" };
function kernelTexts() {
  let kernel = null, wanted = "tile";
  const text = lines("Text of the kernel");
  const head = element("div", { class: "bar" });
  const show = () => {
    const names = Object.keys(kernel?.texts ?? {});
    const name = names.includes(wanted) ? wanted : names[0];
    const all = name ? kernel.texts[name].split("\n") : [];
    head.replaceChildren(...(names.length ? [choice("Form", names.map(one => [one, TEXTS[one] ?? one]), name, one => { wanted = one; show(); }),
      button("Copy", () => navigator.clipboard?.writeText(kernel.texts[name]))] : []),
    kernel?.note ? element("span", { class: "faint" }, kernel.note) : "");
    text.element.scrollTop = 0;
    text.fill(all.length, i => all[i], all.reduce((most, one) => Math.max(most, one.length), 0));
  };
  return { element: element("div", { class: "codes" }, head, text.element), show(one) { if (one !== kernel) { kernel = one; show(); } } };
}

// --- Drawings: colours of the page, text that is measured, what the pointer is over

const paint = {};
function readColours() {
  const probe = element("span", { hidden: true });
  document.body.append(probe);
  const names = ["page", "raised", "text", "faint", "line", "edge", "strong", "on-strong", "mark", ...Array.from({ length: NAMED + 1 }, (_, k) => `k${k}`)];
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    paint[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}

const measure = document.createElement("canvas").getContext("2d");
const widthsByFont = new Map();
function textWidth(text, font = "12px system-ui, sans-serif") {
  if (!widthsByFont.has(font)) widthsByFont.set(font, new Map());
  const known = widthsByFont.get(font);
  if (known.size > 20000) known.clear();
  if (!known.has(text)) {
    if (measure.font !== font) measure.font = font;
    known.set(text, measure.measureText(text).width);
  }
  return known.get(text);
}

function cut(text, most, font) {
  if (textWidth(text, font) <= most) return text;
  let [fits, ends] = [0, text.length];
  while (fits < ends - 1) {
    const middle = (fits + ends) >> 1;
    if (textWidth(`${text.slice(0, middle)}…`, font) <= most) fits = middle; else ends = middle;
  }
  return fits ? `${text.slice(0, fits)}…` : "";
}

function tell(event, text) {
  const tip = by("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? Math.max(4, event.clientY - height - 10) : event.clientY + 18}px`;
}

// A canvas that is drawn again, at most once a frame, when something changed.
function surface(label, draw, listeners = {}) {
  const canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": label, ...listeners });
  const outer = element("div", { class: "surface" }, canvas);
  const one = { canvas, element: outer, width: 0, height: 0, isWaiting: false, frames: 0 };
  const paintNow = () => {
    one.isWaiting = false;
    const ratio = devicePixelRatio || 1;
    const context = canvas.getContext("2d");
    const [w, h] = [Math.round(one.width * ratio), Math.round(one.height * ratio)];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, one.width, one.height);
    draw(context, one.width, one.height, ratio);
    one.frames++;
  };
  one.draw = () => {
    if (one.isWaiting || !one.width) return;
    one.isWaiting = true;
    requestAnimationFrame(paintNow);
  };
  new ResizeObserver(([entry]) => {
    [one.width, one.height] = [entry.contentRect.width, entry.contentRect.height];
    one.resized?.();
    one.draw();
  }).observe(outer);
  canvas.addEventListener("pointerleave", event => tell(event, ""));
  return one;
}

// Drags and pinches of a canvas: `move(dx, dy)`, `zoom(factor, x, y)`, and `click(x, y)` where the
// pointer did not move.
function gestures(canvas, { move, zoom, click, hover }) {
  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    moved = 0;
  });
  canvas.addEventListener("pointermove", event => {
    const last = pointers.get(event.pointerId);
    if (!last) return hover?.(event);
    const [dx, dy] = [event.offsetX - last[0], event.offsetY - last[1]];
    moved += Math.abs(dx) + Math.abs(dy);
    const before = spread(pointers);
    pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    if (pointers.size === 2 && before) zoom(spread(pointers) / before, event.offsetX, event.offsetY);
    else if (moved > 3) move(dx, dy);
  });
  const end = event => {
    if (pointers.delete(event.pointerId) && moved <= 3 && event.type === "pointerup") click?.(event.offsetX, event.offsetY, event);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    if (event.shiftKey) move(-event.deltaY - event.deltaX, 0);
    else zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX, event.offsetY);
  }, { passive: false });
}

function spread(pointers) {
  const [a, b] = [...pointers.values()];
  return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0;
}

// A chart that is drawn for the width it has.
function chart(label, draw) {
  const outer = element("div", { role: "group", "aria-label": label });
  let width = 0;
  const redraw = () => { if (width) outer.replaceChildren(draw(width)); };
  new ResizeObserver(([entry]) => {
    if (Math.round(entry.contentRect.width) === width) return;
    width = Math.round(entry.contentRect.width);
    redraw();
  }).observe(outer);
  outer.redraw = redraw;
  return outer;
}

// The first place beside a point where a text lies over nothing that is there already, or null.
function freePlace(taken, x, y, text, bounds, radius = 6) {
  const [width, height] = [textWidth(text), 14];
  const [right, left, above, below] = [radius + 3, -width - radius - 3, -height - radius - 2, radius + 2];
  const around = [[right, -7], [left, -7], [-width / 2, above], [-width / 2, below], [right, above], [right, below], [left, above], [left, below]];
  for (const [dx, dy] of around) {
    const box = [x + dx, y + dy, x + dx + width, y + dy + height];
    const isInside = box[0] >= bounds[0] && box[1] >= bounds[1] && box[2] <= bounds[2] && box[3] <= bounds[3];
    if (isInside && !taken.some(other => overlap(box, other))) {
      taken.push(box);
      return [box[0], box[3] - 3];
    }
  }
  return null;
}

const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

// Keeps texts from lying over a line.
function takeLine(taken, x0, y0, x1, y1) {
  const steps = Math.max(1, Math.ceil(Math.hypot(x1 - x0, y1 - y0) / 5));
  for (let k = 0; k <= steps; k++) {
    const [x, y] = [x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps];
    taken.push([x - 3, y - 3, x + 3, y + 3]);
  }
}

// Round numbers between two: 1, 2 or 5 times a power of ten apart.
function ticks(low, high, most) {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough) ?? rough;
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(n * step);
  return found;
}

function empty(view, words) {
  return element("p", { class: "empty" }, notes[view] ?? words);
}

function note(view) {
  return notes[view] ? element("p", { class: "faint" }, sentence(notes[view])) : "";
}

// --- Overview: what it is, how long it takes, where the time goes, what would help

function overview() {
  return element("div", {}, element("h2", {}, "What it is"), element("p", {}, whatItIs()), figures(), note("overview"),
    ...doubts(), ...whereItGoes(), ...whatHelps());
}

function whatItIs() {
  const leaves = values.op.filter(op => /^(Weight|State)$/.test(values.ops[op])).length;
  const dims = Object.entries(given.dims ?? {}).map(([name, n]) => `${name} = ${n}`).join(", ");
  const { cpu, threads, device } = given.machine ?? {};
  const machine = [device, cpu, threads && counted(threads, "thread")].filter(Boolean).join(", ");
  return `${given.title}: a graph of ${counted(values.op.length, "value")} (${counted(leaves, "weight")}), `
    + `compiled to ${counted(kernels.length, "kernel")} in ${counted(launches.length, "launch", "launches")}`
    + `${dims ? `, at ${dims}` : ""}${machine ? `, for ${machine}` : ""}.`;
}

function figures() {
  const flops = launches.reduce((sum, row) => sum + (row.flops ?? 0), 0);
  const moved = launches.reduce((sum, row) => sum + (row.kernel < 0 ? 0 : row.bytes ?? 0), 0);
  const held = Object.values(heldMemory() ?? {}).reduce((sum, n) => sum + (typeof n === "number" ? n : 0), 0) || null;
  const shownFigures = [
    [given.run_seconds ? duration(given.run_seconds) : "not timed", "a run"], [amount(flops, "FLOP"), "arithmetic"],
    [bytes(moved), "moved by launches"], [held === null ? bytes(given.memory?.arena_bytes) : bytes(held), held === null ? "arena" : "memory held"],
  ];
  return element("div", { class: "figures" }, shownFigures.filter(([what]) => what)
    .map(([what, name]) => element("div", {}, element("b", {}, what), element("span", { class: "faint" }, name))));
}

function doubts() {
  return (given.doubts ?? []).map(doubt => element("p", { class: "wrong" }, `Doubtful: ${doubt}${doubt.endsWith(".") ? "" : "."}`));
}

// A bar as long as the run, and the kernels that its parts are.
function whereItGoes() {
  if (!isTimed) return [element("h2", {}, "Where the time goes"), element("p", { class: "faint" }, notes.kernels ?? "No launch was timed.")];
  const between = Math.max(0, (given.run_seconds ?? 0) - launchSum);
  const total = launchSum + between;
  const parts = order.slice(0, NAMED).filter(one => one.seconds > 0);
  const rest = order.slice(parts.length);
  const rows = parts.map(one => ({ ...one, colour: colourOf(one.kernel), name: `${kernelName(one.kernel)}  ${launchName(one)}`, go: () => go("kernels", "kernel", one.kernel) }));
  const others = rest.reduce((sum, one) => sum + one.seconds, 0);
  if (others > 0) rows.push({ seconds: others, colour: `k${NAMED}`, name: counted(rest.length, "other kernel"), go: () => open("kernels") });
  if (between > 0) rows.push({ seconds: between, colour: null, name: "between launches: checks, starts, waits", go: () => open("timeline") });
  const bar = element("div", { class: "stack", role: "group", "aria-label": "Where the time goes" }, rows.map(row =>
    button("", row.go, { class: row.colour ? null : "between", style: `flex: ${row.seconds / total} 0 0; background: var(--${row.colour})`,
      "aria-label": `${row.name}, ${percent(row.seconds / total)}`, onpointermove: event => tell(event, `${row.name}\n${duration(row.seconds)}, ${percent(row.seconds / total)}`), onpointerleave: event => tell(event, "") })));
  const shownTable = table("Kernels by time", [
    { title: "part of a run", text: true, value: row => row.name, show: row => patched(row.colour, link(row.name, row.go)) },
    { title: "time", value: row => row.seconds, show: row => duration(row.seconds) },
    { title: "share", value: row => row.seconds, show: row => percent(row.seconds / total) },
  ], rows);
  return [element("h2", {}, "Where the time goes"), element("p", {}, sumInWords()), given.gap ? element("p", { class: "faint" }, sentence(given.gap)) : "", bar, shownTable];
}

// How the time of a run and the sum of its launches come together.
function sumInWords() {
  const run = given.run_seconds;
  if (!run) return `Its launches add up to ${duration(launchSum)}; a whole run was not timed.`;
  const between = run - launchSum;
  if (between >= 0) return `A run takes ${duration(run)}: ${duration(launchSum)} in its launches, and ${duration(between)} (${percent(between / run)}) between them, for checks, starts and waits.`;
  return `A run takes ${duration(run)}. Its launches, timed one by one, add up to ${duration(launchSum)}: each of these times has a clock and a wait in it, and some of them overlap in a run. Shares are of that sum.`;
}

function whatHelps() {
  const sentences = advice().sort((a, b) => b.gain - a.gain).slice(0, 3);
  if (!sentences.length) return [];
  return [element("h2", {}, "What would help"), element("ol", { class: "help" }, sentences.map(({ text, go, way }) =>
    element("li", {}, `${text} `, link(way, go))))];
}

function advice() {
  const found = [];
  const run = given.run_seconds ?? launchSum;
  for (const one of order.slice(0, 3)) found.push(...roofAdvice(one, run));
  const between = (given.run_seconds ?? 0) - launchSum;
  if (isTimed && between > 0.05 * run) {
    found.push({ gain: between, way: "Timeline", go: () => open("timeline"), text: `Between launches a run spends ${duration(between)} (${percent(between / run)}): fewer and larger launches, or more work in a run, would make that less.` });
  }
  const bound = launches.filter(row => row.bound === "memory").reduce((sum, row) => sum + (row.seconds ?? 0), 0);
  if (bound > 0.4 * launchSum) {
    found.push({ gain: 0.2 * bound, way: "Kernels", go: () => open("kernels"), text: `Launches that memory bounds take ${percent(bound / launchSum)} of the time. They get faster by moving fewer bytes: narrower weights (bfloat16, quantized), or more rows at a time for the same weights.` });
  }
  found.push(...spellingAdvice(run));
  const most = given.memory?.peak;
  if (!given.search) found.push({ gain: 0.05 * run, way: "Search", go: () => open("search"), text: "No search ran, so every choice is that of a rule. A search times other choices on this machine: pass --mode 30s." });
  else if (given.search.decision) found.push({ gain: 0.01 * run, way: "Search", go: () => open("search"), text: `The search said: ${given.search.decision}.` });
  if (!isTimed) found.push({ gain: Infinity, way: "Kernels", go: () => open("kernels"), text: notes.kernels ?? "No launch was timed. A profile says which of them take the time." });
  if (most?.buffers?.length) found.push({ gain: 0, way: "Memory", go: () => open("memory"), text: peakInWords() });
  return found;
}

function roofAdvice(one, run) {
  const rows = one.sites.map(i => launches[i]).filter(row => row.seconds && row.roofline);
  const gain = rows.reduce((sum, row) => sum + row.seconds * Math.max(0, 1 - row.roofline), 0);
  const timed = rows.reduce((sum, row) => sum + row.seconds, 0);
  if (!timed || gain < 0.03 * run) return [];
  const reached = 1 - gain / timed;
  return [{ gain, way: "Its code", go: () => go("kernels", "kernel", one.kernel),
    text: `${kernelName(one.kernel)} (${launchName(one)}) takes ${percent(one.seconds / launchSum)} of the launches' time and reaches ${percent(reached)} of what ${rows[0].bound === "compute" ? "the machine's arithmetic" : `the ${rows[0].bound}`} allows: at that roof a run would take ${duration(gain)} less.` }];
}

// The spelling that is predicted to gain most. What a search has timed is known better than by predictions.
function spellingAdvice(run) {
  if (given.search?.candidates) return [];
  const shorter = (given.spellings ?? []).flatMap(one => {
    const taken = one.nodes.find(node => node.chosen)?.cost;
    return one.nodes.filter(node => taken && node.cost && node.cost < 0.9 * taken).map(node => ({ one, node, part: 1 - node.cost / taken }));
  });
  if (!shorter.length) return [];
  const { one, node, part } = shorter.reduce((best, other) => (other.part > best.part ? other : best));
  const value = one.of?.at(-1);
  return [{ gain: part * run, way: "Spellings", go: () => (value === undefined ? open("spellings") : go("spellings", "value", value)),
    text: `${className(one)} can be computed in another way (${node.rule || "as recorded"}): ${node.why_not}.` }];
}

function go(view, kind, id) {
  select(kind, id);
  open(view);
}

// --- Graph: the stages side by side

function graph() {
  const isNarrow = innerWidth < 800;
  const shownPanes = new Set(isNarrow ? ["hlir"] : ["hlir", "program", "kernel"]);
  const panes = element("div", { class: "panes" });
  const made = new Map();
  const names = [...stages.map(one => [one.name, one.name === "hlir" ? "HLIR" : one.name[0].toUpperCase() + one.name.slice(1)]), ["kernel", "Kernel texts"]];
  const make = name => (name === "kernel" ? kernelPane() : stagePane(stages.find(one => one.name === name), names.find(([other]) => other === name)[1]));
  const arrange = () => {
    panes.replaceChildren(...names.filter(([name]) => shownPanes.has(name)).map(([name]) => {
      if (!made.has(name)) made.set(name, make(name));
      return made.get(name).element;
    }));
    update();
  };
  const toggles = names.map(([name, text]) => button(text, event => {
    if (!shownPanes.delete(name)) shownPanes.add(name);
    event.currentTarget.setAttribute("aria-pressed", String(shownPanes.has(name)));
    arrange();
  }, { "aria-pressed": String(shownPanes.has(name)) }));
  const update = () => { for (const [name, pane] of made) if (shownPanes.has(name)) pane.update(); };
  arrange();
  const bar = element("div", { class: "bar" }, element("span", { class: "faint" }, "Side by side:"), toggles, legend());
  return { element: element("div", { class: "whole" }, bar, note("graph"), panes), update };
}

function legend() {
  const named = order.slice(0, NAMED).filter(one => one.kernel >= 0);
  if (!named.length) return "";
  return element("span", { class: "faint legend" }, "Stripes: the kernel that computes it ",
    named.map(one => element("span", { style: "white-space: nowrap" }, " ", patch(colourOf(one.kernel)), kernelName(one.kernel))), order.length > named.length ? element("span", { style: "white-space: nowrap" }, " ", patch(`k${NAMED}`), "others") : "");
}

// A stage as a drawing or as its text.
function stagePane(one, title) {
  const bodyOf = { drawn: null, text: null };
  let mode = one.name === "hlir" ? "drawn" : "text", at = 0, nodes = [];
  const found = element("span", { class: "faint" });
  const holder = element("div", { style: "display: contents" });
  const step = by => {
    if (!nodes.length) return;
    at = (at + by + nodes.length) % nodes.length;
    tellFound();
    bodyOf[mode].reveal(nodes[at]);
  };
  const back = button("↑", () => step(-1), { "aria-label": "The one before", title: "The one before" });
  const forth = button("↓", () => step(1), { "aria-label": "The next one", title: "The next one" });
  const tellFound = () => {
    found.textContent = nodes.length ? `${at + 1} of ${whole(nodes.length)} selected` : selection.kind ? "none of what is selected" : counted(one.count, "node");
    back.hidden = forth.hidden = nodes.length < 2;
  };
  const update = () => {
    nodes = nodesOf(one, selection.values);
    at = Math.max(0, nodes.indexOf(isHere(one) ? selection.id : nodes[0]));
    tellFound();
    bodyOf[mode].mark(nodes, isHere(one) ? selection.id : -1);
  };
  const show = () => {
    bodyOf[mode] ??= mode === "drawn" ? drawnStage(one, title) : writtenStage(one, title);
    holder.replaceChildren(...bodyOf[mode].elements);
    pane.classList.toggle("drawn", mode === "drawn");
    update();
  };
  const pane = element("section", { class: "pane", "aria-label": title }, element("div", { class: "bar" }, element("h3", {}, title),
    choice("Form", [["drawn", "Drawn"], ["text", "Text"]], mode, name => { mode = name; show(); }), found, back, forth), holder);
  show();
  return { element: pane, update };
}

const isHere = one => selection.kind === (one.name === "hlir" ? "value" : one.name);

function writtenStage(one, title) {
  const text = lines(`${title} as text`, { pick: i => select(one.name, i) });
  const loops = one.columns.loop;
  const inside = i => (loops?.[i] >= 0 ? "  ".repeat(1 + (loops[loops[i]] >= 0 ? 1 : 0)) : "");
  let longest = 0;
  for (let i = 0; i < one.count; i++) longest = Math.max(longest, one.text(i).length + 4);
  text.fill(one.count, i => inside(i) + one.text(i), longest);
  text.element.addEventListener("keydown", event => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    select(one.name, Math.max(0, Math.min(one.count - 1, isHere(one) ? selection.id + by : 0)));
  });
  return {
    elements: [text.element], reveal: text.reveal,
    mark(nodes, id) {
      const met = new Set(nodes);
      text.mark(i => (i === id ? "at" : met.has(i) ? "met" : ""));
      if (nodes.length) text.reveal(id >= 0 ? id : nodes[0]);
    },
  };
}

// The texts of a kernel of the selection.
function kernelPane() {
  let chosen = null;
  const texts = kernelTexts();
  const pick = element("select", { "aria-label": "Kernel", onchange: () => select("kernel", Number(pick.value)) },
    kernels.map(one => element("option", { value: one.number }, `${kernelName(one.number)}  ${cutText(one.origin || one.label, 60)}`)));
  const pane = element("section", { class: "pane", "aria-label": "Kernel texts" }, element("div", { class: "bar" }, element("h3", {}, "Kernel"), pick), texts.element);
  const update = () => {
    const met = meets("kernels", kernels, selection.values).map(i => kernels[i]);
    const kernel = selectedKernel() ?? met[0] ?? chosen ?? kernelByNumber.get(order[0]?.kernel) ?? kernels[0];
    if (!kernel) return;
    chosen = kernel;
    pick.value = String(kernel.number);
    texts.show(kernel);
  };
  if (!kernels.length) pane.append(empty("kernels", "This program has no kernels."));
  return { element: pane, update };
}

function selectedKernel() {
  if (selection.kind === "kernel") return kernelByNumber.get(selection.id);
  if (selection.kind === "launch") return kernelByNumber.get(launches[selection.id].kernel);
  if (selection.kind === "program") {
    return kernelByNumber.get(launches[stages.find(one => one.name === "program").launch[selection.id]]?.kernel);
  }
  return undefined;
}

const cutText = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// --- Graph, drawn: modules fold into boxes, a worker says where boxes lie, a canvas shows those in sight

const ROW = 84, BOX = 40, FEW = 150; // pixels from row to row, of a box; boxes that open by themselves

// The modules around each module, the outermost first, without the whole model.
const around = modules.map(one => {
  const parts = one.path === "" ? [] : one.path.split(".");
  return parts.map((_, k) => parts.slice(0, k + 1).join("."));
});

// The boxes of a stage: one for each closed module, one for each other node. Constants have no box,
// and views lie in that of what they show, unless all are asked for.
function contracted(one, opened, showsAll) {
  const boxOf = new Int32Array(one.count).fill(-1);
  const isConstant = new Uint8Array(one.count);
  const boxes = [], folded = new Map();
  for (let i = 0; i < one.count; i++) {
    const inputs = one.inputs[i] ?? [], op = one.op(i);
    const isView = op === "View";
    isConstant[i] = /^Const/.test(op) || (isView && inputs.length > 0 && inputs.every(n => isConstant[n])) ? 1 : 0;
    if (!showsAll && isConstant[i]) continue;
    if (!showsAll && isView && inputs.length && inputs[0] < i) { boxOf[i] = boxOf[inputs[0]]; if (boxOf[i] >= 0) { boxes[boxOf[i]].nodes.push(i); continue; } }
    const closed = around[one.module(i)]?.find(path => !opened.has(path));
    const key = closed === undefined ? undefined : `${isGradient(one, i)} ${closed}`;
    let box = folded.get(key);
    if (box === undefined) {
      box = boxes.length;
      boxes.push({ path: closed ?? null, nodes: [] });
      if (key !== undefined) folded.set(key, box);
    }
    boxes[box].nodes.push(i);
    boxOf[i] = box;
  }
  return { boxes, boxOf, ...edgesBetween(one, boxOf, boxes.length) };
}

// Is a node part of the gradient of what was recorded? Such nodes have boxes of their own: with those
// of the forward pass in them these would read each other.
const isGradient = (one, i) => (one.columns.call?.[i] ?? "").startsWith("gradient of");

function edgesBetween(one, boxOf, count) {
  const seen = new Set(), sources = [], targets = [];
  for (let i = 0; i < one.count; i++) {
    for (const input of boxOf[i] < 0 ? [] : one.inputs[i] ?? []) {
      const [from, to] = [boxOf[input], boxOf[i]];
      if (from < 0 || from === to || seen.has(from * count + to)) continue;
      seen.add(from * count + to);
      sources.push(from);
      targets.push(to);
    }
  }
  return { sources: Int32Array.from(sources), targets: Int32Array.from(targets) };
}

// Modules that open by themselves: level by level while few boxes come of it. Lists of layers stay
// one box.
function openedFirst(one) {
  if (folding) return new Set(folding === "none" ? around.flat() : []);
  const opened = new Set();
  const depth = Math.max(0, ...around.map(paths => paths.length));
  for (let level = 1; level <= depth; level++) {
    const next = new Set(opened);
    for (const paths of around) if (paths.length >= level && !isList(paths[level - 1])) next.add(paths[level - 1]);
    if (contracted(one, next, false).boxes.length > FEW) break;
    next.forEach(path => opened.add(path));
  }
  return opened;
}

// How many numbered parts a module has, where all are of one class: 32 of layers.0 to layers.31.
const layersOf = new Map();
for (const { path, class: kind } of modules) {
  const [, outer] = path.match(/^(.*)\.\d+$/) ?? [];
  if (outer === undefined) continue;
  const known = layersOf.get(outer) ?? { count: 0, kind };
  layersOf.set(outer, { count: known.count + 1, kind: known.kind === kind ? kind : null });
}
const isList = path => (layersOf.get(path)?.count ?? 0) > 1 && layersOf.get(path).kind !== null;

function labelOf(one, box) {
  if (box.path !== null && box.nodes.length > 1) {
    const kind = modules.find(m => m.path === box.path)?.class ?? "";
    const { count, kind: inner } = isList(box.path) ? layersOf.get(box.path) : { count: 1, kind };
    return [`${isGradient(one, box.nodes[0]) ? "∂ " : ""}${box.path}${count > 1 ? `  ×${count}` : ""}`, [inner, counted(box.nodes.length, "value")].filter(Boolean).join(", ")];
  }
  const i = box.nodes[0], text = one.text(i);
  if (one.columns === values) return [[one.op(i), values.name?.[i] || values.call?.[i]].filter(Boolean).join(" "), typeText(i)];
  return [one.op(i), text.includes(" : ") ? text.slice(text.lastIndexOf(" : ") + 3) : text];
}

// Where boxes lie. It runs in a worker and sees nothing of this page. A box lies in the row below the
// last of its operands; a few sweeps put each near to what it reads and to what reads it.
function placed({ widths, sources, targets, gap }) {
  const count = widths.length;
  const grouped = (keys, items) => {
    const first = new Int32Array(count + 1), list = new Int32Array(keys.length);
    for (const key of keys) first[key + 1]++;
    for (let i = 0; i < count; i++) first[i + 1] += first[i];
    const next = first.slice();
    keys.forEach((key, k) => { list[next[key]++] = items[k]; });
    return { first, list };
  };
  const reads = grouped(targets, sources), readBy = grouped(sources, targets);

  // Rows by depth first; an edge that closes a cycle (of folded modules) counts for nothing.
  const row = new Int32Array(count), state = new Uint8Array(count), cursor = reads.first.slice(0, count);
  for (let root = 0; root < count; root++) {
    const stack = state[root] ? [] : [root];
    while (stack.length) {
      const i = stack.at(-1);
      state[i] = 1;
      if (cursor[i] < reads.first[i + 1]) {
        const input = reads.list[cursor[i]++];
        if (state[input] === 0) stack.push(input);
        else if (state[input] === 2) row[i] = Math.max(row[i], row[input] + 1);
      } else {
        state[i] = 2;
        stack.pop();
        if (stack.length) row[stack.at(-1)] = Math.max(row[stack.at(-1)], row[i] + 1);
      }
    }
  }
  for (let i = 0; i < count; i++) { // leaves lie right above the first that reads them
    if (reads.first[i] < reads.first[i + 1]) continue;
    let least = Infinity;
    for (let k = readBy.first[i]; k < readBy.first[i + 1]; k++) least = Math.min(least, row[readBy.list[k]]);
    if (least < Infinity && least > 0) row[i] = least - 1;
  }

  const rows = [];
  for (let i = 0; i < count; i++) (rows[row[i]] ??= []).push(i);
  for (let r = 0; r < rows.length; r++) rows[r] ??= [];
  const x = new Float32Array(count), wanted = new Float32Array(count);
  for (const line of rows) {
    let right = 0;
    for (const i of line) { x[i] = right + widths[i] / 2; right += widths[i] + gap; }
    for (const i of line) x[i] -= right / 2;
  }
  const mean = (i, sides) => {
    let [sum, n] = [0, 0];
    for (const { first, list } of sides) {
      for (let k = first[i]; k < first[i + 1]; k++) { // what is far away pulls less
        const weight = 1 / Math.max(1, Math.abs(row[list[k]] - row[i])) ** 2;
        sum += weight * x[list[k]];
        n += weight;
      }
    }
    return n ? sum / n : x[i];
  };
  // The mean of packing from the left and from the right keeps boxes apart and near to their places.
  const settle = (line, sides) => {
    for (const i of line) wanted[i] = mean(i, sides);
    line.sort((a, b) => wanted[a] - wanted[b] || a - b);
    const apart = k => (widths[line[k - 1]] + widths[line[k]]) / 2 + gap;
    const left = line.map(i => wanted[i]);
    for (let k = 1; k < line.length; k++) left[k] = Math.max(left[k], left[k - 1] + apart(k));
    const right = line.map(i => wanted[i]);
    for (let k = line.length - 2; k >= 0; k--) right[k] = Math.min(right[k], right[k + 1] - apart(k + 1));
    line.forEach((i, k) => { x[i] = (left[k] + right[k]) / 2; });
  };
  for (let sweep = 0; sweep < 3; sweep++) {
    for (let r = 1; r < rows.length; r++) settle(rows[r], [reads]);
    for (let r = rows.length - 2; r >= 0; r--) settle(rows[r], sweep === 2 ? [reads, readBy] : [readBy]);
  }
  let least = Infinity, most = -Infinity;
  for (let i = 0; i < count; i++) { least = Math.min(least, x[i] - widths[i] / 2); most = Math.max(most, x[i] + widths[i] / 2); }
  for (let i = 0; i < count; i++) x[i] -= least;
  return { x, row, rows, width: Math.max(0, most - least) };
}

// One worker lays out all graphs. It is made of a Blob, as pages from files load no other file; where
// a page may have none, the layout runs here.
const layout = { worker: null, waiting: new Map(), asked: 0 };
function startWorker() {
  try {
    const text = `"use strict"; ${placed}; onmessage = ({ data }) => postMessage({ id: data.id, found: placed(data) });`;
    layout.worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    layout.worker.onmessage = ({ data }) => settled(data.id, data.found);
    layout.worker.onerror = event => { event.preventDefault(); layout.worker = null; for (const [id, { task }] of layout.waiting) settled(id, placed(task)); };
  } catch { layout.worker = null; }
}

function settled(id, found) {
  const waits = layout.waiting.get(id);
  layout.waiting.delete(id);
  waits?.done(found);
}

function lay(task) {
  if (!layout.worker && !layout.asked) startWorker();
  const id = ++layout.asked;
  return new Promise(done => {
    layout.waiting.set(id, { task, done });
    if (layout.worker) layout.worker.postMessage({ id, ...task });
    else setTimeout(() => settled(id, placed(task)));
  });
}

const NAME = "600 12px system-ui, sans-serif", SMALL = "11px system-ui, sans-serif";
const BAND = 8; // rows whose edges are kept in one list

// The drawing of one stage. `view` is the place of the upper left corner, and the scale.
function drawnStage(one, title) {
  const opened = openedFirst(one);
  let showsAll = false, shape = null, met = new Map(), at = -1, isFitted = false, version = 0;
  const view = { x: 0, y: 0, scale: 1 };
  const area = surface(`${title}, drawn. Arrows go along edges, Enter folds and unfolds.`, (context, width, height) => {
    if (shape) drawShape(context, width, height);
  }, { onkeydown: keyed });
  const waits = element("p", { class: "empty", style: "position: absolute; left: 1rem; top: 0" }, "Laying out …");
  area.element.append(waits);

  async function arrange(keep) {
    const wanted = ++version;
    const held = keep >= 0 && shape ? { node: keep, x: (shape.x[shape.boxOf[keep]] - view.x) * view.scale, y: (shape.y(shape.boxOf[keep]) - view.y) * view.scale } : null;
    const found = contracted(one, opened, showsAll);
    const labels = found.boxes.map(box => labelOf(one, box));
    const names = labels.map(([name]) => cut(name, 220, NAME)), smalls = labels.map(([, small]) => cut(small, 220, SMALL));
    const widths = Float32Array.from(labels, (_, k) => Math.max(56, textWidth(names[k], NAME), textWidth(smalls[k], SMALL)) + 24);
    const laid = await lay({ widths, sources: found.sources, targets: found.targets, gap: 26 });
    if (wanted !== version) return;
    const box = i => found.boxes[i];
    shape = { ...found, ...laid, names, smalls, widths, y: i => laid.row[i] * ROW, height: laid.rows.length * ROW,
      colour: Array.from(found.boxes, (_, i) => boxColour(one, box(i))), isFolded: i => box(i).path !== null && box(i).nodes.length > 1, bands: bandsOf(found, laid) };
    waits.hidden = true;
    if (!found.boxes.length) { waits.hidden = false; waits.textContent = "There is nothing to draw: only constants."; }
    marked(lastNodes, lastId, false);
    if (held && shape.boxOf[held.node] >= 0) {
      const i = shape.boxOf[held.node];
      [view.x, view.y] = [shape.x[i] - held.x / view.scale, shape.y(i) - held.y / view.scale];
    } else if (!isFitted) fit(true);
    area.draw();
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark(`drawn ${one.name}`)));
  }

  // The whole graph in sight; at first not smaller than can be read, beginning at the top.
  function fit(isReadable) {
    if (!area.width || !shape) return;
    isFitted = true;
    const whole = Math.min(area.width / (shape.width + 60), area.height / (shape.height + 40), 1);
    view.scale = isReadable ? Math.max(whole, 0.85) : whole;
    view.x = shape.width / 2 - area.width / view.scale / 2;
    view.y = Math.min(-20, (shape.height - ROW + BOX) / 2 - area.height / view.scale / 2);
    if (shape.height * view.scale > area.height) view.y = isReadable ? -20 : view.y;
    if (isReadable && shape.width * view.scale > area.width && shape.rows[0]?.length) view.x = shape.x[shape.rows[0][0]] - area.width / view.scale / 2;
    area.draw();
    if (at >= 0 || met.size) reveal(lastId >= 0 ? lastId : lastNodes[0]);
  }
  area.resized = () => { if (!isFitted) fit(true); };

  function drawShape(context, width, height) {
    const { scale } = view;
    context.save();
    context.scale(scale, scale);
    context.translate(-view.x, -view.y);
    const sight = { left: view.x, right: view.x + width / scale, top: view.y, bottom: view.y + height / scale };
    drawEdges(context, sight, scale);
    const seen = boxesIn(sight);
    drawBoxes(context, seen, scale);
    if (scale > 0.42) drawLabels(context, seen, scale);
    context.restore();
  }

  function boxesIn({ left, right, top, bottom }) {
    const seen = [];
    const last = Math.min(shape.rows.length - 1, Math.floor(bottom / ROW));
    for (let r = Math.max(0, Math.floor((top - BOX) / ROW)); r <= last; r++) {
      const line = shape.rows[r];
      let [low, high] = [0, line.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (shape.x[line[middle]] + shape.widths[line[middle]] / 2 < left) low = middle + 1; else high = middle;
      }
      for (let k = low; k < line.length && shape.x[line[k]] - shape.widths[line[k]] / 2 <= right; k++) seen.push(line[k]);
    }
    return seen;
  }

  function drawEdges(context, sight, scale) {
    context.lineWidth = Math.max(1, 0.6 / scale);
    context.strokeStyle = paint.edge;
    context.globalAlpha = 0.6;
    context.beginPath();
    const mine = [];
    for (const edge of shape.bands.inSight(sight.top / ROW, sight.bottom / ROW)) {
      const [from, to] = [shape.sources[edge], shape.targets[edge]];
      if (from === at || to === at) { mine.push(edge); continue; }
      const [x0, x1] = [shape.x[from], shape.x[to]];
      if (Math.max(x0, x1) + 160 < sight.left || Math.min(x0, x1) - 160 > sight.right) continue;
      trace(context, from, to, scale);
    }
    context.stroke();
    context.globalAlpha = 1;
    context.beginPath();
    context.strokeStyle = paint.strong;
    context.lineWidth = Math.max(1.5, 1.2 / scale);
    for (const edge of mine) trace(context, shape.sources[edge], shape.targets[edge], scale);
    context.stroke();
  }

  // A line from the lower side of one box to the upper side of another. One that passes rows bends
  // around what lies between.
  function trace(context, from, to, scale) {
    const [x0, y0, x1, y1] = [shape.x[from], shape.y(from) + BOX, shape.x[to], shape.y(to)];
    context.moveTo(x0, y0);
    if (scale < 0.15) return context.lineTo(x1, y1);
    const passed = shape.row[to] - shape.row[from];
    const bend = passed > 1 && Math.abs(x1 - x0) < 90 ? 90 + 8 * Math.min(passed, 12) : passed < 1 ? -120 : 0;
    const reach = Math.min(Math.abs(y1 - y0) / 2, ROW * 1.2) + (passed < 1 ? ROW / 2 : 0);
    context.bezierCurveTo(x0 + bend, y0 + reach, x1 + bend, y1 - reach, x1, y1);
    if (scale > 0.5) { // the head of an arrow
      context.moveTo(x1 - 4, y1 - 6);
      context.lineTo(x1, y1);
      context.lineTo(x1 + 4, y1 - 6);
    }
  }

  function drawBoxes(context, seen, scale) {
    const round = scale > 0.25 ? 7 : 0;
    const outline = i => {
      const left = shape.x[i] - shape.widths[i] / 2;
      if (round) context.roundRect(left, shape.y(i), shape.widths[i], BOX, round); else context.rect(left, shape.y(i), shape.widths[i], BOX);
    };
    const group = (list, fill, stroke, line) => {
      if (!list.length) return;
      context.beginPath();
      list.forEach(outline);
      context.fillStyle = fill;
      context.fill();
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.stroke();
    };
    group(seen.filter(i => !met.has(i) && i !== at), paint.raised, paint.edge, Math.max(1, 0.5 / scale));
    group(seen.filter(i => met.has(i) && i !== at), paint.mark, paint.strong, Math.max(1.5, 1.2 / scale));
    group(seen.filter(i => i === at), paint.mark, paint.strong, Math.max(3, 2.5 / scale));
    stripes(context, seen);
  }

  function stripes(context, seen) {
    const byColour = new Map();
    for (const i of seen) if (shape.colour[i]) byColour.set(shape.colour[i], [...(byColour.get(shape.colour[i]) ?? []), i]);
    for (const [colour, list] of byColour) {
      context.fillStyle = paint[colour];
      for (const i of list) context.fillRect(shape.x[i] - shape.widths[i] / 2 + 5, shape.y(i) + 7, 4, BOX - 14);
    }
  }

  function drawLabels(context, seen) {
    context.textBaseline = "middle";
    context.font = NAME;
    context.fillStyle = paint.text;
    const left = i => shape.x[i] - shape.widths[i] / 2 + 15;
    for (const i of seen) context.fillText(shape.names[i], left(i), shape.y(i) + 13);
    context.font = SMALL;
    context.fillStyle = paint.faint;
    for (const i of seen) context.fillText(shape.smalls[i], left(i), shape.y(i) + 28);
    context.strokeStyle = paint.edge;
    context.lineWidth = 1;
    for (const i of seen.filter(shape.isFolded)) { // a second edge: more lies in it
      context.beginPath();
      context.roundRect(shape.x[i] - shape.widths[i] / 2 + 3, shape.y(i) + 3, shape.widths[i] - 6, BOX - 6, 5);
      context.stroke();
    }
  }

  function boxAt(x, y) {
    if (!shape) return -1;
    const [wx, wy] = [view.x + x / view.scale, view.y + y / view.scale];
    return boxesIn({ left: wx, right: wx, top: wy, bottom: wy })[0] ?? -1;
  }

  function choose(i) {
    if (i < 0) return clear();
    clicked = i;
    if (shape.isFolded(i)) select("module", shape.boxes[i].path); else select(one.name, shape.boxes[i].nodes[0]);
  }

  function toggle(i) {
    if (i < 0) return;
    const box = shape.boxes[i];
    if (shape.isFolded(i)) opened.add(box.path); else fold(box.nodes[0]);
    arrange(box.nodes[0]);
  }

  function refold(which) {
    folding = which;
    opened.clear();
    openedFirst(one).forEach(path => opened.add(path));
    isFitted = false;
    arrange(-1);
    remember();
  }

  // Closes the innermost module around a node that is open.
  function fold(node) {
    const inner = around[one.module(node)]?.filter(path => opened.has(path)).at(-1);
    if (inner !== undefined) for (const path of [...opened]) if (isInside(path, inner)) opened.delete(path);
  }

  let lastNodes = [], lastId = -1, clicked = -1;
  function marked(nodes, id, isNew) {
    [lastNodes, lastId] = [nodes, id];
    met = new Map();
    at = -1;
    if (!shape) return;
    for (const node of nodes) if (shape.boxOf[node] >= 0) met.set(shape.boxOf[node], (met.get(shape.boxOf[node]) ?? 0) + 1);
    if (id >= 0) at = shape.boxOf[id];
    const isOfModule = i => shape.boxes[i]?.path === selection.id && shape.isFolded(i);
    if (selection.kind === "module") at = isOfModule(clicked) ? clicked : shape.boxes.findIndex((_, i) => isOfModule(i));
    if (isNew && (met.size || at >= 0) && ![...met.keys(), at].some(i => i >= 0 && isInSight(i))) reveal(id >= 0 ? id : nodes.find(node => shape.boxOf[node] >= 0) ?? -1);
    area.draw();
  }

  function isInSight(i) {
    const [x, y] = [(shape.x[i] - view.x) * view.scale, (shape.y(i) - view.y) * view.scale];
    return x > 0 && y > 0 && x < area.width && y + BOX * view.scale < area.height;
  }

  function reveal(node) {
    const i = shape && node >= 0 ? shape.boxOf[node] : -1;
    if (i < 0 || !area.width) return;
    view.x = shape.x[i] - area.width / view.scale / 2;
    view.y = shape.y(i) - area.height / view.scale / 2;
    area.draw();
  }

  function zoom(factor, x = area.width / 2, y = area.height / 2) {
    const next = Math.max(0.02, Math.min(3, view.scale * factor));
    view.x += x / view.scale - x / next;
    view.y += y / view.scale - y / next;
    view.scale = next;
    area.draw();
  }

  function move(dx, dy) {
    view.x -= dx / view.scale;
    view.y -= dy / view.scale;
    area.draw();
  }

  function keyed(event) {
    const way = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    const does = { "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: () => fit(false), Enter: () => toggle(at), " ": () => toggle(at) }[event.key];
    if (!shape || event.ctrlKey || event.metaKey || event.altKey || (!way && !does)) return;
    event.preventDefault();
    if (way && event.shiftKey) move(-80 * way[0], -80 * way[1]);
    else if (way) stepTo(way);
    else does();
  }

  // The operand or reader that lies nearest, or the neighbour of the row.
  function stepTo([dx, dy]) {
    if (at < 0) return choose(shape.rows[0]?.[0] ?? -1);
    const line = shape.rows[shape.row[at]];
    const near = dy > 0 ? neighbours(shape.sources, shape.targets) : neighbours(shape.targets, shape.sources);
    const next = dx ? line[line.indexOf(at) + dx] : near.sort((a, b) => Math.abs(shape.x[a] - shape.x[at]) - Math.abs(shape.x[b] - shape.x[at]))[0];
    if (next !== undefined) choose(next);
  }

  function neighbours(mine, theirs) {
    const found = [];
    mine.forEach((box, edge) => { if (box === at) found.push(theirs[edge]); });
    return found;
  }

  gestures(area.canvas, { move, zoom, click: (x, y) => choose(boxAt(x, y)), hover: event => {
    const i = boxAt(event.offsetX, event.offsetY);
    area.canvas.style.cursor = i >= 0 ? "pointer" : "";
    tell(event, i < 0 ? "" : tipOf(one, shape.boxes[i], shape.isFolded(i)));
  } });
  area.canvas.addEventListener("dblclick", event => toggle(boxAt(event.offsetX, event.offsetY)));

  const all = element("input", { type: "checkbox", onchange: () => { showsAll = all.checked; arrange(-1); } });
  const bar = element("div", { class: "bar" },
    button("Fit", () => fit(false), { title: "The whole graph (0)" }), button("+", () => zoom(1.25), { "aria-label": "Larger" }), button("−", () => zoom(0.8), { "aria-label": "Smaller" }),
    button("Fold all", () => refold("all")), button("Unfold all", () => refold("none")),
    element("label", {}, all, "constants, views"));
  arrange(-1);
  redrawn.push(() => area.draw());
  return { elements: [bar, area.element], reveal, mark: (nodes, id) => marked(nodes, id, true) };
}

const redrawn = []; // what is drawn again when colours change

function boxColour(one, box) {
  const found = new Set();
  for (const node of box.nodes) for (const value of one.of(node)) found.add(kernelOfValue[value]);
  found.delete(-1);
  return found.size === 1 ? colourOf([...found][0]) : null;
}

function tipOf(one, box, isFolded) {
  if (isFolded) return `${isGradient(one, box.nodes[0]) ? "The gradient of " : ""}${box.path}\n${counted(box.nodes.length, "value")}; Enter or a double click unfolds it`;
  const i = box.nodes[0], value = one.of(i)[0];
  const where = value === undefined ? "" : place(values.file?.[value] ?? -1, values.line?.[value]);
  return [cutText(one.text(i), 300), modulePath(one.module(i)), where].filter(Boolean).join("\n");
}

// The edges of each few rows; those that pass many are in a list of their own.
function bandsOf({ sources, targets }, { row, rows }) {
  const bands = Array.from({ length: Math.ceil(rows.length / BAND) + 1 }, () => []), long = [];
  for (let edge = 0; edge < sources.length; edge++) {
    const [a, b] = [row[sources[edge]], row[targets[edge]]];
    const [first, last] = [Math.floor(Math.min(a, b) / BAND), Math.floor(Math.max(a, b) / BAND)];
    if (last - first > 8) long.push(edge);
    else for (let band = first; band <= last; band++) bands[band].push(edge);
  }
  const stamp = new Int32Array(sources.length);
  let turn = 0;
  return {
    inSight(top, bottom) {
      turn++;
      const found = [];
      for (const edge of long) {
        const [a, b] = [row[sources[edge]], row[targets[edge]]];
        if (Math.min(a, b) <= bottom && Math.max(a, b) >= top) found.push(edge);
      }
      const last = Math.min(bands.length - 1, Math.floor(bottom / BAND));
      for (let band = Math.max(0, Math.floor(top / BAND)); band <= last; band++) {
        for (const edge of bands[band]) if (stamp[edge] !== turn) { stamp[edge] = turn; found.push(edge); }
      }
      return found;
    },
  };
}

// --- Spellings: what the rules found equal, and which was taken

function spellings() {
  const classes = given.spellings ?? [];
  if (!classes.length) return { element: empty("spellings", "No value of this program has another spelling that was kept: the rules found nothing equal to what was recorded.") };
  let chosen = 0;
  const right = element("div", {});
  const buttons = classes.map((one, k) => element("li", {}, button(classTitle(one), () => { chosen = k; show(); })));
  const show = () => {
    buttons.forEach((item, k) => item.firstChild.setAttribute("aria-pressed", String(k === chosen)));
    right.replaceChildren(...spellingTable(classes[chosen]));
  };
  const update = () => {
    const met = meets("spellings", classes, selection.values);
    if (met.length && !met.includes(chosen)) chosen = met[0];
    show();
    buttons[chosen].scrollIntoView?.({ block: "nearest" });
  };
  show();
  return { update, element: element("div", {}, element("p", {}, `${counted(classes.length, "value")} of this program can be computed in more than one way. A rule made each of them; one was taken.`),
    note("spellings"), element("div", { class: "two" }, element("ul", { class: "pickable", "aria-label": "Values with several spellings" }, buttons), right)) };
}

const classTitle = one => `${className(one)}  (${one.nodes.length})`;

function className(one) {
  const isComputed = id => !/^(View|Constant)$/.test(values.ops[values.op[id]]);
  const value = one.of?.findLast(isComputed) ?? one.of?.[0];
  if (value === undefined) return cutText(one.nodes.find(node => node.chosen)?.text ?? one.nodes[0].text, 60);
  const where = place(values.file?.[value] ?? -1, values.line?.[value]);
  return `%${value} ${[values.ops[values.op[value]], modulePath(values.module?.[value] ?? -1), where].filter(Boolean).join(", ")}`;
}

function spellingTable(one) {
  const cheapest = Math.min(...one.nodes.map(node => node.cost ?? Infinity));
  const columns = [
    { title: "spelling", text: true, value: node => node.text, show: node => [element("code", {}, node.text), node.chosen ? element("strong", { class: "good" }, "  taken") : ""] },
    { title: "made by", text: true, value: node => node.rule, show: node => node.rule ? `${node.rule}${node.kind ? ` (${node.kind})` : ""}` : "as recorded" },
    { title: "a run with it", hint: "as predicted, with all else as it is", value: node => node.cost ?? Infinity, show: node => duration(node.cost) },
    { title: "to the least", value: node => node.cost ?? Infinity, show: node => (cheapest > 0 && isFinite(cheapest) && node.cost ? `${digits(node.cost / cheapest)}x` : "") },
    { title: "why not", text: true, value: node => node.why_not ?? "", show: node => node.why_not || "" },
  ];
  const ofValues = element("p", {}, "Computes ", links(one.of ?? [], "value", i => `%${i}`));
  return [ofValues, table("Spellings", columns, one.nodes, { sorted: 2, isDown: false }), element("p", { class: "faint" }, "exact: the same bits; rounding: the same up to rounding; domain: where operands are in the rule's domain.")];
}

// --- Timeline: launches, steps of the compile, the search, two runs

function timeline() {
  const kinds = [["run", "Run"], ["compile", "Compile"], ["search", "Search"], ["two", "Two runs"]].map(([name, title]) => ({ name, title, tracks: tracksOf(name) })).filter(one => one.tracks.length);
  if (!kinds.length) return { element: empty("timeline", "Nothing was timed: neither a run nor the compile has times in this document.") };
  const below = element("div", {});
  const words = element("p", {});
  const area = tracks();
  const show = name => {
    const one = kinds.find(other => other.name === name);
    area.show(one.tracks);
    words.textContent = timelineWords(one);
    below.replaceChildren(...(name === "two" ? differences() : name === "compile" ? [steps(one.tracks[0].items)] : []));
  };
  const missing = notes.two ? element("p", { class: "faint" }, notes.two) : "";
  show(kinds[0].name);
  return { update: area.draw, element: element("div", {}, element("div", { class: "bar" }, choice("What is shown", kinds.map(one => [one.name, one.title]), kinds[0].name, show), area.buttons),
    words, area.element, note("timeline"), below, missing) };
}

function timelineWords({ name, tracks: shownTracks }) {
  const items = shownTracks.flatMap(one => one.items);
  const end = Math.max(...items.map(one => one.end));
  if (name === "run") {
    const waited = items.reduce((sum, one) => sum + (one.wait ?? 0), 0), barriers = items.filter(one => one.barrier).length;
    return `${counted(items.length, "launch", "launches")} on ${counted(shownTracks.length, "track")}, ${duration(end)} from first to last${waited ? `; hatched: ${duration(waited)} of waiting` : ""}${barriers ? `; thin lines: ${counted(barriers, "barrier")}, where all threads wait for each other` : ""}. ${isTimed ? sumInWords() : ""}`;
  }
  if (name === "two") return `Launches of each run end to end, in program order: ${duration(launchSum)} here, ${duration(otherSum())} in ${given.other.title ?? "the other run"}.`;
  return name === "compile" ? `The compile took ${duration(end)}; a step lies below the one that it is part of.` : `The search took ${duration(end)}.`;
}

const otherSum = () => (given.other?.launches ?? []).reduce((sum, row) => sum + (row.seconds ?? 0), 0);

function tracksOf(name) {
  if (name === "run") return runTracks(given.timeline?.run ?? []);
  if (name === "two") return given.other?.launches?.length && isTimed ? [["this run", launches, true], [given.other.title ?? "the other run", given.other.launches, false]].map(endToEnd) : [];
  const all = given.timeline?.[name] ?? [], names = [...new Set(all.map(one => one.name))]; // one colour for each name
  const items = all.map(one => ({ start: one.start, end: one.end, text: one.name, colour: `k${names.indexOf(one.name) % NAMED}`, level: one.depth ?? 0, launch: -1 }));
  return items.length ? [{ name, items: items.sort((a, b) => a.start - b.start) }] : [];
}

function runTracks(run) {
  const byTrack = new Map();
  for (const one of run) {
    const row = launches[one.launch];
    if (!byTrack.has(one.track)) byTrack.set(one.track, []);
    byTrack.get(one.track).push({ start: one.start, end: one.end, wait: one.wait ?? 0, barrier: Boolean(one.barrier), level: 0, launch: one.launch, colour: colourOf(row?.kernel),
      text: `${row ? `${kernelName(row.kernel)} ${launchName(row)}` : `launch ${one.launch}`}${one.trip ? `, trip ${one.trip}` : ""}` });
  }
  return [...byTrack].map(([name, items]) => ({ name: String(name), items: items.sort((a, b) => a.start - b.start) }));
}

function endToEnd([name, rows, isOurs]) {
  let start = 0;
  const items = rows.map((row, k) => {
    const item = { start, end: start + (row.seconds ?? 0), level: 0, launch: isOurs ? k : -1, colour: isOurs ? colourOf(row.kernel) : colourOf(sameKernel(row)), text: launchName(row) };
    start = item.end;
    return item;
  });
  return { name, items };
}

// The kernel of this run that a launch of the other is, by its label and where it comes from.
const sameKernel = row => (launches.find(mine => mine.label === row.label && mine.origin === row.origin) ?? { kernel: -2 }).kernel;

function differences() {
  const rows = pairedLaunches();
  const [mine, theirs] = [given.run_seconds, given.other.run_seconds];
  const said = mine && theirs ? `A run takes ${duration(mine)} here and ${duration(theirs)} there: ${mine > theirs ? `${duration(mine - theirs)} lost` : `${duration(theirs - mine)} won`}. ` : "";
  return [element("h3", {}, "Differences, the most time lost first"), element("p", { class: "faint" }, `${said}Launches are paired by label and origin. Lost: slower here than there.`), table("Differences", [
    { title: "launch", text: true, value: row => row.name, show: row => (row.index >= 0 ? link(row.name, () => select("launch", row.index)) : row.name) },
    { title: "here", value: row => row.mine ?? -1, show: row => (row.mine === null ? "none" : duration(row.mine)) },
    { title: "there", value: row => row.theirs ?? -1, show: row => (row.theirs === null ? "none" : duration(row.theirs)) },
    { title: "lost", value: row => row.lost, show: row => element("span", { class: row.lost > 0 ? "wrong" : "good" }, `${row.lost > 0 ? "+" : ""}${duration(row.lost)}`) },
    { title: "ratio", value: row => (row.mine ?? 0) / (row.theirs || NaN), show: row => (row.mine && row.theirs ? `${digits(row.mine / row.theirs)}x` : "") },
  ], rows, { sorted: 3 })];
}

function pairedLaunches() {
  const key = row => `${row.label}\n${row.origin}`;
  const waiting = new Map();
  for (const row of given.other.launches) waiting.set(key(row), [...(waiting.get(key(row)) ?? []), row]);
  const rows = launches.map((row, index) => {
    const theirs = waiting.get(key(row))?.shift() ?? null;
    return { index, name: launchName(row), mine: row.seconds ?? 0, theirs: theirs && (theirs.seconds ?? 0), lost: (row.seconds ?? 0) - (theirs?.seconds ?? 0) };
  });
  for (const row of [...waiting.values()].flat()) rows.push({ index: -1, name: launchName(row), mine: null, theirs: row.seconds ?? 0, lost: -(row.seconds ?? 0) });
  return rows;
}

// Each kind of step with the time of all that have its name.
function steps(items) {
  const byName = new Map();
  for (const { text, colour, start, end } of items) {
    const row = byName.get(text) ?? { text, colour, times: 0, seconds: 0 };
    byName.set(text, { ...row, times: row.times + 1, seconds: row.seconds + end - start });
  }
  return table("Steps of the compile", [
    { title: "step", text: true, value: row => row.text, show: row => patched(row.colour, row.text) },
    { title: "times", value: row => row.times, show: row => whole(row.times) },
    { title: "time in all", value: row => row.seconds, show: row => duration(row.seconds), hint: "with that of the steps inside of it" },
  ], [...byName.values()], { sorted: 2 });
}

// Bars along time, a track below the other, on a canvas that zooms and pans.
const BAR = 24, HEAD = 26, GUTTER = 88;
function tracks() {
  let shownTracks = [], end = 1, from = 0, span = 1;
  const area = surface("Timeline. Left and right pan, plus and minus zoom, up and down go from launch to launch.", draw, { onkeydown: keyed });
  const gutter = () => Math.min(GUTTER, area.width / 4);
  const x = seconds => gutter() + (seconds - from) / span * (area.width - gutter());

  function show(next) {
    shownTracks = next;
    let top = HEAD;
    for (const track of shownTracks) {
      track.top = top;
      track.levels = 1 + Math.max(0, ...track.items.map(one => one.level));
      top += track.levels * BAR + 8;
    }
    end = Math.max(...shownTracks.flatMap(one => one.items.map(item => item.end)), 1e-9);
    [from, span] = [0, end];
    area.element.style.height = `${top + 4}px`;
    area.draw();
  }

  function draw(context, width, height) {
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    drawScale(context, width, height);
    for (const track of shownTracks) {
      context.fillStyle = paint.faint;
      context.fillText(cut(track.name, gutter() - 12), 8, track.top + BAR / 2);
      context.save();
      context.beginPath();
      context.rect(gutter(), 0, width, height);
      context.clip();
      drawTrack(context, track, width);
      context.restore();
    }
  }

  function drawScale(context, width, height) {
    context.strokeStyle = paint.line;
    context.fillStyle = paint.faint;
    context.lineWidth = 1;
    for (const tick of ticks(from, from + span, width / 110)) {
      const at = Math.round(x(tick)) + 0.5;
      if (at < gutter()) continue;
      context.beginPath();
      context.moveTo(at, 18);
      context.lineTo(at, height);
      context.stroke();
      const text = duration(tick), room = textWidth(text);
      context.fillText(text, Math.max(gutter(), Math.min(at - room / 2, width - room - 4)), 10);
    }
  }

  function drawTrack(context, track, width) {
    const last = new Float32Array(track.levels).fill(-1e9);
    for (let k = firstInSight(track); k < track.items.length && track.items[k].start - (track.items[k].wait ?? 0) < from + span; k++) {
      const item = track.items[k];
      const [left, right] = [x(item.start), x(item.end)];
      if (right < 0 || right < last[item.level] + 0.4) continue; // narrower than what can be seen
      last[item.level] = right;
      drawItem(context, item, left, Math.max(right, left + 1), track.top + item.level * BAR, width);
    }
  }

  function drawItem(context, item, left, right, top, width) {
    if (item.wait > 0) hatch(context, x(item.start - item.wait), left, top);
    if (item.barrier) {
      context.fillStyle = paint.text;
      context.fillRect(left - 0.5, top - 4, 1, BAR + 6);
    }
    context.fillStyle = paint[item.colour];
    context.fillRect(left, top, Math.max(1, right - left - (right - left > 3 ? 1 : 0)), BAR - 2);
    if (item.launch >= 0 && isChosenLaunch(item.launch)) {
      context.strokeStyle = paint.text;
      context.lineWidth = 2;
      context.strokeRect(left + 1, top + 1, Math.max(1, right - left - 3), BAR - 4);
    }
    const [shownLeft, shownRight] = [Math.max(left, gutter()), Math.min(right, width)];
    if (shownRight - shownLeft < 30) return;
    context.fillStyle = paint.page;
    context.fillText(cut(item.text, shownRight - shownLeft - 10), shownLeft + 5, top + BAR / 2 - 1);
  }

  function hatch(context, left, right, top) {
    context.strokeStyle = paint.edge;
    context.lineWidth = 1;
    context.beginPath();
    for (let at = Math.max(left, gutter()); at < Math.min(right, area.width); at += 5) { context.moveTo(at, top + BAR - 4); context.lineTo(Math.min(at + 8, right), top + 4); }
    context.stroke();
  }

  // Bars of one level follow each other; those of several may lie inside of one that began before.
  function firstInSight({ items, levels }) {
    if (levels > 1) return 0;
    let [low, high] = [0, items.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (items[middle].end < from) low = middle + 1; else high = middle;
    }
    return low;
  }

  function itemAt(px, py) {
    const track = shownTracks.find(one => py >= one.top && py < one.top + one.levels * BAR);
    const level = track ? Math.floor((py - track.top) / BAR) : 0;
    return track?.items.find(item => item.level === level && px >= x(item.start) - 1 && px <= Math.max(x(item.end), x(item.start) + 2));
  }

  function limit() {
    span = Math.max(end * 1e-6, Math.min(end, span));
    from = Math.max(0, Math.min(end - span, from));
    area.draw();
  }

  function zoom(factor, px = area.width / 2) {
    const at = from + Math.max(0, px - gutter()) / (area.width - gutter()) * span;
    const next = Math.max(end * 1e-6, Math.min(end, span / factor));
    from = at - (at - from) * next / span;
    span = next;
    limit();
  }

  function move(dx) {
    from -= dx / (area.width - gutter()) * span;
    limit();
  }

  function keyed(event) {
    const does = { ArrowLeft: () => move(80), ArrowRight: () => move(-80), "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5),
      0: fit, ArrowDown: () => step(1), ArrowUp: () => step(-1), Enter: () => selection.kind === "launch" && open("kernels") }[event.key];
    if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    does();
  }

  function fit() {
    [from, span] = [0, end];
    limit();
  }

  function step(by) {
    if (!shownTracks.some(track => track.items.some(item => item.launch >= 0))) return;
    const next = selection.kind === "launch" ? selection.id + by : 0;
    if (next < 0 || next >= launches.length) return;
    select("launch", next);
    const item = shownTracks.flatMap(track => track.items).find(one => one.launch === next);
    if (item && (item.start < from || item.end > from + span)) { from = item.start - span / 4; limit(); }
  }

  gestures(area.canvas, { move: dx => move(dx), zoom: (factor, px) => zoom(factor, px),
    click: (px, py) => { const item = itemAt(px, py); if (item?.launch >= 0) select("launch", item.launch); },
    hover: event => { const item = itemAt(event.offsetX, event.offsetY); tell(event, item ? `${item.text}\n${duration(item.end - item.start)}, from ${duration(item.start)}${item.wait ? `\nwaited ${duration(item.wait)}` : ""}${item.barrier ? "\nafter a barrier" : ""}` : ""); } });
  redrawn.push(() => area.draw());
  const buttons = element("span", { class: "bar" }, button("Fit", fit, { title: "All of it (0)" }), button("+", () => zoom(1.5), { "aria-label": "Zoom in" }), button("−", () => zoom(1 / 1.5), { "aria-label": "Zoom out" }));
  return { element: area.element, buttons, show, draw: area.draw };
}

// Is a launch what is selected, or of what is selected?
function isChosenLaunch(index) {
  if (selection.kind === "launch") return selection.id === index;
  if (selection.kind === "kernel") return launches[index].kernel === selection.id;
  return false;
}

// --- Memory: what lies where in the arena while a run goes on, and what makes the peak

function memory() {
  const about = given.memory;
  if (!about) return { element: empty("memory", "Nothing is known of this program's memory.") };
  const arena = buffers.map((one, id) => ({ ...one, id })).filter(one => one.kind === "arena" && one.offset !== null && one.offset !== undefined);
  const map = arena.length ? arenaMap(arena, about) : null;
  const all = bufferTable();
  const peak = about.peak?.buffers?.length ? [element("h2", {}, "The peak"), element("p", {}, peakInWords()), peakTable(about.peak)] : [];
  return { update: () => { map?.draw(); all.refresh(); }, element: element("div", {}, element("h2", {}, "What a run holds"), kindsBar(), note("memory"),
    element("h2", {}, "The arena over a run"), element("p", {}, reuseInWords(about)), map ? map.element : element("p", { class: "faint" }, "This program stores nothing between its launches."),
    ...peak, element("h2", {}, "All buffers"), all) };
}

function reuseInWords({ arena_bytes: arena, sum_bytes: sum }) {
  if (!arena) return "The arena holds nothing.";
  if (!sum || sum <= arena) return `The arena has ${bytes(arena)}; no two of its values share memory.`;
  return `The arena has ${bytes(arena)}. Its values would take ${bytes(sum)} if each had memory of its own: reuse saves ${percent(1 - arena / sum)}.`;
}

function peakInWords() {
  const { at, bytes: size, buffers: held } = given.memory.peak;
  const largest = held.map(id => buffers[id]).filter(Boolean).sort((a, b) => b.bytes - a.bytes)[0];
  const where = launches[at] ? `launch ${at} (${launchName(launches[at])})` : `launch ${at}`;
  const line = largest?.lines?.[0] ? ` of ${place(...largest.lines[0])}` : "";
  return `The arena is fullest at ${where}: ${counted(held.length, "value")} ${held.length === 1 ? "holds" : "hold"} ${bytes(size)}.${largest ? ` The largest is ${largest.name}${line}, ${bytes(largest.bytes)}${largest.origin ? `: ${largest.origin}` : ""}.` : ""}`;
}

// What an executable holds by kind; null for one that has not run: it holds nothing yet.
function heldMemory() {
  const report = given.memory?.report;
  return report && Object.values(report).some(size => size > 0) ? report : null;
}

const KINDS = ["weight", "state", "derived", "input", "output", "arena", "scratch"];
function kindsBar() {
  const report = heldMemory();
  const sizes = report ? Object.entries(report).map(([name, size]) => [name.replace(/_bytes$/, "").replaceAll("_", " "), size])
    : KINDS.map(kind => [kind, kind === "arena" ? given.memory.arena_bytes : buffers.filter(one => one.kind === kind).reduce((sum, one) => sum + one.bytes, 0)]);
  const rows = sizes.filter(([, size]) => size > 0).map(([name, size]) => ({ name, size })).sort((a, b) => b.size - a.size);
  const total = rows.reduce((sum, row) => sum + row.size, 0);
  rows.forEach((row, k) => { row.colour = `k${Math.min(k, NAMED)}`; });
  const bar = element("div", { class: "stack", role: "img", "aria-label": "Bytes by kind" }, rows.map(row => element("span", { style: `flex: ${row.size / total} 0 0; background: var(--${row.colour})` })));
  return element("div", {}, bar, table("Bytes by kind", [
    { title: "kind", text: true, value: row => row.name, show: row => patched(row.colour, row.name) },
    { title: "bytes", value: row => row.size, show: row => bytes(row.size) },
    { title: "share", value: row => row.size, show: row => percent(row.size / total) },
  ], rows));
}

const bufferColumns = [
  { title: "buffer", text: "short", value: one => one.name, show: one => cutText(one.name, 60) },
  { title: "kind", text: "short", value: one => one.kind },
  { title: "bytes", value: one => one.bytes, show: one => bytes(one.bytes) },
  { title: "held", value: one => (one.last ?? 0) - (one.first ?? 0), show: one => (one.first >= 0 && one.last >= one.first ? `${one.first} to ${one.last}` : ""), hint: "from launch to launch" },
  { title: "line", text: true, value: one => (one.lines?.[0] ? place(...one.lines[0]) : "") },
  { title: "of", text: true, value: one => one.origin ?? "" },
];

function bufferTable() {
  return table("All buffers", bufferColumns, buffers.map((one, id) => ({ ...one, id })), { sorted: 2, pick: one => select("buffer", one.id), isChosen: isChosenBuffer });
}

function peakTable({ buffers: ids, bytes: size }) {
  const rows = ids.filter(id => buffers[id]).map(id => ({ ...buffers[id], id }));
  const share = { title: "share", value: one => one.bytes, show: one => percent(one.bytes / size) };
  return table("What the peak is made of", [...bufferColumns.slice(0, 1), bufferColumns[2], share, ...bufferColumns.slice(3)], rows, { sorted: 1, pick: one => select("buffer", one.id), isChosen: isChosenBuffer });
}

const isChosenBuffer = one => (selection.kind === "buffer" ? selection.id === one.id : (one.of ?? []).some(value => selection.values.has(value)));

// Each value as a rectangle: from its first launch to its last, from its first byte to its last. Above
// it what is held at each launch.
const TOP = 74;
function arenaMap(arena, about) {
  const count = Math.max(1, launches.length, ...arena.map(one => one.last + 1));
  const high = Math.max(about.arena_bytes ?? 0, ...arena.map(one => one.offset + one.bytes));
  const bySize = [...arena].sort((a, b) => b.bytes - a.bytes);
  const colour = new Map(bySize.map((one, k) => [one.id, `k${Math.min(k, NAMED)}`]));
  const held = new Float64Array(count + 1);
  for (const one of arena) { held[one.first] += one.bytes; held[one.last + 1] -= one.bytes; }
  for (let k = 1; k <= count; k++) held[k] += held[k - 1];
  const most = Math.max(...held, 1);
  const area = surface("The arena over a run. Arrows go from value to value.", draw, { onkeydown: keyed });
  area.element.style.height = "26rem";
  area.canvas.classList.add("still");
  const margin = () => Math.max(textWidth(bytes(high)), textWidth(bytes(most))) + 14;
  const x = launch => margin() + launch / count * (area.width - margin() - 8);
  const y = offset => area.height - 26 - offset / high * (area.height - 26 - TOP);
  const box = one => [x(one.first), y(one.offset + one.bytes), Math.max(1.5, x(one.last + 1) - x(one.first)), Math.max(1, one.bytes / high * (area.height - 26 - TOP))];

  function draw(context, width, height) {
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    drawHeld(context, width);
    drawAxes(context, width, height);
    for (const one of bySize) drawBuffer(context, one);
    if (about.peak) {
      context.strokeStyle = paint.text;
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(x(about.peak.at + 0.5), 16);
      context.lineTo(x(about.peak.at + 0.5), height - 26);
      context.stroke();
      context.setLineDash([]);
      const text = `peak, ${bytes(about.peak.bytes)}`, room = textWidth(text);
      context.fillStyle = paint.text;
      context.fillText(text, Math.min(x(about.peak.at + 0.5) + 4, width - room - 4), 9);
    }
  }

  function drawHeld(context) {
    const level = size => TOP - 14 - size / most * (TOP - 34);
    context.fillStyle = paint.edge;
    context.beginPath();
    context.moveTo(x(0), level(0));
    for (let k = 0; k < count; k++) { context.lineTo(x(k), level(held[k])); context.lineTo(x(k + 1), level(held[k])); }
    context.lineTo(x(count), level(0));
    context.fill();
    context.fillStyle = paint.faint;
    context.textAlign = "right";
    context.fillText(bytes(most), margin() - 6, level(most) + 4);
    context.fillText("held", margin() - 6, level(0) - 2);
    context.textAlign = "left";
  }

  function drawAxes(context, width, height) {
    context.strokeStyle = paint.line;
    context.fillStyle = paint.faint;
    context.textAlign = "right";
    for (const tick of ticks(0, high, 5)) {
      context.beginPath();
      context.moveTo(margin(), y(tick));
      context.lineTo(width - 8, y(tick));
      context.stroke();
      context.fillText(bytes(tick), margin() - 6, y(tick));
    }
    context.textAlign = "left";
    const named = ticks(0, count, Math.max(2, width / 140)).filter(Number.isInteger);
    for (const tick of named) {
      const text = `launch ${tick}`, room = textWidth(text);
      if (tick < count) context.fillText(text, Math.min(x(tick), width - room - 2), height - 11);
    }
  }

  function drawBuffer(context, one) {
    const [left, top, width, height] = box(one);
    context.fillStyle = paint[colour.get(one.id)];
    const gap = width > 4 && height > 4 ? 1 : 0;
    context.fillRect(left, top, width - gap, height - gap);
    if (isChosenBuffer(one)) {
      context.strokeStyle = paint.text;
      context.lineWidth = 2.5;
      context.strokeRect(left + 1, top + 1, Math.max(1, width - gap - 2), Math.max(1, height - gap - 2));
      context.lineWidth = 1;
    }
    if (height < 15 || width < 36) return;
    context.fillStyle = paint.page;
    context.fillText(cut(`${one.name}  ${bytes(one.bytes)}`, width - 10), left + 5, top + Math.min(height / 2, 12));
  }

  function at(px, py) {
    return bySize.findLast(one => { const [left, top, width, height] = box(one); return px >= left && px <= left + width && py >= top && py <= top + height; });
  }

  function keyed(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const now = arena.findIndex(one => selection.kind === "buffer" && selection.id === one.id);
    select("buffer", arena[(now + by + arena.length) % arena.length].id);
  }

  area.canvas.addEventListener("click", event => { const one = at(event.offsetX, event.offsetY); if (one) select("buffer", one.id); else clear(); });
  area.canvas.addEventListener("pointermove", event => {
    const one = at(event.offsetX, event.offsetY);
    tell(event, one ? [`${one.name}, ${bytes(one.bytes)}, launches ${one.first} to ${one.last}`, one.origin, one.lines?.[0] ? place(...one.lines[0]) : ""].filter(Boolean).join("\n") : "");
  });
  redrawn.push(() => area.draw());
  return { element: area.element, draw: area.draw };
}

// --- Kernels: the roofline, a table, and the code of what is chosen

function kernelsView() {
  if (!launches.length) return { element: empty("kernels", "This program has no launches: all that it gives was known while it was compiled.") };
  const rows = launches.map((row, id) => ({ ...row, id }));
  const roof = roofline(rows);
  const shownTable = table("Launches", launchColumns(), rows, { sorted: isTimed ? 3 : 0, isDown: isTimed, pick: row => select("launch", row.id), isChosen: row => isChosenLaunch(row.id) });
  const texts = kernelTexts();
  const title = element("h2", {});
  const code = element("section", { "aria-label": "Code of the kernel" }, title, texts.element);
  const update = () => {
    roof.redraw?.();
    shownTable.refresh();
    const kernel = selectedKernel() ?? kernels[meets("kernels", kernels, selection.values)[0]] ?? kernelByNumber.get(order[0]?.kernel) ?? kernels[0];
    code.hidden = !kernel;
    if (!kernel) return;
    title.textContent = `Code of ${kernelName(kernel.number)}${kernel.origin ? `: ${kernel.origin}` : ""}`;
    texts.show(kernel);
  };
  update();
  const early = given.prologue?.length ? [element("h2", {}, "Once per change of a weight"), table("Prologue", launchColumns().filter(one => !one.timed), given.prologue.map((row, id) => ({ ...row, id })))] : [];
  return { update, element: element("div", {}, element("h2", {}, "Roofline"), ...(Array.isArray(roof) ? roof : [rooflineWords(rows), roof]), element("h2", {}, "Launches"),
    element("p", { class: "faint" }, isTimed ? sumInWords() : notes.kernels ?? "No launch was timed."), shownTable, code, ...early) };
}

function launchColumns() {
  const columns = [
    { title: "launch", value: row => row.id, show: row => String(row.id) },
    { title: "kernel", text: "short", value: row => row.kernel, show: row => patched(colourOf(row.kernel), kernelName(row.kernel)) },
    { title: "of", text: true, value: row => launchName(row) },
    { title: "time", timed: true, value: row => row.seconds, show: row => duration(row.seconds) },
    { title: "share", timed: true, value: row => row.seconds, show: row => (isTimed ? percent((row.seconds ?? 0) / launchSum) : "") },
    { title: "roof", timed: true, hint: "the least time that its bound allows, over the time it took", value: row => row.roofline, show: row => (row.roofline === null || row.roofline === undefined ? (doubtOf(row) ? element("span", { class: "wrong", title: doubtOf(row) }, "doubtful") : "") : element("span", { title: doubtOf(row) || null }, `${percent(row.roofline)}${row.roofline > 1.005 ? " *" : ""}`)) },
    { title: "bound", text: "short", timed: true, value: row => row.bound ?? "" },
    { title: "trips", value: row => row.trips, show: row => whole(row.trips) },
    { title: "chunks", hint: "parts that threads take", value: row => row.chunks, show: row => whole(row.chunks) },
    { title: "FLOP", value: row => row.flops, show: row => amount(row.flops, "") },
    { title: "bytes", value: row => row.bytes, show: row => bytes(row.bytes) },
    { title: "FLOP/B", hint: "arithmetic intensity", value: row => row.flops / row.bytes, show: row => (row.bytes ? digits(row.flops / row.bytes) : "") },
    { title: "occupancy", text: true, value: occupancy },
  ];
  return columns.filter(one => (isTimed || !one.timed) && (one.title !== "occupancy" || launches.some(row => row.occupancy !== null && row.occupancy !== undefined)));
}

function rooflineWords(rows) {
  const { flops, memory: memoryPeak, cache } = given.peaks;
  const without = rows.filter(row => !row.flops && row.kernel >= 0).length;
  const doubtful = rows.filter(row => row.impossible).length;
  const above = rows.filter(row => row.roofline > 1.005);
  const words = [`Measured on this machine: ${amount(flops, "FLOP/s")} of float32 arithmetic, ${amount(memoryPeak, "B/s")} from memory${cache ? `, ${amount(cache, "B/s")} from cache` : ""}. A dot is a launch; the nearer to its roof, the less there is to win.`];
  if (without) words.push(`${counted(without, "launch", "launches")} without arithmetic (copies, moves) ${without === 1 ? "has" : "have"} no place here, but ${without === 1 ? "stands" : "stand"} in the table.`);
  if (doubtful) words.push(`${counted(doubtful, "launch", "launches")} seemed to take less time than ${doubtful === 1 ? "it can" : "they can"} and ${doubtful === 1 ? "is" : "are"} not drawn.`);
  const reasons = [...new Set(above.map(doubtOf))].map(reason => reason.replace("Above 100%: ", ""));
  if (above.length) words.push(`* ${counted(above.length, "launch passes", "launches pass")} 100%. ${reasons.map(one => one[0].toUpperCase() + one.slice(1)).join(" ")}`);
  return element("div", {}, words.map(one => element("p", { class: "faint" }, one)));
}

function roofline(rows) {
  const points = rows.filter(row => row.seconds && row.flops && row.bytes && row.kernel >= 0 && !row.impossible)
    .map(row => ({ row, x: row.flops / row.bytes, y: row.flops / row.seconds }));
  if (!given.peaks) return [element("p", { class: "faint" }, notes.roofline ?? "The machine's peaks were not measured, so there is no roof to compare with.")];
  if (!points.length) return [element("p", { class: "faint" }, "No launch has both a time and arithmetic, so there is nothing to draw.")];
  return chart("Roofline", width => rooflineDrawing(points, width));
}

function rooflineDrawing(points, width) {
  const { flops, memory: memoryPeak, cache } = given.peaks;
  const roofs = [["memory", memoryPeak], ["cache", cache]].filter(([, peak]) => peak > 0);
  const xs = [...points.map(one => one.x), ...roofs.map(([, peak]) => flops / peak)], ys = [...points.map(one => one.y), flops];
  const [lowX, highX, lowY, highY] = [decade(Math.min(...xs) / 1.5, Math.floor), decade(Math.max(...xs) * 3, Math.ceil), decade(Math.min(...ys) / 1.5, Math.floor), decade(Math.max(...ys) * 1.4, Math.ceil)];
  const height = Math.max(260, Math.min(440, width * 0.55));
  const decades = (low, high) => Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, k) => low * 10 ** k);
  const left = Math.max(...decades(lowY, highY).map(tick => textWidth(amount(tick, "FLOP/s")))) + 12;
  const [top, bottom, right] = [24, height - 44, width - 16];
  const x = value => left + Math.log(value / lowX) / Math.log(highX / lowX) * (right - left);
  const y = value => bottom - Math.log(value / lowY) / Math.log(highY / lowY) * (bottom - top);
  const svg = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Roofline" });
  svg.append(drawing("text", { x: 0, y: 12 }, "speed"), drawing("text", { x: right, y: height - 4, "text-anchor": "end" }, "FLOP per byte moved"));
  for (const tick of decades(lowY, highY)) svg.append(drawing("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }), drawing("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, amount(tick, "FLOP/s")));
  svg.append(...decadeTicks(decades(lowX, highX), x, top, bottom));
  const bounds = [left, top, right, bottom];
  const radius = dotRadius(points);
  const taken = points.map(one => { const r = radius(one.row) + 1; return [x(one.x) - r, y(one.y) - r, x(one.x) + r, y(one.y) + r]; });
  const inside = value => Math.max(lowX, Math.min(highX, value));
  const ridge = inside(Math.min(...roofs.map(([, peak]) => flops / peak)));
  const drawn = roofs.map(([name, peak]) => {
    const from = Math.max(lowX, lowY / peak), to = inside(flops / peak);
    return { text: `${name} ${amount(peak, "B/s")}`, from: [from, from * peak], to: [to, to * peak] };
  });
  drawn.push({ text: `compute ${amount(flops, "FLOP/s")}`, from: [highX, flops], to: [ridge, flops] });
  for (const { from, to } of drawn) {
    const ends = [x(from[0]), y(from[1]), x(to[0]), y(to[1])];
    svg.append(drawing("path", { class: "roof", d: `M${ends[0]} ${ends[1]}L${ends[2]} ${ends[3]}` }));
    takeLine(taken, ...ends);
  }
  for (const { text, from, to } of drawn) roofName(svg, taken, bounds, text, k => [0, 1].map(n => from[n] * (to[n] / from[n]) ** k), x, y);
  svg.append(...dots(points, radius, x, y), ...dotNames(points, taken, radius, bounds, x, y));
  return svg;
}

// Lines of powers of ten, and their names where these have room.
function decadeTicks(all, x, top, bottom) {
  let free = -Infinity;
  return all.flatMap((tick, k) => {
    const text = tick >= 1 ? whole(Math.round(tick)) : tick.toPrecision(1), width = textWidth(text);
    const left = k === all.length - 1 ? x(tick) - width : x(tick) - width / 2;
    const line = drawing("line", { class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: bottom });
    if (left < free) return [line];
    free = left + width + 8;
    return [line, drawing("text", { x: left, y: bottom + 18 }, text)];
  });
}

const decade = (value, round) => 10 ** round(Math.log10(value));

// The name of a roof where there is room beside it.
function roofName(svg, taken, bounds, text, at, x, y) {
  for (const k of [0.15, 0.3, 0.45, 0.6, 0.05, 0.75]) {
    const [px, py] = at(k);
    const found = freePlace(taken, x(px), y(py), text, bounds, 2);
    if (found) return svg.append(drawing("text", { class: "name", x: found[0], y: found[1] }, text));
  }
}

// The area of a dot grows with the time of its launch.
function dotRadius(points) {
  const longest = Math.max(...points.map(one => one.row.seconds));
  return row => 4 + 6 * Math.sqrt(row.seconds / longest);
}

function dots(points, radius, x, y) {
  const inOrder = [...points].sort((a, b) => b.row.seconds - a.row.seconds); // small ones lie above large ones
  return inOrder.map(({ row, x: intensity, y: speed }) => drawing("circle", {
    class: "dot", cx: x(intensity), cy: y(speed), r: radius(row), style: `fill: var(--${colourOf(row.kernel)})`,
    tabindex: 0, role: "button", "aria-selected": String(isChosenLaunch(row.id)), "aria-label": dotWords(row),
    onclick: () => select("launch", row.id), onkeydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select("launch", row.id); } },
    onpointermove: event => tell(event, dotWords(row)), onpointerleave: event => tell(event, ""),
  }));
}

const dotWords = row => `${kernelName(row.kernel)} ${launchName(row)}\n${duration(row.seconds)}, ${amount(row.flops / row.seconds, "FLOP/s")}${row.roofline ? `, ${percent(row.roofline)} of the ${row.bound} roof` : ""}`;

// The names of the longest kernels, each once, where they lie over nothing.
function dotNames(points, taken, radius, bounds, x, y) {
  const named = new Set(), made = [];
  for (const one of [...points].sort((a, b) => b.row.seconds - a.row.seconds)) {
    if (named.size === NAMED) break;
    if (named.has(one.row.kernel)) continue;
    named.add(one.row.kernel);
    const text = kernelName(one.row.kernel);
    const found = freePlace(taken, x(one.x), y(one.y), text, bounds, radius(one.row));
    if (found) made.push(drawing("text", { class: "name", x: found[0], y: found[1] }, text));
  }
  return made;
}

// --- Search: candidates over time, what each changed and gained, why some were rejected

function searchView() {
  const search = given.search;
  if (!search) return { element: empty("search", "No search ran, so every choice is that of a rule: pass --mode 30s to time other programs on this machine.") };
  const history = (search.history ?? []).filter(one => isFinite(one.best_seconds) && one.best_seconds > 0);
  const difference = search.difference ?? [];
  return { element: element("div", {}, element("h2", {}, "What the search did"), element("p", {}, searchInWords(search)), note("search"),
    history.length ? chart("The best time over the search", width => historyDrawing(history, search, width)) : "",
    element("h2", {}, "What the winner does otherwise than fast"),
    difference.length ? element("ul", {}, difference.map(one => element("li", {}, sentence(one)))) : element("p", { class: "faint" }, "Nothing: the fast program runs."),
    ...genes(search.genes ?? []), ...rejected(search.rejected ?? []), ...ruleTable(search.rules ?? [])) };
}

function searchInWords(search) {
  const spent = search.history?.length ? ` in ${duration(search.history.at(-1).seconds)}` : "";
  return `Mode ${search.mode}, seed ${search.seed}: ${counted(search.candidates, "candidate")} and ${counted(search.kernels_built, "kernel")} built${spent}${search.from_database ? ", taken from the database" : ""}. `
    + `${search.fast_seconds ? `The fast program takes ${duration(search.fast_seconds)}, the best one ${duration(search.best_seconds)}. ` : ""}Decision: ${search.decision}.`;
}

function historyDrawing(history, search, width) {
  const height = 260, times = [...history.map(one => one.best_seconds), search.fast_seconds].filter(one => one > 0);
  const [least, most] = [Math.min(...times), Math.max(...times)];
  const pad = (most - least || most) * 0.12, low = Math.max(0, least - pad), high = most + pad;
  const end = Math.max(...history.map(one => one.seconds), 1e-9);
  const levels = ticks(low, high, 5);
  const left = Math.max(...levels.map(tick => textWidth(duration(tick)))) + 12;
  const [top, bottom, right] = [24, height - 44, width - 16];
  const x = seconds => left + seconds / end * (right - left), y = seconds => bottom - (seconds - low) / (high - low) * (bottom - top);
  const svg = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The best time of a run over the time of the search" });
  svg.append(drawing("text", { x: 0, y: 12 }, "time of a run"), drawing("text", { x: right, y: height - 4, "text-anchor": "end" }, "time of the search"));
  for (const tick of levels) svg.append(drawing("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }), drawing("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, duration(tick)));
  for (const tick of ticks(0, end, width / 130)) svg.append(drawing("text", { x: x(tick), y: bottom + 18, "text-anchor": tick > end * 0.95 ? "end" : "middle" }, duration(tick)));
  const path = history.map((one, k) => (k ? `H${x(one.seconds)}V${y(one.best_seconds)}` : `M${x(one.seconds)} ${y(one.best_seconds)}`)).join("");
  svg.append(drawing("path", { class: "best", d: `${path}H${right}` }));
  const taken = history.map(one => [x(one.seconds) - 6, y(one.best_seconds) - 6, x(one.seconds) + 6, y(one.best_seconds) + 6]);
  history.forEach((one, k) => takeLine(taken, x(one.seconds), y(one.best_seconds), k + 1 < history.length ? x(history[k + 1].seconds) : right, y(one.best_seconds)));
  if (search.fast_seconds) takeLine(taken, left, y(search.fast_seconds), right, y(search.fast_seconds));
  const name = (text, px, py) => { const at = freePlace(taken, px, py, text, [left, top, right, bottom]); if (at) svg.append(drawing("text", { class: "name", x: at[0], y: at[1] }, text)); };
  if (search.fast_seconds) {
    svg.append(drawing("path", { class: "fast", d: `M${left} ${y(search.fast_seconds)}H${right}` }));
    name(`fast ${duration(search.fast_seconds)}`, right - 60, y(search.fast_seconds));
  }
  for (const one of history) {
    svg.append(drawing("circle", { class: "dot", cx: x(one.seconds), cy: y(one.best_seconds), r: 5, style: "fill: var(--k0)",
      onpointermove: event => tell(event, `${duration(one.best_seconds)} after ${duration(one.seconds)}, ${counted(one.candidates, "candidate")}`), onpointerleave: event => tell(event, "") }));
  }
  name(`best ${duration(history.at(-1).best_seconds)}`, x(history.at(-1).seconds), y(history.at(-1).best_seconds));
  return svg;
}

function genes(rows) {
  if (!rows.length) return [];
  return [element("h2", {}, "What each candidate changed, and what that gained"), table("Candidates", [
    { title: "candidate", value: row => row.candidate, show: row => whole(row.candidate) },
    { title: "after", value: row => row.seconds, show: row => duration(row.seconds) },
    { title: "changed", text: true, value: row => row.changed ?? "" },
    { title: "a run", value: row => row.run_seconds, show: row => duration(row.run_seconds) },
    { title: "gain", value: row => row.gain, show: row => (row.gain ? element("span", { class: row.gain > 1 ? "good" : "" }, `${digits(row.gain)}x`) : "") },
    { title: "outcome", text: "short", value: row => row.outcome ?? "", show: row => element("span", { class: row.outcome === "kept" ? "good" : row.outcome === "rejected" ? "wrong" : "" }, row.outcome ?? "") },
    { title: "because", text: true, value: row => row.reason ?? "" },
  ], rows)];
}

function rejected(rows) {
  if (!rows.length) return [];
  return [element("h2", {}, "Rejected"), table("Rejected", [
    { title: "candidates", value: row => row.candidates, show: row => whole(row.candidates) },
    { title: "because", text: true, value: row => row.reason }, { title: "for example", text: true, value: row => row.example ?? "" },
  ], rows, { sorted: 0 })];
}

function ruleTable(rows) {
  if (!rows.length) return [];
  return [element("h2", {}, "Rules"), table("Rules", [
    { title: "rule", text: true, value: row => row.name }, { title: "class", text: "short", value: row => row.kind },
    { title: "matches", value: row => row.matches, show: row => whole(row.matches) }, { title: "new nodes", value: row => row.new_nodes, show: row => whole(row.new_nodes) },
    { title: "time", value: row => row.seconds, show: row => duration(row.seconds) },
  ], rows, { sorted: 2 })];
}

// --- Views and their tabs; each is built when it is opened for the first time

const views = {
  overview: { title: "Overview", build: () => ({ element: overview() }) },
  graph: { title: "Graph", build: graph, isWhole: true },
  spellings: { title: "Spellings", build: spellings },
  timeline: { title: "Timeline", build: timeline },
  memory: { title: "Memory", build: memory },
  kernels: { title: "Kernels", build: kernelsView },
  search: { title: "Search", build: searchView },
};
const viewNames = Object.keys(views);
let shown = "overview";

function open(name) {
  shown = name;
  const view = views[name];
  if (!view.section) {
    view.section = element("section", { class: `view${view.isWhole ? " whole" : ""}`, role: "tabpanel", id: `view-${name}`, "aria-labelledby": `tab-${name}` });
    by("view").append(view.section);
    const built = view.build();
    view.update = built.update;
    view.section.append(...(view.isWhole ? built.element.childNodes : [built.element]));
  }
  for (const one of viewNames) {
    const isShown = one === name;
    if (views[one].section) views[one].section.hidden = !isShown;
    by(`tab-${one}`).setAttribute("aria-selected", String(isShown));
    by(`tab-${one}`).tabIndex = isShown ? 0 : -1;
  }
  by(`tab-${name}`).scrollIntoView?.({ block: "nearest", inline: "nearest" });
  by("view").scrollTop = 0;
  tell(null, "");
  view.update?.();
  remember();
}

function makeTabs() {
  by("tabs").append(...viewNames.map((name, k) => button(views[name].title, () => open(name), { role: "tab", id: `tab-${name}`, "aria-controls": `view-${name}`, title: `${views[name].title} (${k + 1})` })));
  by("tabs").addEventListener("keydown", event => {
    const now = viewNames.indexOf(shown), last = viewNames.length - 1;
    const next = { ArrowRight: now === last ? 0 : now + 1, ArrowLeft: now ? now - 1 : last, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    open(viewNames[next]);
    by(`tab-${shown}`).focus();
  });
}

// --- Search for values, kernels and buffers: by name, by line (model.py:41), by shape ([8, 32])

const MOST = 60; // found things that are listed
let index = null;

// What can be found, with the text that is searched. Shapes lose their spaces, so that "[8,32]" and
// "[8, 32]" are the same.
function searchIndex() {
  if (index) return index;
  const dense = text => text.toLowerCase().replaceAll(" ", "");
  const one = (kind, id, title, detail) => ({ kind, id, title, detail, text: dense(`${title} ${detail}`) });
  index = kernels.map(row => one("kernel", row.number, `Kernel ${row.number}: ${row.origin || row.label}`, (row.lines ?? []).map(at => place(...at)).join(" ")));
  for (const { path, class: kind } of modules) if (path) index.push(one("module", path, `Module ${path}`, kind ?? ""));
  for (let i = 0; i < values.op.length; i++) {
    const where = [values.call?.[i], modulePath(values.module?.[i] ?? -1), place(values.file?.[i] ?? -1, values.line?.[i])].filter(Boolean).join(", ");
    index.push(one("value", i, `%${i} ${values.ops[values.op[i]]}${values.name?.[i] ? ` ${values.name[i]}` : ""} : ${typeText(i)}`, where));
  }
  buffers.forEach((row, id) => index.push(one("buffer", id, `Buffer ${row.name}, ${bytes(row.bytes)}`, row.origin ?? "")));
  return index;
}

function found(query) {
  const shape = /^\[?(\d+(?:\s*[x×,]\s*\d+)+)\]?$/.exec(query.trim());
  const words = shape ? [`[${shape[1].replace(/\s*[x×,]\s*/g, ",")}]`] : query.toLowerCase().split(/\s+(?![^[]*\])/).map(word => word.replaceAll(" ", "")).filter(Boolean);
  const isLine = words.map(word => /:\d+$/.test(word));
  const fits = text => words.every((word, k) => (isLine[k] ? new RegExp(`${word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}(?!\\d)`).test(text) : text.includes(word)));
  return words.length ? searchIndex().filter(one => fits(one.text)) : [];
}

const finder = { list: [], at: 0 };
function showFound() {
  const all = found(by("find").value);
  finder.list = all.slice(0, MOST);
  finder.at = 0;
  const items = finder.list.map((one, k) => element("li", { role: "option", id: `found-${k}`, onpointerdown: event => { event.preventDefault(); take(k); } }, one.title, element("small", {}, one.detail)));
  const more = all.length > MOST ? [element("li", { class: "faint", "aria-disabled": "true" }, `and ${whole(all.length - MOST)} more`)] : [];
  const none = by("find").value.trim() && !all.length ? [element("li", { class: "faint", "aria-disabled": "true" }, "Nothing is called so. A name, a line (model.py:41) or a shape ([8, 32]) is found.")] : [];
  by("found").replaceChildren(...items, ...more, ...none);
  setFound(by("found").children.length > 0);
  moveFound(0);
}

function setFound(isOpen) {
  by("found").hidden = !isOpen;
  by("find").setAttribute("aria-expanded", String(isOpen));
}

function moveFound(by_) {
  if (!finder.list.length) return by("find").removeAttribute("aria-activedescendant");
  finder.at = (finder.at + by_ + finder.list.length) % finder.list.length;
  [...by("found").children].forEach((item, k) => item.setAttribute("aria-selected", String(k === finder.at)));
  by("find").setAttribute("aria-activedescendant", `found-${finder.at}`);
  by("found").children[finder.at].scrollIntoView({ block: "nearest" });
}

function take(k) {
  const one = finder.list[k];
  if (!one) return;
  setFound(false);
  by("find").blur();
  go({ kernel: "kernels", buffer: "memory" }[one.kind] ?? "graph", one.kind, one.id);
}

function makeFinder() {
  by("find").addEventListener("input", showFound);
  by("find").addEventListener("focus", () => { if (by("find").value) showFound(); });
  by("find").addEventListener("blur", () => setFound(false));
  by("find").addEventListener("keydown", event => {
    const does = { ArrowDown: () => moveFound(1), ArrowUp: () => moveFound(-1), Enter: () => take(finder.at), Escape: () => { by("find").value = ""; setFound(false); by("find").blur(); } }[event.key];
    if (!does) return;
    event.preventDefault();
    event.stopPropagation();
    does();
  });
}

// --- Keys and themes

const KEYS = [
  ["1 … 7", "the views, in the order of their tabs"], ["/", "find by name, line or shape"], ["Escape", "close, or select nothing"], ["t", "light, dark, or the system's colours"], ["?", "these keys"],
  ["← ↑ → ↓", "graph: along edges. Timeline: pan, and from launch to launch. Tables and texts: row to row"], ["Enter", "graph: fold and unfold. Tables: choose the row. Timeline: code of the launch"],
  ["+ − 0", "graph and timeline: larger, smaller, all of it"], ["Shift + arrows", "graph: pan"],
];

function makeKeys() {
  by("keys").append(element("h2", { style: "margin-top: 0" }, "Keys"), element("dl", {}, KEYS.map(([key, what]) => [element("dt", {}, element("kbd", {}, key)), element("dd", {}, what)])),
    element("p", { class: "faint" }, "With the pointer: drag to pan, wheel to zoom, click to select, double click to fold and unfold."), button("Close", () => by("keys").close()));
  by("help").addEventListener("click", () => by("keys").showModal());
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || by("keys").open || event.defaultPrevented) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.key !== "Escape") return;
    const isOnCanvas = event.target.tagName === "CANVAS";
    const view = !isOnCanvas || event.key !== "0" ? viewNames[Number(event.key) - 1] : undefined;
    const does = { "/": () => { by("find").focus(); by("find").select(); }, "?": () => by("keys").showModal(), Escape: clear, t: nextTheme }[event.key] ?? (view && (() => open(view)));
    if (!does) return;
    event.preventDefault();
    does();
  });
}

const THEMES = ["auto", "light", "dark"];
function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
  by("theme").textContent = `Theme: ${name}`;
  try { localStorage.setItem("luminal-viz-theme", name); } catch { /* pages may be kept from storing */ }
  repaint();
}

function storedTheme() {
  try { return localStorage.getItem("luminal-viz-theme"); } catch { return null; }
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % THEMES.length]);
}

function repaint() {
  readColours();
  redrawn.forEach(draw => draw());
}

// --- The start

function start() {
  by("theme").addEventListener("click", nextTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  setTheme(THEMES.includes(storedTheme()) ? storedTheme() : "auto");
  if (!given) return by("view").append(element("p", { class: "empty", style: "padding: 2rem 1rem" }, "There is no document in this page. Make one with: luminal viz FILE.py:FUNCTION"));
  document.title = `${given.title}, luminal viz`;
  by("title").textContent = given.title;
  by("subtitle").textContent = ["luminal", given.luminal, given.made && `made ${given.made.replace("T", " ")}`].filter(Boolean).join(" ");
  makeTabs();
  makeFinder();
  makeKeys();
  addEventListener("hashchange", follow);
  follow();
  performance.mark("opened");
}

start();
