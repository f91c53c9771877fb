"use strict";
// Drawings: colours of the page, text that is measured, what the pointer is over.

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
