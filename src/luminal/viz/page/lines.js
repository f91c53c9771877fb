"use strict";
// Lines of text, of which only those in sight are elements.

const LINE = 20; // pixels of one, as in the style

function lines(label, { pick = null } = {}) {
  const inner = element("div", { style: "position: relative" });
  const outer = element("div", { class: "lines code", tabindex: 0, role: pick ? "listbox" : "region", "aria-label": label }, inner);
  let count = 0, write = () => "", mark = () => "", widest = 0;
  const draw = () => {
    const from = Math.max(0, Math.floor(outer.scrollTop / LINE) - 5);
    const to = Math.min(count, Math.ceil((outer.scrollTop + outer.clientHeight) / LINE) + 5);
    const rows = [];
    for (let i = from; i < to; i++) rows.push(line(i, write(i), mark(i)));
    inner.replaceChildren(...rows);
  };
  const line = (i, text, kind) => element("div", {
    class: `row ${pick ? "pick" : ""} ${kind}`, style: `top: ${i * LINE}px`, "data-i": i,
    role: pick ? "option" : null, "aria-selected": pick ? String(kind === "at") : null,
  }, text);
  outer.addEventListener("scroll", draw);
  if (pick) outer.addEventListener("click", event => {
    const row = event.target.closest(".row");
    if (row) pick(Number(row.dataset.i));
  });
  new ResizeObserver(draw).observe(outer);
  return {
    element: outer, draw,
    fill(n, text, longest) {
      [count, write, widest] = [n, text, longest];
      inner.style.height = `${n * LINE}px`;
      inner.style.width = `${widest + 2}ch`;
      draw();
    },
    mark(kind) { mark = kind; draw(); },
    reveal(i) {
      const top = i * LINE;
      if (top < outer.scrollTop || top + LINE > outer.scrollTop + outer.clientHeight) outer.scrollTop = top - outer.clientHeight / 3;
      draw();
    },
  };
}

// The texts of a kernel, one at a time.
const TEXTS = { tile: "Tile IR", fast: "Tile IR of fast", expanded: "Expanded IR", llvm: "LLVM IR", asm: "Assembly", c: "C", sass: "SASS" };
function kernelTexts() {
  let kernel = null, wanted = "tile";
  const text = lines("Text of the kernel");
  const head = element("div", { class: "bar" });
  const show = () => {
    const names = Object.keys(kernel?.texts ?? {});
    const name = names.includes(wanted) ? wanted : names[0];
    const all = name ? kernel.texts[name].split("\n") : [];
    head.replaceChildren(...(names.length ? [choice("Form", names.map(one => [one, TEXTS[one] ?? one]), name, one => { wanted = one; show(); }),
      button("Copy", () => navigator.clipboard?.writeText(kernel.texts[name]))] : []),
    kernel?.note ? element("span", { class: "faint" }, kernel.note) : "");
    text.element.scrollTop = 0;
    text.fill(all.length, i => all[i], all.reduce((most, one) => Math.max(most, one.length), 0));
  };
  return { element: element("div", { class: "codes" }, head, text.element), show(one) { if (one !== kernel) { kernel = one; show(); } } };
}
