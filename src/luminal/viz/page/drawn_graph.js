"use strict";
// A stage, drawn: a canvas shows the boxes in sight.

const NAME = "600 12px system-ui, sans-serif", SMALL = "11px system-ui, sans-serif";
const BAND = 8; // rows whose edges are kept in one list

// The drawing of one stage. `view` is the place of the upper left corner, and the scale.
function drawnStage(one, title) {
  const opened = openedFirst(one);
  let showsAll = false, shape = null, met = new Map(), at = -1, isFitted = false, version = 0;
  const view = { x: 0, y: 0, scale: 1 };
  const area = surface(`${title}, drawn. Arrows go along edges, Enter folds and unfolds.`, (context, width, height) => {
    if (shape) drawShape(context, width, height);
  }, { onkeydown: keyed });
  const waits = element("p", { class: "empty", style: "position: absolute; left: 1rem; top: 0" }, "Laying out …");
  area.element.append(waits);

  async function arrange(keep) {
    const wanted = ++version;
    const held = keep >= 0 && shape ? { node: keep, x: (shape.x[shape.boxOf[keep]] - view.x) * view.scale, y: (shape.y(shape.boxOf[keep]) - view.y) * view.scale } : null;
    const found = contracted(one, opened, showsAll);
    const labels = found.boxes.map(box => labelOf(one, box));
    const names = labels.map(([name]) => cut(name, 220, NAME)), smalls = labels.map(([, small]) => cut(small, 220, SMALL));
    const widths = Float32Array.from(labels, (_, k) => Math.max(56, textWidth(names[k], NAME), textWidth(smalls[k], SMALL)) + 24);
    const laid = await lay({ widths, sources: found.sources, targets: found.targets, gap: 26 });
    if (wanted !== version) return;
    const box = i => found.boxes[i];
    shape = { ...found, ...laid, names, smalls, widths, y: i => laid.row[i] * ROW, height: laid.rows.length * ROW,
      colour: Array.from(found.boxes, (_, i) => boxColour(one, box(i))), isFolded: i => box(i).path !== null && box(i).nodes.length > 1, bands: bandsOf(found, laid) };
    waits.hidden = true;
    if (!found.boxes.length) { waits.hidden = false; waits.textContent = "There is nothing to draw: only constants."; }
    marked(lastNodes, lastId, false);
    if (held && shape.boxOf[held.node] >= 0) {
      const i = shape.boxOf[held.node];
      [view.x, view.y] = [shape.x[i] - held.x / view.scale, shape.y(i) - held.y / view.scale];
    } else if (!isFitted) fit(true);
    area.draw();
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark(`drawn ${one.name}`)));
  }

  // The whole graph in sight; at first not smaller than can be read, beginning at the top.
  function fit(isReadable) {
    if (!area.width || !shape) return;
    isFitted = true;
    const whole = Math.min(area.width / (shape.width + 60), area.height / (shape.height + 40), 1);
    view.scale = isReadable ? Math.max(whole, 0.85) : whole;
    view.x = shape.width / 2 - area.width / view.scale / 2;
    view.y = Math.min(-20, (shape.height - ROW + BOX) / 2 - area.height / view.scale / 2);
    if (shape.height * view.scale > area.height) view.y = isReadable ? -20 : view.y;
    if (isReadable && shape.width * view.scale > area.width && shape.rows[0]?.length) view.x = shape.x[shape.rows[0][0]] - area.width / view.scale / 2;
    area.draw();
    if (at >= 0 || met.size) reveal(lastId >= 0 ? lastId : lastNodes[0]);
  }
  area.resized = () => { if (!isFitted) fit(true); };

  function drawShape(context, width, height) {
    const { scale } = view;
    context.save();
    context.scale(scale, scale);
    context.translate(-view.x, -view.y);
    const sight = { left: view.x, right: view.x + width / scale, top: view.y, bottom: view.y + height / scale };
    drawEdges(context, sight, scale);
    const seen = boxesIn(sight);
    drawBoxes(context, seen, scale);
    if (scale > 0.42) drawLabels(context, seen, scale);
    context.restore();
  }

  function boxesIn({ left, right, top, bottom }) {
    const seen = [];
    const last = Math.min(shape.rows.length - 1, Math.floor(bottom / ROW));
    for (let r = Math.max(0, Math.floor((top - BOX) / ROW)); r <= last; r++) {
      const line = shape.rows[r];
      let [low, high] = [0, line.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (shape.x[line[middle]] + shape.widths[line[middle]] / 2 < left) low = middle + 1; else high = middle;
      }
      for (let k = low; k < line.length && shape.x[line[k]] - shape.widths[line[k]] / 2 <= right; k++) seen.push(line[k]);
    }
    return seen;
  }

  function drawEdges(context, sight, scale) {
    context.lineWidth = Math.max(1, 0.6 / scale);
    context.strokeStyle = paint.edge;
    context.globalAlpha = 0.6;
    context.beginPath();
    const mine = [];
    for (const edge of shape.bands.inSight(sight.top / ROW, sight.bottom / ROW)) {
      const [from, to] = [shape.sources[edge], shape.targets[edge]];
      if (from === at || to === at) { mine.push(edge); continue; }
      const [x0, x1] = [shape.x[from], shape.x[to]];
      if (Math.max(x0, x1) + 160 < sight.left || Math.min(x0, x1) - 160 > sight.right) continue;
      trace(context, from, to, scale);
    }
    context.stroke();
    context.globalAlpha = 1;
    context.beginPath();
    context.strokeStyle = paint.strong;
    context.lineWidth = Math.max(1.5, 1.2 / scale);
    for (const edge of mine) trace(context, shape.sources[edge], shape.targets[edge], scale);
    context.stroke();
  }

  // A line from the lower side of one box to the upper side of another. One that passes rows bends
  // around what lies between.
  function trace(context, from, to, scale) {
    const [x0, y0, x1, y1] = [shape.x[from], shape.y(from) + BOX, shape.x[to], shape.y(to)];
    context.moveTo(x0, y0);
    if (scale < 0.15) return context.lineTo(x1, y1);
    const passed = shape.row[to] - shape.row[from];
    const bend = passed > 1 && Math.abs(x1 - x0) < 90 ? 90 + 8 * Math.min(passed, 12) : passed < 1 ? -120 : 0;
    const reach = Math.min(Math.abs(y1 - y0) / 2, ROW * 1.2) + (passed < 1 ? ROW / 2 : 0);
    context.bezierCurveTo(x0 + bend, y0 + reach, x1 + bend, y1 - reach, x1, y1);
    if (scale > 0.5) { // the head of an arrow
      context.moveTo(x1 - 4, y1 - 6);
      context.lineTo(x1, y1);
      context.lineTo(x1 + 4, y1 - 6);
    }
  }

  function drawBoxes(context, seen, scale) {
    const round = scale > 0.25 ? 7 : 0;
    const outline = i => {
      const left = shape.x[i] - shape.widths[i] / 2;
      if (round) context.roundRect(left, shape.y(i), shape.widths[i], BOX, round); else context.rect(left, shape.y(i), shape.widths[i], BOX);
    };
    const group = (list, fill, stroke, line) => {
      if (!list.length) return;
      context.beginPath();
      list.forEach(outline);
      context.fillStyle = fill;
      context.fill();
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.stroke();
    };
    group(seen.filter(i => !met.has(i) && i !== at), paint.raised, paint.edge, Math.max(1, 0.5 / scale));
    group(seen.filter(i => met.has(i) && i !== at), paint.mark, paint.strong, Math.max(1.5, 1.2 / scale));
    group(seen.filter(i => i === at), paint.mark, paint.strong, Math.max(3, 2.5 / scale));
    stripes(context, seen);
  }

  function stripes(context, seen) {
    const byColour = new Map();
    for (const i of seen) if (shape.colour[i]) byColour.set(shape.colour[i], [...(byColour.get(shape.colour[i]) ?? []), i]);
    for (const [colour, list] of byColour) {
      context.fillStyle = paint[colour];
      for (const i of list) context.fillRect(shape.x[i] - shape.widths[i] / 2 + 5, shape.y(i) + 7, 4, BOX - 14);
    }
  }

  function drawLabels(context, seen) {
    context.textBaseline = "middle";
    context.font = NAME;
    context.fillStyle = paint.text;
    const left = i => shape.x[i] - shape.widths[i] / 2 + 15;
    for (const i of seen) context.fillText(shape.names[i], left(i), shape.y(i) + 13);
    context.font = SMALL;
    context.fillStyle = paint.faint;
    for (const i of seen) context.fillText(shape.smalls[i], left(i), shape.y(i) + 28);
    context.strokeStyle = paint.edge;
    context.lineWidth = 1;
    for (const i of seen.filter(shape.isFolded)) { // a second edge: more lies in it
      context.beginPath();
      context.roundRect(shape.x[i] - shape.widths[i] / 2 + 3, shape.y(i) + 3, shape.widths[i] - 6, BOX - 6, 5);
      context.stroke();
    }
  }

  function boxAt(x, y) {
    if (!shape) return -1;
    const [wx, wy] = [view.x + x / view.scale, view.y + y / view.scale];
    return boxesIn({ left: wx, right: wx, top: wy, bottom: wy })[0] ?? -1;
  }

  function choose(i) {
    if (i < 0) return clear();
    clicked = i;
    if (shape.isFolded(i)) select("module", shape.boxes[i].path); else select(one.name, shape.boxes[i].nodes[0]);
  }

  function toggle(i) {
    if (i < 0) return;
    const box = shape.boxes[i];
    if (shape.isFolded(i)) opened.add(box.path); else fold(box.nodes[0]);
    arrange(box.nodes[0]);
  }

  function refold(which) {
    folding = which;
    opened.clear();
    openedFirst(one).forEach(path => opened.add(path));
    isFitted = false;
    arrange(-1);
    remember();
  }

  // Closes the innermost module around a node that is open.
  function fold(node) {
    const inner = around[one.module(node)]?.filter(path => opened.has(path)).at(-1);
    if (inner !== undefined) for (const path of [...opened]) if (isInside(path, inner)) opened.delete(path);
  }

  let lastNodes = [], lastId = -1, clicked = -1;
  function marked(nodes, id, isNew) {
    [lastNodes, lastId] = [nodes, id];
    met = new Map();
    at = -1;
    if (!shape) return;
    for (const node of nodes) if (shape.boxOf[node] >= 0) met.set(shape.boxOf[node], (met.get(shape.boxOf[node]) ?? 0) + 1);
    if (id >= 0) at = shape.boxOf[id];
    const isOfModule = i => shape.boxes[i]?.path === selection.id && shape.isFolded(i);
    if (selection.kind === "module") at = isOfModule(clicked) ? clicked : shape.boxes.findIndex((_, i) => isOfModule(i));
    if (isNew && (met.size || at >= 0) && ![...met.keys(), at].some(i => i >= 0 && isInSight(i))) reveal(id >= 0 ? id : nodes.find(node => shape.boxOf[node] >= 0) ?? -1);
    area.draw();
  }

  function isInSight(i) {
    const [x, y] = [(shape.x[i] - view.x) * view.scale, (shape.y(i) - view.y) * view.scale];
    return x > 0 && y > 0 && x < area.width && y + BOX * view.scale < area.height;
  }

  function reveal(node) {
    const i = shape && node >= 0 ? shape.boxOf[node] : -1;
    if (i < 0 || !area.width) return;
    view.x = shape.x[i] - area.width / view.scale / 2;
    view.y = shape.y(i) - area.height / view.scale / 2;
    area.draw();
  }

  function zoom(factor, x = area.width / 2, y = area.height / 2) {
    const next = Math.max(0.02, Math.min(3, view.scale * factor));
    view.x += x / view.scale - x / next;
    view.y += y / view.scale - y / next;
    view.scale = next;
    area.draw();
  }

  function move(dx, dy) {
    view.x -= dx / view.scale;
    view.y -= dy / view.scale;
    area.draw();
  }

  function keyed(event) {
    const way = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    const does = { "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: () => fit(false), Enter: () => toggle(at), " ": () => toggle(at) }[event.key];
    if (!shape || event.ctrlKey || event.metaKey || event.altKey || (!way && !does)) return;
    event.preventDefault();
    if (way && event.shiftKey) move(-80 * way[0], -80 * way[1]);
    else if (way) stepTo(way);
    else does();
  }

  // The operand or reader that lies nearest, or the neighbour of the row.
  function stepTo([dx, dy]) {
    if (at < 0) return choose(shape.rows[0]?.[0] ?? -1);
    const line = shape.rows[shape.row[at]];
    const near = dy > 0 ? neighbours(shape.sources, shape.targets) : neighbours(shape.targets, shape.sources);
    const next = dx ? line[line.indexOf(at) + dx] : near.sort((a, b) => Math.abs(shape.x[a] - shape.x[at]) - Math.abs(shape.x[b] - shape.x[at]))[0];
    if (next !== undefined) choose(next);
  }

  function neighbours(mine, theirs) {
    const found = [];
    mine.forEach((box, edge) => { if (box === at) found.push(theirs[edge]); });
    return found;
  }

  gestures(area.canvas, { move, zoom, click: (x, y) => choose(boxAt(x, y)), hover: event => {
    const i = boxAt(event.offsetX, event.offsetY);
    area.canvas.style.cursor = i >= 0 ? "pointer" : "";
    tell(event, i < 0 ? "" : tipOf(one, shape.boxes[i], shape.isFolded(i)));
  } });
  area.canvas.addEventListener("dblclick", event => toggle(boxAt(event.offsetX, event.offsetY)));

  const all = element("input", { type: "checkbox", onchange: () => { showsAll = all.checked; arrange(-1); } });
  const bar = element("div", { class: "bar" },
    button("Fit", () => fit(false), { title: "The whole graph (0)" }), button("+", () => zoom(1.25), { "aria-label": "Larger" }), button("−", () => zoom(0.8), { "aria-label": "Smaller" }),
    button("Fold all", () => refold("all")), button("Unfold all", () => refold("none")),
    element("label", {}, all, "constants, views"));
  arrange(-1);
  redrawn.push(() => area.draw());
  return { elements: [bar, area.element], reveal, mark: (nodes, id) => marked(nodes, id, true) };
}

