"use strict";
// The viewer of `luminal viz`. It reads one document, the JSON in the page, and asks no network for
// anything. index.html lists its files in their order: what views share, the views by their tabs,
// then what holds them together. luminal/viz/page.py joins them, and no other step is there.
// Whatever comes from a user's program is put in as text, never as HTML.
//
// Elements: how they are made.

const by = id => document.getElementById(id);

// An element with attributes and children. Attributes that begin with "on" are listeners; null and
// false leave an attribute out.
function element(name, attributes = {}, ...children) {
  return dressed(document.createElement(name), attributes, children);
}

function drawing(name, attributes = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function dressed(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== ""));
  return made;
}

function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

function link(text, onclick, attributes = {}) {
  return button(text, onclick, { class: "plain", ...attributes });
}

// Buttons of which one is pressed.
function choice(label, names, chosen, pick) {
  const buttons = names.map(([name, text]) =>
    button(text, () => { press(name); pick(name); }, { "data-name": name }));
  const press = name => buttons.forEach(one => one.setAttribute("aria-pressed", String(one.dataset.name === name)));
  press(chosen);
  return element("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}
