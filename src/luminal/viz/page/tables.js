"use strict";
// Tables that are sorted by a click on a head.

const ROWS = 400; // that a table shows before it is asked for all

// Columns: { title, value(row), show(row), text }. A column whose values are numbers stands right.
// `pick` makes rows things that can be chosen; `isChosen` says which are.
function table(label, columns, rows, { sorted = null, isDown = true, pick = null, isChosen = () => false } = {}) {
  let column = sorted, limit = ROWS;
  const body = element("tbody", { onkeydown: rowKeys });
  const heads = columns.map((one, k) => element("th", { scope: "col", class: one.text ? null : "number" },
    button(one.title, () => { isDown = column === k ? !isDown : !one.text; column = k; fill(); }, { title: one.hint })));
  const more = element("p", { class: "faint" });
  const fill = () => {
    heads.forEach((head, k) => (k === column ? head.setAttribute("aria-sort", isDown ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    const inOrder = column === null ? rows : [...rows].sort((a, b) => compare(columns[column], a, b) * (isDown ? -1 : 1));
    body.replaceChildren(...inOrder.slice(0, limit).map(row => tableRow(columns, row, pick, isChosen)));
    more.replaceChildren(...(inOrder.length > limit ? [`${whole(limit)} of ${whole(inOrder.length)} rows. `, link("Show all", () => { limit = Infinity; fill(); })] : []));
  };
  fill();
  const made = element("div", {}, element("div", { class: "wide" },
    element("table", { "aria-label": label }, element("thead", {}, element("tr", {}, heads)), body)), more);
  made.refresh = () => {
    for (const row of body.rows) row.setAttribute("aria-selected", String(isChosen(row.datum)));
  };
  return made;
}

function compare(column, a, b) {
  const [x, y] = [column.value(a), column.value(b)];
  if (typeof x === "string" || typeof y === "string") return String(x ?? "").localeCompare(String(y ?? ""), undefined, { numeric: true });
  return (x ?? -Infinity) - (y ?? -Infinity) || 0;
}

function tableRow(columns, datum, pick, isChosen) {
  const cells = columns.map(one => element("td", { class: one.text === "short" ? null : one.text ? "text" : "number" }, (one.show ?? one.value)(datum) ?? ""));
  const row = element("tr", pick ? { tabindex: 0, "aria-selected": String(isChosen(datum)), onclick: () => pick(datum) } : {}, cells);
  row.datum = datum;
  return row;
}

function rowKeys(event) {
  const row = event.target.closest("tr");
  const next = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling }[event.key];
  if (next) { next.focus(); event.preventDefault(); }
  if ((event.key === "Enter" || event.key === " ") && event.target === row) { row.click(); event.preventDefault(); }
}
