"use strict";
// The start.

function start() {
  by("theme").addEventListener("click", nextTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  setTheme(THEMES.includes(storedTheme()) ? storedTheme() : "auto");
  if (!given) return by("view").append(element("p", { class: "empty", style: "padding: 2rem 1rem" }, "There is no document in this page. Make one with: luminal viz FILE.py:FUNCTION"));
  document.title = `${given.title}, luminal viz`;
  by("title").textContent = given.title;
  by("subtitle").textContent = ["luminal", given.luminal, given.made && `made ${given.made.replace("T", " ")}`].filter(Boolean).join(" ");
  makeTabs();
  makeFinder();
  makeKeys();
  addEventListener("hashchange", follow);
  follow();
  performance.mark("opened");
}

start();
