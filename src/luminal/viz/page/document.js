"use strict";
// The document, and what is derived of it once.

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
    columns,
  };
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
