"use strict";
// Memory: what lies where in the arena while a run goes on, and what makes the peak.

function memory() {
  const about = given.memory;
  if (!about) return { element: empty("memory", "Nothing is known of this program's memory.") };
  const arena = buffers.map((one, id) => ({ ...one, id })).filter(one => one.kind === "arena" && one.offset !== null && one.offset !== undefined);
  const map = arena.length ? arenaMap(arena, about) : null;
  const all = bufferTable();
  const peak = about.peak?.buffers?.length ? [element("h2", {}, "The peak"), element("p", {}, peakInWords()), peakTable(about.peak)] : [];
  return { update: () => { map?.draw(); all.refresh(); }, element: element("div", {}, element("h2", {}, "What a run holds"), kindsBar(), note("memory"),
    element("h2", {}, "The arena over a run"), element("p", {}, reuseInWords(about)), map ? map.element : element("p", { class: "faint" }, "This program stores nothing between its launches."),
    ...peak, ...byLine(), element("h2", {}, "All buffers"), all) };
}

// Does a buffer lie where another one does? A packed matrix is read in two dtypes.
const isTwin = one => one.same_as !== null && one.same_as !== undefined;

// The lines whose values hold memory, those that hold most when the arena is fullest first.
function byLine() {
  const { at } = given.memory.peak ?? {}, rows = new Map();
  for (const one of buffers.filter(one => !isTwin(one))) {
    const [file, line] = one.lines?.[0] ?? [];
    const name = one.lines?.length ? place(file, line) : one.origin || `no line: ${one.kind}`;
    const row = rows.get(name) ?? { name, code: files[file]?.lines[line]?.trim() ?? "", held: 0, all: 0, buffers: 0 };
    const isHeld = one.kind !== "arena" || (one.first <= at && at <= one.last);
    rows.set(name, { ...row, held: row.held + (isHeld ? one.bytes : 0), all: row.all + one.bytes, buffers: row.buffers + 1 });
  }
  if (!rows.size) return [];
  return [element("h2", {}, "By line"), table("By line", [
    { title: "line", text: "short", value: row => row.name, hint: "or the module and operation, where no line is known" },
    { title: "at the peak", value: row => row.held, show: row => bytes(row.held), hint: "what its values hold when the arena is fullest: those of the arena then, and its weights, States, inputs and outputs" },
    { title: "in all", value: row => row.all, show: row => bytes(row.all), hint: "if no memory were used twice" },
    { title: "buffers", value: row => row.buffers, show: row => whole(row.buffers) },
    { title: "code", text: true, value: row => row.code, show: row => element("code", {}, row.code) },
  ], [...rows.values()], { sorted: 1 })];
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
    : KINDS.map(kind => [kind, kind === "arena" ? given.memory.arena_bytes : buffers.filter(one => one.kind === kind && !isTwin(one)).reduce((sum, one) => sum + one.bytes, 0)]);
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
  { title: "buffer", text: "short", value: one => one.name, show: one => cutText(one.name, 60) + (isTwin(one) ? ` (lies where ${cutText(buffers.find(other => other.id === one.same_as).name, 60)} does)` : "") },
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
