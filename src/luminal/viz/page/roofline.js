"use strict";
// The roofline: what each launch reached, and what the machine allows.

function rooflineWords(rows) {
  const { flops, memory: memoryPeak, cache } = given.peaks;
  const without = rows.filter(row => !row.flops && row.kernel >= 0).length;
  const doubtful = rows.filter(row => row.impossible).length;
  const above = rows.filter(row => row.roofline && row.note);
  const words = [`Measured on this machine: ${amount(flops, "FLOP/s")} of float32 arithmetic, ${amount(memoryPeak, "B/s")} from memory${cache ? `, ${amount(cache, "B/s")} from cache` : ""}. A dot is a launch; the nearer to its roof, the less there is to win.`];
  if (without) words.push(`${counted(without, "launch", "launches")} without arithmetic (copies, moves) ${without === 1 ? "has" : "have"} no place here, but ${without === 1 ? "stands" : "stand"} in the table.`);
  if (doubtful) words.push(`${counted(doubtful, "launch", "launches")} seemed to take less time than ${doubtful === 1 ? "it can" : "they can"} and ${doubtful === 1 ? "is" : "are"} not drawn.`);
  const reasons = [...new Set(above.map(row => sentence(row.note)))];
  if (above.length) words.push(`* ${counted(above.length, "launch passes", "launches pass")} 100%. ${reasons.join(" ")}`);
  return element("div", {}, words.map(one => element("p", { class: "faint" }, one)));
}

function roofline(rows) {
  const points = rows.filter(row => row.seconds && row.flops && row.bytes && row.kernel >= 0 && !row.impossible)
    .map(row => ({ row, x: row.flops / row.bytes, y: row.flops / row.seconds }));
  if (!given.peaks) return [element("p", { class: "faint" }, "The machine's peaks were not measured, so there is no roof to compare with.")];
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
