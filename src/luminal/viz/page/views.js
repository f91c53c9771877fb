"use strict";
// Views and their tabs; each is built when it is opened for the first time.

const views = searches ? {
  searches: { title: "Searches", build: searchesView },
  search: { title: "Search", build: searchView },
} : {
  overview: { title: "Overview", build: () => ({ element: overview() }) },
  graph: { title: "Graph", build: graph, isWhole: true },
  spellings: { title: "Spellings", build: spellings },
  timeline: { title: "Timeline", build: timeline },
  memory: { title: "Memory", build: memory },
  kernels: { title: "Kernels", build: kernelsView },
  search: { title: "Search", build: searchView },
};
const viewNames = Object.keys(views);
let shown = viewNames[0];

function open(name) {
  shown = name;
  const view = views[name];
  if (!view.section) {
    view.section = element("section", { class: `view${view.isWhole ? " whole" : ""}`, role: "tabpanel", id: `view-${name}`, "aria-labelledby": `tab-${name}` });
    by("view").append(view.section);
    const built = view.build();
    view.update = built.update;
    view.section.append(...(view.isWhole ? built.element.childNodes : [built.element]));
  }
  for (const one of viewNames) {
    const isShown = one === name;
    if (views[one].section) views[one].section.hidden = !isShown;
    by(`tab-${one}`).setAttribute("aria-selected", String(isShown));
    by(`tab-${one}`).tabIndex = isShown ? 0 : -1;
  }
  by(`tab-${name}`).scrollIntoView?.({ block: "nearest", inline: "nearest" });
  by("view").scrollTop = 0;
  tell(null, "");
  view.update?.();
  remember();
}

function makeTabs() {
  by("tabs").append(...viewNames.map((name, k) => button(views[name].title, () => open(name), { role: "tab", id: `tab-${name}`, "aria-controls": `view-${name}`, title: `${views[name].title} (${k + 1})` })));
  by("tabs").addEventListener("keydown", event => {
    const now = viewNames.indexOf(shown), last = viewNames.length - 1;
    const next = { ArrowRight: now === last ? 0 : now + 1, ArrowLeft: now ? now - 1 : last, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    open(viewNames[next]);
    by(`tab-${shown}`).focus();
  });
}
