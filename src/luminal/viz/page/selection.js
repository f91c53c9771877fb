"use strict";
// The selection: one thing, and the values that it stands for.

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
  if (searches) fields.push(`search=${chosenSearch}`);
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
  if (searches) chooseSearch(Number(fields.get("search")));
  drawInspector();
  open(views[fields.get("view")] ? fields.get("view") : viewNames[0]);
}
