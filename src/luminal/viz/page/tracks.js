"use strict";
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
