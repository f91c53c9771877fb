"use strict";
// Searches: those that a database has noted. One of them is what the view Search shows.

const searches = given?.searches ?? null; // of a database; null where the document is of one program
let chosenSearch = 0;

function chooseSearch(number) {
  chosenSearch = searches[number] ? number : 0;
  given.search = searches[chosenSearch]?.search ?? null;
}

function searchesView() {
  if (!searches.length) return { element: empty("searches", "This database has noted no search: those of older versions of Luminal were not noted, and luminal cache clear forgets them.") };
  const rows = searches.map((row, id) => ({ ...row, id }));
  const machines = [...new Set(rows.map(row => row.machine))];
  const gained = rows.filter(row => row.gain > 1).length;
  const shownTable = table("Searches", [
    { title: "ended", text: "short", value: row => row.ended, show: row => element("span", { style: "white-space: nowrap" }, row.ended) },
    { title: "program", text: true, value: row => row.title || row.of, show: row => [row.title, " ", element("small", { class: "faint" }, cutText(row.of ?? "", 80))] },
    { title: "at", text: "short", value: row => Object.entries(row.dims ?? {}).map(([name, n]) => `${name} = ${n}`).join(", ") },
    ...(machines.length > 1 ? [{ title: "machine", text: true, value: row => row.machine }] : []),
    { title: "mode", text: "short", value: row => row.search.mode },
    { title: "candidates", value: row => row.search.candidates, show: row => whole(row.search.candidates) },
    { title: "fast", value: row => row.search.fast_seconds, show: row => (row.search.fast_seconds ? duration(row.search.fast_seconds) : "") },
    { title: "best", value: row => row.search.best_seconds, show: row => (row.search.best_seconds ? duration(row.search.best_seconds) : "") },
    { title: "gain", value: row => row.gain, show: row => (row.gain ? element("span", { class: "good" }, `${digits(row.gain)}x`) : "") },
    { title: "decision", text: true, value: row => row.search.decision, show: row => element("span", { class: /^failed/.test(row.search.decision) ? "wrong" : "" }, row.search.decision) },
  ], rows, { pick: row => { chooseSearch(row.id); open("search"); }, isChosen: row => row.id === chosenSearch });
  return { update: shownTable.refresh, element: element("div", {}, element("h2", {}, "Searches"),
    element("p", {}, `${counted(rows.length, "search", "searches")}, the latest first; ${gained ? whole(gained) : "none"} of them found a program that is faster than that of the rules. Choose one to see what it tried.${machines.length === 1 ? ` All ran on ${machines[0]}.` : ""}`), shownTable) };
}

// Above one search of a database: which one it is, and the way back.
function ofDatabase() {
  const row = searches?.[chosenSearch];
  if (!row) return [];
  const at = Object.entries(row.dims ?? {}).map(([name, n]) => `${name} = ${n}`).join(", ");
  return [element("p", {}, link("All searches", () => open("searches"))), element("h2", {}, row.title || "A program"),
    element("p", {}, [row.of, at && `at ${at}`, row.machine, `ended ${row.ended}`].filter(Boolean).join("; "))];
}
