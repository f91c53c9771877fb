"use strict";
// Search: candidates over time, what each changed and gained, why some were rejected.

function searchView() {
  const outer = element("div", {});
  let drawn;
  const update = () => {
    if (drawn === given.search && drawn !== undefined) return;
    drawn = given.search;
    outer.replaceChildren(...(drawn ? searchParts(drawn) : [empty("search", "No search ran, so every choice is that of a rule: pass --mode 30s to time other programs on this machine.")]));
  };
  update();
  return { element: outer, update };
}

function searchParts(search) {
  const history = (search.history ?? []).filter(one => isFinite(one.best_seconds) && one.best_seconds > 0);
  return [...ofDatabase(), element("h2", {}, "What the search did"), element("p", {}, searchInWords(search)), note("search"),
    history.length ? chart("The best time over the search", width => historyDrawing(history, search, width)) : "",
    element("h2", {}, "What the winner does otherwise than fast"), ...difference(search),
    ...genes(search.genes ?? []), ...rejected(search.rejected ?? []), ...ruleTable(search.rules ?? [])].filter(one => one !== "");
}

function searchInWords(search) {
  const spent = search.history?.length ? ` in ${duration(search.history.at(-1).seconds)}` : "";
  const isUnknown = search.from_database && !search.genes?.length;
  return `Mode ${search.mode}, seed ${search.seed}: ${counted(search.candidates, "candidate")} and ${counted(search.kernels_built, "kernel")} built${spent}${search.from_database ? ", by an earlier search that decided this one" : ""}. `
    + `${search.fast_seconds ? `The fast program takes ${duration(search.fast_seconds)}, the best one ${duration(search.best_seconds)}. ` : ""}Decision: ${search.decision}.${isUnknown ? " What the earlier search tried is not known here: with another LUMINAL_CACHE_DIR the search runs anew." : ""}`;
}

// The choices of the winner, the one that gains most first.
function difference(search) {
  const rows = [...search.difference ?? []].sort((a, b) => (b.without ?? 0) - (a.without ?? 0));
  if (!rows.length) return [element("p", { class: "faint" }, "Nothing: the fast program runs.")];
  const known = rows.filter(row => row.without);
  const whole = known.length > 1 && search.fast_seconds ? ` All together gain ${digits(search.fast_seconds / search.best_seconds)}x; gains of single choices need not multiply to that, as one may need another.` : "";
  return [known.length ? element("p", { class: "faint" }, `Each choice was taken back alone, and the program without it timed in turns with the winner.${whole}`) : "",
    element("ul", { "aria-label": "Differences from fast" }, rows.map(row => element("li", {}, sentence(row.text), row.without ? gainOf(row.without) : "")))].filter(one => one !== "");
}

function gainOf(without) {
  if (Math.abs(without - 1) < 0.01) return element("span", { class: "faint" }, " Without it a run takes as long.");
  return element("span", { class: without > 1 ? "good" : "wrong" }, ` Without it a run takes ${digits(without)} times as long.`);
}

