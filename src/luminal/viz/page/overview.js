"use strict";
// Overview: what it is, how long it takes, where the time goes, what would help.

function overview() {
  return element("div", {}, element("h2", {}, "What it is"), element("p", {}, whatItIs()), figures(),
    ...doubts(), ...besideAnother(), ...whereItGoes(), ...whatHelps());
}

function besideAnother() {
  if (!given.other) return [];
  return [element("h2", {}, "Beside another run"), element("p", {}, runsInWords(), link("Launch by launch", () => open("timeline")))];
}

function whatItIs() {
  const leaves = values.op.filter(op => /^(Weight|State)$/.test(values.ops[op])).length;
  const dims = Object.entries(given.dims ?? {}).map(([name, n]) => `${name} = ${n}`).join(", ");
  const { cpu, threads, device } = given.machine ?? {};
  const machine = [device, cpu, threads && counted(threads, "thread")].filter(Boolean).join(", ");
  const graph = values.op.length ? `a graph of ${counted(values.op.length, "value")} (${counted(leaves, "weight")}), compiled to ` : ""; // a trace has none
  return `${given.title}: ${graph}`
    + `${counted(kernels.length, "kernel")} in ${counted(launches.length, "launch", "launches")}`
    + `${dims ? `, at ${dims}` : ""}${machine ? `, for ${machine}` : ""}.${given.search?.fast_seconds ? ` A search chose it: ${given.search.decision}.` : ""}`;
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
  if (!given.search && values.op.length) found.push({ gain: 0.05 * run, way: "Search", go: () => open("search"), text: "No search ran, so every choice is that of a rule. A search times other choices on this machine: pass --mode 30s." });
  else if (given.search?.decision) found.push({ gain: 0.01 * run, way: "Search", go: () => open("search"), text: `The search said: ${given.search.decision}.` });
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
