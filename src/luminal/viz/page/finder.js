"use strict";
// Search for values, kernels and buffers: by name, by line (model.py:41), by shape ([8, 32]).

const MOST = 60; // found things that are listed
let index = null;

// What can be found, with the text that is searched. Shapes lose their spaces, so that "[8,32]" and
// "[8, 32]" are the same.
function searchIndex() {
  if (index) return index;
  const dense = text => text.toLowerCase().replaceAll(" ", "");
  const one = (kind, id, title, detail) => ({ kind, id, title, detail, text: dense(`${title} ${detail}`) });
  index = kernels.map(row => one("kernel", row.number, `Kernel ${row.number}: ${row.origin || row.label}`, (row.lines ?? []).map(at => place(...at)).join(" ")));
  for (const { path, class: kind } of modules) if (path) index.push(one("module", path, `Module ${path}`, kind ?? ""));
  for (let i = 0; i < values.op.length; i++) {
    const where = [values.call?.[i], modulePath(values.module?.[i] ?? -1), place(values.file?.[i] ?? -1, values.line?.[i])].filter(Boolean).join(", ");
    index.push(one("value", i, `%${i} ${values.ops[values.op[i]]}${values.name?.[i] ? ` ${values.name[i]}` : ""} : ${typeText(i)}`, where));
  }
  buffers.forEach((row, id) => index.push(one("buffer", id, `Buffer ${row.name}, ${bytes(row.bytes)}`, row.origin ?? "")));
  return index;
}

function found(query) {
  const shape = /^\[?(\d+(?:\s*[x×,]\s*\d+)+)\]?$/.exec(query.trim());
  const words = shape ? [`[${shape[1].replace(/\s*[x×,]\s*/g, ",")}]`] : query.toLowerCase().split(/\s+(?![^[]*\])/).map(word => word.replaceAll(" ", "")).filter(Boolean);
  const isLine = words.map(word => /:\d+$/.test(word));
  const fits = text => words.every((word, k) => (isLine[k] ? new RegExp(`${word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}(?!\\d)`).test(text) : text.includes(word)));
  return words.length ? searchIndex().filter(one => fits(one.text)) : [];
}

const finder = { list: [], at: 0 };
function showFound() {
  const all = found(by("find").value);
  finder.list = all.slice(0, MOST);
  finder.at = 0;
  const items = finder.list.map((one, k) => element("li", { role: "option", id: `found-${k}`, onpointerdown: event => { event.preventDefault(); take(k); } }, one.title, element("small", {}, one.detail)));
  const more = all.length > MOST ? [element("li", { class: "faint", "aria-disabled": "true" }, `and ${whole(all.length - MOST)} more`)] : [];
  const none = by("find").value.trim() && !all.length ? [element("li", { class: "faint", "aria-disabled": "true" }, "Nothing is called so. A name, a line (model.py:41) or a shape ([8, 32]) is found.")] : [];
  by("found").replaceChildren(...items, ...more, ...none);
  setFound(by("found").children.length > 0);
  moveFound(0);
}

function setFound(isOpen) {
  by("found").hidden = !isOpen;
  by("find").setAttribute("aria-expanded", String(isOpen));
}

function moveFound(by_) {
  if (!finder.list.length) return by("find").removeAttribute("aria-activedescendant");
  finder.at = (finder.at + by_ + finder.list.length) % finder.list.length;
  [...by("found").children].forEach((item, k) => item.setAttribute("aria-selected", String(k === finder.at)));
  by("find").setAttribute("aria-activedescendant", `found-${finder.at}`);
  by("found").children[finder.at].scrollIntoView({ block: "nearest" });
}

function take(k) {
  const one = finder.list[k];
  if (!one) return;
  setFound(false);
  by("find").blur();
  go({ kernel: "kernels", buffer: "memory" }[one.kind] ?? "graph", one.kind, one.id);
}

function makeFinder() {
  by("find").addEventListener("input", showFound);
  by("find").addEventListener("focus", () => { if (by("find").value) showFound(); });
  by("find").addEventListener("blur", () => setFound(false));
  by("find").addEventListener("keydown", event => {
    const does = { ArrowDown: () => moveFound(1), ArrowUp: () => moveFound(-1), Enter: () => take(finder.at), Escape: () => { by("find").value = ""; setFound(false); by("find").blur(); } }[event.key];
    if (!does) return;
    event.preventDefault();
    event.stopPropagation();
    does();
  });
}
