"use strict";
// Timeline: launches, steps of the compile, the search, two runs.

function timeline() {
  const kinds = [["run", "Run"], ["compile", "Compile"], ["search", "Search"], ["two", "Two runs"]].map(([name, title]) => ({ name, title, tracks: tracksOf(name) })).filter(one => one.tracks.length);
  if (!kinds.length) return { element: empty("timeline", "Nothing was timed: neither a run nor the compile has times in this document.") };
  const below = element("div", {});
  const words = element("p", {});
  const area = tracks();
  const show = name => {
    const one = kinds.find(other => other.name === name);
    area.show(one.tracks);
    words.textContent = timelineWords(one);
    below.replaceChildren(...(name === "two" ? differences() : name === "compile" ? [steps(one.tracks[0].items)] : []));
  };
  const first = kinds.find(one => one.name === "two") ?? kinds[0]; // who asks for two runs looks for what differs
  show(first.name);
  return { update: area.draw, element: element("div", {}, element("div", { class: "bar" }, choice("What is shown", kinds.map(one => [one.name, one.title]), first.name, show), area.buttons),
    words, area.element, below) };
}

function timelineWords({ name, tracks: shownTracks }) {
  const items = shownTracks.flatMap(one => one.items);
  const end = Math.max(...items.map(one => one.end));
  if (name === "run") {
    const waited = items.reduce((sum, one) => sum + (one.wait ?? 0), 0), barriers = items.filter(one => one.barrier).length;
    return `${counted(items.length, "launch", "launches")} on ${counted(shownTracks.length, "track")}, ${duration(end)} from first to last${waited ? `; hatched: ${duration(waited)} of waiting` : ""}${barriers ? `; thin lines: ${counted(barriers, "barrier")}, where all threads wait for each other` : ""}. ${isTimed ? sumInWords() : ""}`;
  }
  if (name === "two") return `Launches of each run end to end, in program order: ${duration(launchSum)} here, ${duration(otherSum())} in ${given.other.title ?? "the other run"}.`;
  return name === "compile" ? `The compile took ${duration(end)}; a step lies below the one that it is part of.` : `The search took ${duration(end)}.`;
}

const otherSum = () => (given.other?.launches ?? []).reduce((sum, row) => sum + (row.seconds ?? 0), 0);

function tracksOf(name) {
  if (name === "run") return runTracks(given.timeline?.run ?? []);
  if (name === "two") return given.other?.launches?.length && isTimed ? [["this run", launches, true], [given.other.title ?? "the other run", given.other.launches, false]].map(endToEnd) : [];
  const all = given.timeline?.[name] ?? [], names = [...new Set(all.map(one => one.name))]; // one colour for each name
  const items = all.map(one => ({ start: one.start, end: one.end, text: one.name, colour: `k${names.indexOf(one.name) % NAMED}`, level: one.depth ?? 0, launch: -1 }));
  return items.length ? [{ name, items: items.sort((a, b) => a.start - b.start) }] : [];
}

function runTracks(run) {
  const byTrack = new Map();
  for (const one of run) {
    const row = launches[one.launch];
    if (!byTrack.has(one.track)) byTrack.set(one.track, []);
    byTrack.get(one.track).push({ start: one.start, end: one.end, wait: one.wait ?? 0, barrier: Boolean(one.barrier), level: 0, launch: one.launch, colour: colourOf(row?.kernel),
      text: `${row ? `${kernelName(row.kernel)} ${launchName(row)}` : `launch ${one.launch}`}${one.trip ? `, trip ${one.trip}` : ""}` });
  }
  return [...byTrack].map(([name, items]) => ({ name: String(name), items: items.sort((a, b) => a.start - b.start) }));
}

function endToEnd([name, rows, isOurs]) {
  let start = 0;
  const items = rows.map((row, k) => {
    const item = { start, end: start + (row.seconds ?? 0), level: 0, launch: isOurs ? k : -1, colour: isOurs ? colourOf(row.kernel) : colourOf(sameKernel(row)), text: launchName(row) };
    start = item.end;
    return item;
  });
  return { name, items };
}

// The kernel of this run that a launch of the other is, by its label and where it comes from.
const sameKernel = row => (launches.find(mine => mine.label === row.label && mine.origin === row.origin) ?? { kernel: -2 }).kernel;

// How a run of this program and one of the other compare.
function runsInWords() {
  const [mine, theirs] = [given.run_seconds, given.other.run_seconds];
  return mine && theirs ? `A run takes ${duration(mine)} here and ${duration(theirs)} in ${given.other.title}: ${mine > theirs ? `${duration(mine - theirs)} lost` : `${duration(theirs - mine)} won`}. ` : "";
}

function differences() {
  const rows = pairedLaunches(), said = runsInWords();
  return [element("h3", {}, "Differences, the most time lost first"), element("p", { class: "faint" }, `${said}Launches are paired by label and origin. Lost: slower here than there.`), table("Differences", [
    { title: "launch", text: true, value: row => row.name, show: row => (row.index >= 0 ? link(row.name, () => select("launch", row.index)) : row.name) },
    { title: "here", value: row => row.mine ?? -1, show: row => (row.mine === null ? "none" : duration(row.mine)) },
    { title: "there", value: row => row.theirs ?? -1, show: row => (row.theirs === null ? "none" : duration(row.theirs)) },
    { title: "lost", value: row => row.lost, show: row => element("span", { class: row.lost > 0 ? "wrong" : "good" }, `${row.lost > 0 ? "+" : ""}${duration(row.lost)}`) },
    { title: "ratio", value: row => (row.mine ?? 0) / (row.theirs || NaN), show: row => (row.mine && row.theirs ? `${digits(row.mine / row.theirs)}x` : "") },
  ], rows, { sorted: 3 })];
}

function pairedLaunches() {
  const key = row => `${row.label}\n${row.origin}`;
  const waiting = new Map();
  for (const row of given.other.launches) waiting.set(key(row), [...(waiting.get(key(row)) ?? []), row]);
  const rows = launches.map((row, index) => {
    const theirs = waiting.get(key(row))?.shift() ?? null;
    return { index, name: launchName(row), mine: row.seconds ?? 0, theirs: theirs && (theirs.seconds ?? 0), lost: (row.seconds ?? 0) - (theirs?.seconds ?? 0) };
  });
  for (const row of [...waiting.values()].flat()) rows.push({ index: -1, name: launchName(row), mine: null, theirs: row.seconds ?? 0, lost: -(row.seconds ?? 0) });
  return rows;
}

// Each kind of step with the time of all that have its name.
function steps(items) {
  const byName = new Map();
  for (const { text, colour, start, end } of items) {
    const row = byName.get(text) ?? { text, colour, times: 0, seconds: 0 };
    byName.set(text, { ...row, times: row.times + 1, seconds: row.seconds + end - start });
  }
  return table("Steps of the compile", [
    { title: "step", text: true, value: row => row.text, show: row => patched(row.colour, row.text) },
    { title: "times", value: row => row.times, show: row => whole(row.times) },
    { title: "time in all", value: row => row.seconds, show: row => duration(row.seconds), hint: "with that of the steps inside of it" },
  ], [...byName.values()], { sorted: 2 });
}
