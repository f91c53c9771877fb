"use strict";
// A drawn graph's boxes: what lies in modules folds into one.

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