function historyDrawing(history, search, width) {
  const height = 260, times = [...history.map(one => one.best_seconds), search.fast_seconds].filter(one => one > 0);
  const [least, most] = [Math.min(...times), Math.max(...times)];
  const pad = (most - least || most) * 0.12, low = Math.max(0, least - pad), high = most + pad;
  const end = Math.max(...history.map(one => one.seconds), 1e-9);
  const levels = ticks(low, high, 5);
  const left = Math.max(...levels.map(tick => textWidth(duration(tick)))) + 12;
  const [top, bottom, right] = [24, height - 44, width - 16];
  const x = seconds => left + seconds / end * (right - left), y = seconds => bottom - (seconds - low) / (high - low) * (bottom - top);
  const svg = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The best time of a run over the time of the search" });
  svg.append(drawing("text", { x: 0, y: 12 }, "time of a run"), drawing("text", { x: right, y: height - 4, "text-anchor": "end" }, "time of the search"));
  for (const tick of levels) svg.append(drawing("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }), drawing("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, duration(tick)));
  for (const tick of ticks(0, end, width / 130)) svg.append(drawing("text", { x: x(tick), y: bottom + 18, "text-anchor": tick > end * 0.95 ? "end" : "middle" }, duration(tick)));
  const path = history.map((one, k) => (k ? `H${x(one.seconds)}V${y(one.best_seconds)}` : `M${x(one.seconds)} ${y(one.best_seconds)}`)).join("");
  svg.append(drawing("path", { class: "best", d: `${path}H${right}` }));
  const taken = history.map(one => [x(one.seconds) - 6, y(one.best_seconds) - 6, x(one.seconds) + 6, y(one.best_seconds) + 6]);
  history.forEach((one, k) => takeLine(taken, x(one.seconds), y(one.best_seconds), k + 1 < history.length ? x(history[k + 1].seconds) : right, y(one.best_seconds)));
  if (search.fast_seconds) takeLine(taken, left, y(search.fast_seconds), right, y(search.fast_seconds));
  const name = (text, px, py) => { const at = freePlace(taken, px, py, text, [left, top, right, bottom]); if (at) svg.append(drawing("text", { class: "name", x: at[0], y: at[1] }, text)); };
  if (search.fast_seconds) {
    svg.append(drawing("path", { class: "fast", d: `M${left} ${y(search.fast_seconds)}H${right}` }));
    name(`fast ${duration(search.fast_seconds)}`, right - 60, y(search.fast_seconds));
  }
  for (const one of history) {
    svg.append(drawing("circle", { class: "dot", cx: x(one.seconds), cy: y(one.best_seconds), r: 5, style: "fill: var(--k0)",
      onpointermove: event => tell(event, `${duration(one.best_seconds)} after ${duration(one.seconds)}, ${counted(one.candidates, "candidate")}`), onpointerleave: event => tell(event, "") }));
  }
  name(`best ${duration(history.at(-1).best_seconds)}`, x(history.at(-1).seconds), y(history.at(-1).best_seconds));
  return svg;
}

function genes(rows) {
  if (!rows.length) return [];
  const outcomes = ["kept", "slower", "priced", "rejected"].filter(name => rows.some(row => row.outcome === name));
  const names = [["all", `All ${whole(rows.length)}`], ...outcomes.map(name => [name, `${sentence(name).slice(0, -1)} ${whole(rows.filter(row => row.outcome === name).length)}`])];
  const below = element("div", {});
  const show = name => below.replaceChildren(geneTable(name === "all" ? rows : rows.filter(row => row.outcome === name)));
  show("all");
  return [element("h2", {}, "What each candidate changed, and what that gained"), element("p", { class: "faint" }, "A candidate is the best program so far with a change; its gain is over that program, timed in turns with it. Kept: from there on it was the best. Schedules are priced first: what one kernel takes in a run, over what it takes as it is; the fastest of each kernel are then timed as programs."),
    element("div", { class: "bar" }, choice("Outcome", names, "all", show)), below];
}

function geneTable(rows) {
  return table("Candidates", [
    { title: "candidate", value: row => row.candidate, show: row => whole(row.candidate) },
    { title: "after", value: row => row.seconds, show: row => duration(row.seconds) },
    { title: "changed", text: true, value: row => row.changed ?? "" },
    { title: "a run", hint: "of a priced schedule: its kernel in a run", value: row => row.run_seconds, show: row => duration(row.run_seconds) },
    { title: "gain", value: row => row.gain, show: row => (row.gain ? element("span", { class: row.gain > 1 ? "good" : "" }, `${digits(row.gain)}x`) : "") },
    { title: "outcome", text: "short", value: row => row.outcome ?? "", show: row => element("span", { class: row.outcome === "kept" ? "good" : row.outcome === "rejected" ? "wrong" : "" }, row.outcome ?? "") },
    { title: "because", text: true, value: row => row.reason ?? "" },
  ], rows);
}

function rejected(rows) {
  if (!rows.length) return [];
  return [element("h2", {}, "Rejected"), table("Rejected", [
    { title: "candidates", value: row => row.candidates, show: row => whole(row.candidates) },
    { title: "because", text: true, value: row => row.reason }, { title: "for example", text: true, value: row => row.example ?? "" },
  ], rows, { sorted: 0 })];
}

function ruleTable(rows) {
  if (!rows.length) return [];
  return [element("h2", {}, "Rules"), table("Rules", [
    { title: "rule", text: true, value: row => row.name }, { title: "class", text: "short", value: row => row.kind },
    { title: "matches", value: row => row.matches, show: row => whole(row.matches) }, { title: "new nodes", value: row => row.new_nodes, show: row => whole(row.new_nodes) },
    { title: "time", value: row => row.seconds, show: row => duration(row.seconds) },
  ], rows, { sorted: 2 })];
}
