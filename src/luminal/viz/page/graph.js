"use strict";
// Graph: the stages side by side.

function graph() {
  const isNarrow = innerWidth < 800;
  const shownPanes = new Set(isNarrow ? ["hlir"] : ["hlir", "program", "kernel"]);
  const panes = element("div", { class: "panes" });
  const made = new Map();
  const names = [...stages.map(one => [one.name, one.name === "hlir" ? "HLIR" : one.name[0].toUpperCase() + one.name.slice(1)]), ["kernel", "Kernel texts"]];
  const make = name => (name === "kernel" ? kernelPane() : stagePane(stages.find(one => one.name === name), names.find(([other]) => other === name)[1]));
  const arrange = () => {
    panes.replaceChildren(...names.filter(([name]) => shownPanes.has(name)).map(([name]) => {
      if (!made.has(name)) made.set(name, make(name));
      return made.get(name).element;
    }));
    update();
  };
  const toggles = names.map(([name, text]) => button(text, event => {
    if (!shownPanes.delete(name)) shownPanes.add(name);
    event.currentTarget.setAttribute("aria-pressed", String(shownPanes.has(name)));
    arrange();
  }, { "aria-pressed": String(shownPanes.has(name)) }));
  const update = () => { for (const [name, pane] of made) if (shownPanes.has(name)) pane.update(); };
  arrange();
  const bar = element("div", { class: "bar" }, element("span", { class: "faint" }, "Side by side:"), toggles, legend());
  return { element: element("div", { class: "whole" }, bar, note("graph"), panes), update };
}

function legend() {
  const named = order.slice(0, NAMED).filter(one => one.kernel >= 0);
  if (!named.length) return "";
  return element("span", { class: "faint legend" }, "Stripes: the kernel that computes it ",
    named.map(one => element("span", { style: "white-space: nowrap" }, " ", patch(colourOf(one.kernel)), kernelName(one.kernel))), order.length > named.length ? element("span", { style: "white-space: nowrap" }, " ", patch(`k${NAMED}`), "others") : "");
}

// A stage as a drawing or as its text.
function stagePane(one, title) {
  const bodyOf = { drawn: null, text: null };
  let mode = one.name === "hlir" ? "drawn" : "text", at = 0, nodes = [];
  const found = element("span", { class: "faint" });
  const holder = element("div", { style: "display: contents" });
  const step = by => {
    if (!nodes.length) return;
    at = (at + by + nodes.length) % nodes.length;
    tellFound();
    bodyOf[mode].reveal(nodes[at]);
  };
  const back = button("↑", () => step(-1), { "aria-label": "The one before", title: "The one before" });
  const forth = button("↓", () => step(1), { "aria-label": "The next one", title: "The next one" });
  const tellFound = () => {
    found.textContent = nodes.length ? `${at + 1} of ${whole(nodes.length)} selected` : selection.kind ? "none of what is selected" : counted(one.count, "node");
    back.hidden = forth.hidden = nodes.length < 2;
  };
  const update = () => {
    nodes = nodesOf(one, selection.values);
    at = Math.max(0, nodes.indexOf(isHere(one) ? selection.id : nodes[0]));
    tellFound();
    bodyOf[mode].mark(nodes, isHere(one) ? selection.id : -1);
  };
  const show = () => {
    bodyOf[mode] ??= mode === "drawn" ? drawnStage(one, title) : writtenStage(one, title);
    holder.replaceChildren(...bodyOf[mode].elements);
    pane.classList.toggle("drawn", mode === "drawn");
    update();
  };
  const pane = element("section", { class: "pane", "aria-label": title }, element("div", { class: "bar" }, element("h3", {}, title),
    choice("Form", [["drawn", "Drawn"], ["text", "Text"]], mode, name => { mode = name; show(); }), found, back, forth), holder);
  show();
  return { element: pane, update };
}

const isHere = one => selection.kind === (one.name === "hlir" ? "value" : one.name);

function writtenStage(one, title) {
  const text = lines(`${title} as text`, { pick: i => select(one.name, i) });
  const loops = one.columns.loop;
  const inside = i => (loops?.[i] >= 0 ? "  ".repeat(1 + (loops[loops[i]] >= 0 ? 1 : 0)) : "");
  let longest = 0;
  for (let i = 0; i < one.count; i++) longest = Math.max(longest, one.text(i).length + 4);
  text.fill(one.count, i => inside(i) + one.text(i), longest);
  text.element.addEventListener("keydown", event => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    select(one.name, Math.max(0, Math.min(one.count - 1, isHere(one) ? selection.id + by : 0)));
  });
  return {
    elements: [text.element], reveal: text.reveal,
    mark(nodes, id) {
      const met = new Set(nodes);
      text.mark(i => (i === id ? "at" : met.has(i) ? "met" : ""));
      if (nodes.length) text.reveal(id >= 0 ? id : nodes[0]);
    },
  };
}

// The texts of a kernel of the selection.
function kernelPane() {
  let chosen = null;
  const texts = kernelTexts();
  const pick = element("select", { "aria-label": "Kernel", onchange: () => select("kernel", Number(pick.value)) },
    kernels.map(one => element("option", { value: one.number }, `${kernelName(one.number)}  ${cutText(one.origin || one.label, 60)}`)));
  const pane = element("section", { class: "pane", "aria-label": "Kernel texts" }, element("div", { class: "bar" }, element("h3", {}, "Kernel"), pick), texts.element);
  const update = () => {
    const met = meets("kernels", kernels, selection.values).map(i => kernels[i]);
    const kernel = selectedKernel() ?? met[0] ?? chosen ?? kernelByNumber.get(order[0]?.kernel) ?? kernels[0];
    if (!kernel) return;
    chosen = kernel;
    pick.value = String(kernel.number);
    texts.show(kernel);
  };
  if (!kernels.length) pane.append(empty("kernels", "This program has no kernels."));
  return { element: pane, update };
}

function selectedKernel() {
  if (selection.kind === "kernel") return kernelByNumber.get(selection.id);
  if (selection.kind === "launch") return kernelByNumber.get(launches[selection.id].kernel);
  if (selection.kind === "program") {
    return kernelByNumber.get(launches[stages.find(one => one.name === "program").columns.launch[selection.id]]?.kernel);
  }
  return undefined;
}

const cutText = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
