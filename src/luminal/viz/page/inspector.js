"use strict";
// Beside every view: what is selected, where it was written, and what it became.

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
    ["why", reasons(kernel)],
  ];
}

// What a kernel takes its time for, or one launch of it, a line for each sentence.
function reasons(kernel, launch) {
  const found = kernel ? whyInWords(kernel, launch) : [];
  return found.length ? found.map(one => element("div", {}, sentence(one))) : "";
}

function launchFacts(row) {
  return [
    ["of", row.origin], ["label", row.label],
    ["kernel", row.kernel >= 0 && link(kernelName(row.kernel), () => select("kernel", row.kernel))],
    ["time", isTimed && `${duration(row.seconds)}, ${percent(row.seconds / launchSum)} of all launches`],
    ["trips", row.trips > 1 && `${whole(row.trips)}, ${duration((row.seconds ?? NaN) / row.trips)} each`],
    ["work", [row.flops && amount(row.flops, "FLOP"), row.bytes && `${bytes(row.bytes)} moved`].filter(Boolean).join(", ")],
    ["bound", row.bound && `${row.bound}${row.roofline ? `, ${percent(row.roofline)} of that roof` : ""}`],
    ["doubt", row.note],
    ["on a unit", occupancy(row)], ["model", row.explained?.join("\n")],
    ["why", reasons(kernelByNumber.get(row.kernel), launches.indexOf(row))],
    ["reads", links(known(row.reads), "buffer", i => buffers[i].name)],
    ["writes", links(known(row.writes), "buffer", i => buffers[i].name)],
  ];
}

const known = ids => (ids ?? []).filter(id => buffers[id]);

// What of a device's unit a launch takes, by the model of its chip: nothing of it is measured.
function occupancy(row) {
  const found = row.occupancy;
  if (!found) return "";
  const shared = found.shared_bytes ? `, a group ${bytes(found.shared_bytes)} of shared memory` : "";
  return `By the model: ${percent(found.share)} of the lanes that a unit has room for, in ${counted(found.groups, "group")} of ${whole(found.lanes)} (${LIMITS[found.limit] ?? found.limit}); a lane takes ${counted(found.registers, "register")}${shared}`;
}

const LIMITS = {
  registers: "registers allow no more", "shared memory": "shared memory allows no more", lanes: "there is room for no more lanes",
  chunks: "the launch has no more for each unit", "columns of matrices": "the memory of matrix instructions allows no more", "groups of a launch": "a launch is given no more",
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
