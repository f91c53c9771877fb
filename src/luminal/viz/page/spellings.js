"use strict";
// Spellings: what the rules found equal, and which was taken.

function spellings() {
  const classes = given.spellings ?? [];
  if (!classes.length) return { element: empty("spellings", "No value of this program has another spelling that was kept: the rules found nothing equal to what was recorded.") };
  let chosen = 0;
  const right = element("div", {});
  const buttons = classes.map((one, k) => element("li", {}, button(classTitle(one), () => { chosen = k; show(); })));
  const show = () => {
    buttons.forEach((item, k) => item.firstChild.setAttribute("aria-pressed", String(k === chosen)));
    right.replaceChildren(...spellingTable(classes[chosen]));
  };
  const update = () => {
    const met = meets("spellings", classes, selection.values);
    if (met.length && !met.includes(chosen)) chosen = met[0];
    show();
    buttons[chosen].scrollIntoView?.({ block: "nearest" });
  };
  show();
  return { update, element: element("div", {}, element("p", {}, `${counted(classes.length, "value")} of this program can be computed in more than one way. A rule made each of them; one was taken.`),
    note("spellings"), element("div", { class: "two" }, element("ul", { class: "pickable", "aria-label": "Values with several spellings" }, buttons), right)) };
}

const classTitle = one => `${className(one)}  (${one.nodes.length})`;

function className(one) {
  const isComputed = id => !/^(View|Constant)$/.test(values.ops[values.op[id]]);
  const value = one.of?.findLast(isComputed) ?? one.of?.[0];
  if (value === undefined) return cutText(one.nodes.find(node => node.chosen)?.text ?? one.nodes[0].text, 60);
  const where = place(values.file?.[value] ?? -1, values.line?.[value]);
  return `%${value} ${[values.ops[values.op[value]], modulePath(values.module?.[value] ?? -1), where].filter(Boolean).join(", ")}`;
}

function spellingTable(one) {
  const cheapest = Math.min(...one.nodes.map(node => node.cost ?? Infinity));
  const columns = [
    { title: "spelling", text: true, value: node => node.text, show: node => [element("code", {}, node.text), node.chosen ? element("strong", { class: "good" }, "  taken") : ""] },
    { title: "made by", text: true, value: node => node.rule, show: node => node.rule ? `${node.rule}${node.kind ? ` (${node.kind})` : ""}` : "as recorded" },
    { title: "a run with it", hint: "as predicted, with all else as it is", value: node => node.cost ?? Infinity, show: node => duration(node.cost) },
    { title: "to the least", value: node => node.cost ?? Infinity, show: node => (cheapest > 0 && isFinite(cheapest) && node.cost ? `${digits(node.cost / cheapest)}x` : "") },
    { title: "why not", text: true, value: node => node.why_not ?? "", show: node => node.why_not || "" },
  ];
  const ofValues = element("p", {}, "Computes ", links(one.of ?? [], "value", i => `%${i}`));
  return [ofValues, table("Spellings", columns, one.nodes, { sorted: 2, isDown: false }), element("p", { class: "faint" }, "exact: the same bits; rounding: the same up to rounding; domain: where operands are in the rule's domain.")];
}
