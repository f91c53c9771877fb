"use strict";
// Kernels: the roofline, a table, and the code of what is chosen.

function kernelsView() {
  if (!launches.length) return { element: empty("kernels", "This program has no launches: all that it gives was known while it was compiled.") };
  const rows = launches.map((row, id) => ({ ...row, id }));
  const roof = roofline(rows);
  const shownTable = table("Launches", launchColumns(), rows, { sorted: isTimed ? 3 : 0, isDown: isTimed, pick: row => select("launch", row.id), isChosen: row => isChosenLaunch(row.id) });
  const texts = kernelTexts();
  const title = element("h2", {});
  const why = element("ul", { "aria-label": "What it takes its time for" });
  const code = element("section", { "aria-label": "Code of the kernel" }, title, why, texts.element);
  const update = () => {
    roof.redraw?.();
    shownTable.refresh();
    const kernel = selectedKernel() ?? kernels[meets("kernels", kernels, selection.values)[0]] ?? kernelByNumber.get(order[0]?.kernel) ?? kernels[0];
    code.hidden = !kernel;
    if (!kernel) return;
    title.textContent = `Code of ${kernelName(kernel.number)}${kernel.origin ? `: ${kernel.origin}` : ""}`;
    why.replaceChildren(...whyInWords(kernel).map(one => element("li", {}, sentence(one))));
    texts.show(kernel);
  };
  update();
  const early = given.prologue?.length ? [element("h2", {}, "Once per change of a weight"), table("Prologue", launchColumns().filter(one => !one.timed && !one.onChip), given.prologue.map((row, id) => ({ ...row, id })))] : [];
  return { update, element: element("div", {}, element("h2", {}, "Roofline"), ...(Array.isArray(roof) ? roof : [rooflineWords(rows), roof]), element("h2", {}, "Launches"),
    element("p", { class: "faint" }, isTimed ? sumInWords() : notes.kernels ?? "No launch was timed."),
    isOnChip ? element("p", { class: "faint" }, "Occupancy, registers, shared memory and groups of a unit are by the model of the chip, from the text of the kernels: no compiler and no card was asked.") : "", shownTable, code, ...early) };
}

// What is known of why a kernel takes its time: how far it is from its roof, in this launch or in that
// which takes most, and what its code does.
function whyInWords(kernel, launch = null) {
  const mine = launches.map((row, id) => ({ ...row, id })).filter(row => row.kernel === kernel.number && row.seconds && (launch === null || row.id === launch));
  const row = mine.reduce((most, one) => (!most || one.seconds > most.seconds ? one : most), null);
  const found = [];
  if (row?.least_seconds && row.roofline) {
    const trips = row.trips > 1 ? `${whole(row.trips)} trips of ` : "";
    const reach = row.roofline > 1 ? "it is there" : `it reaches ${percent(row.roofline)}`;
    found.push(`launch ${row.id} takes ${trips}${duration(row.seconds / row.trips)}. ${BOUNDS[row.bound]} allows ${duration(row.least_seconds / row.trips)}: ${reach}`);
  }
  if (row?.chunks === 1) found.push("its work is one chunk: one thread does it, however many there are");
  return [...found, ...kernel.causes ?? []];
}

const isOnChip = launches.some(row => row.occupancy);
const BOUNDS = { compute: "The machine's arithmetic", memory: "Memory", cache: "The cache" };

function launchColumns() {
  const columns = [
    { title: "launch", value: row => row.id, show: row => String(row.id) },
    { title: "kernel", text: "short", value: row => row.kernel, show: row => patched(colourOf(row.kernel), kernelName(row.kernel)) },
    { title: "of", text: true, value: row => launchName(row) },
    { title: "time", timed: true, value: row => row.seconds, show: row => duration(row.seconds) },
    { title: "share", timed: true, value: row => row.seconds, show: row => (isTimed ? percent((row.seconds ?? 0) / launchSum) : "") },
    { title: "roof", timed: true, hint: "the least time that its bound allows, over the time it took", value: row => row.roofline, show: row => (row.roofline === null || row.roofline === undefined ? (row.note ? element("span", { class: "wrong", title: row.note }, "doubtful") : "") : element("span", { title: row.note || null }, `${percent(row.roofline)}${row.note ? " *" : ""}`)) },
    { title: "bound", text: "short", timed: true, value: row => row.bound ?? "" },
    { title: "trips", value: row => row.trips, show: row => whole(row.trips) },
    { title: "chunks", hint: "parts that threads take", value: row => row.chunks, show: row => whole(row.chunks) },
    { title: "FLOP", value: row => row.flops, show: row => amount(row.flops, "") },
    { title: "bytes", value: row => row.bytes, show: row => bytes(row.bytes) },
    { title: "FLOP/B", hint: "arithmetic intensity", value: row => row.flops / row.bytes, show: row => (row.bytes ? digits(row.flops / row.bytes) : "") },
    { title: "occupancy", onChip: true, hint: "lanes of a unit that are there, of those it has room for; by the model of the chip", value: row => row.occupancy?.share, show: row => element("span", { title: occupancy(row) || null }, percent(row.occupancy?.share)) },
    { title: "registers", onChip: true, hint: "of a lane, by the model", value: row => row.occupancy?.registers, show: row => (row.occupancy ? whole(row.occupancy.registers) : "") },
    { title: "shared", onChip: true, hint: "shared memory of a group, by the model", value: row => row.occupancy?.shared_bytes, show: row => (row.occupancy ? bytes(row.occupancy.shared_bytes) : "") },
    { title: "groups", onChip: true, hint: "that a unit holds at once, by the model", value: row => row.occupancy?.groups, show: row => (row.occupancy ? whole(row.occupancy.groups) : "") },
  ];
  return columns.filter(one => (isTimed || !one.timed) && (isOnChip || !one.onChip));
}
