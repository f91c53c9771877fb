"use strict";
// Keys and themes.

const KEYS = [
  [`1 … ${viewNames.length}`, "the views, in the order of their tabs"], ["/", "find by name, line or shape"], ["Escape", "close, or select nothing"], ["t", "light, dark, or the system's colours"], ["?", "these keys"],
  ["← ↑ → ↓", "graph: along edges. Timeline: pan, and from launch to launch. Tables and texts: row to row"], ["Enter", "graph: fold and unfold. Tables: choose the row. Timeline: code of the launch"],
  ["+ − 0", "graph and timeline: larger, smaller, all of it"], ["Shift + arrows", "graph: pan"],
];

function makeKeys() {
  by("keys").append(element("h2", { style: "margin-top: 0" }, "Keys"), element("dl", {}, KEYS.map(([key, what]) => [element("dt", {}, element("kbd", {}, key)), element("dd", {}, what)])),
    element("p", { class: "faint" }, "With the pointer: drag to pan, wheel to zoom, click to select, double click to fold and unfold."), button("Close", () => by("keys").close()));
  by("help").addEventListener("click", () => by("keys").showModal());
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || by("keys").open || event.defaultPrevented) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.key !== "Escape") return;
    const isOnCanvas = event.target.tagName === "CANVAS";
    const view = !isOnCanvas || event.key !== "0" ? viewNames[Number(event.key) - 1] : undefined;
    const does = { "/": () => { by("find").focus(); by("find").select(); }, "?": () => by("keys").showModal(), Escape: clear, t: nextTheme }[event.key] ?? (view && (() => open(view)));
    if (!does) return;
    event.preventDefault();
    does();
  });
}

const THEMES = ["auto", "light", "dark"];
function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
  by("theme").textContent = `Theme: ${name}`;
  try { localStorage.setItem("luminal-viz-theme", name); } catch { /* pages may be kept from storing */ }
  repaint();
}

function storedTheme() {
  try { return localStorage.getItem("luminal-viz-theme"); } catch { return null; }
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % THEMES.length]);
}

function repaint() {
  readColours();
  redrawn.forEach(draw => draw());
}