const redrawn = []; // what is drawn again when colours change

function boxColour(one, box) {
  const found = new Set();
  for (const node of box.nodes) for (const value of one.of(node)) found.add(kernelOfValue[value]);
  found.delete(-1);
  return found.size === 1 ? colourOf([...found][0]) : null;
}

function tipOf(one, box, isFolded) {
  if (isFolded) return `${isGradient(one, box.nodes[0]) ? "The gradient of " : ""}${box.path}\n${counted(box.nodes.length, "value")}; Enter or a double click unfolds it`;
  const i = box.nodes[0], value = one.of(i)[0];
  const where = value === undefined ? "" : place(values.file?.[value] ?? -1, values.line?.[value]);
  return [cutText(one.text(i), 300), modulePath(one.module(i)), where].filter(Boolean).join("\n");
}

// The edges of each few rows; those that pass many are in a list of their own.
function bandsOf({ sources, targets }, { row, rows }) {
  const bands = Array.from({ length: Math.ceil(rows.length / BAND) + 1 }, () => []), long = [];
  for (let edge = 0; edge < sources.length; edge++) {
    const [a, b] = [row[sources[edge]], row[targets[edge]]];
    const [first, last] = [Math.floor(Math.min(a, b) / BAND), Math.floor(Math.max(a, b) / BAND)];
    if (last - first > 8) long.push(edge);
    else for (let band = first; band <= last; band++) bands[band].push(edge);
  }
  const stamp = new Int32Array(sources.length);
  let turn = 0;
  return {
    inSight(top, bottom) {
      turn++;
      const found = [];
      for (const edge of long) {
        const [a, b] = [row[sources[edge]], row[targets[edge]]];
        if (Math.min(a, b) <= bottom && Math.max(a, b) >= top) found.push(edge);
      }
      const last = Math.min(bands.length - 1, Math.floor(bottom / BAND));
      for (let band = Math.max(0, Math.floor(top / BAND)); band <= last; band++) {
        for (const edge of bands[band]) if (stamp[edge] !== turn) { stamp[edge] = turn; found.push(edge); }
      }
      return found;
    },
  };
}
