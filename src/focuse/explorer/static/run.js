// The start: what was trained, on what, how well it ranks, and entities to begin with.

import { figures } from "./ask.js";
import { count, entityHash, h, number, s } from "./dom.js";
import { shade } from "./picture.js";
import { table } from "./table.js";

export function runView(run) {
  const names = run.relations.map((one) => one.name);
  const most = Math.max(1, ...run.relations.map((one) => one.triples));
  const bar = (one) => s("svg", { class: `count ${shade(names, one.name)}`, viewBox: "0 0 90 8", width: 90, height: 8, "aria-hidden": "true" },
    s("rect", { class: "track", width: 90, height: 8, rx: 4 }), s("rect", { class: "fill", width: Math.max(2, (90 * one.triples) / most), height: 8, rx: 4 }));
  const columns = [
    { title: "Relation", value: (one) => one.name, cell: (one) => h("span", { class: `relation ${shade(names, one.name)}` }, one.name) },
    { title: "Triples", numeric: true, value: (one) => one.triples, cell: (one) => h("span", { class: "probability" }, bar(one), count(one.triples)) },
    { title: "Weights", numeric: true, value: (one) => one.highest, cell: (one) => `${number(one.lowest)} – ${number(one.highest)}` },
  ];
  const numbers = [["Entities", count(run.entities)], ["Triples", count(run.triples)], ["Relations", count(run.relations.length)],
    ["Model", run.model], ["Dimension", count(run.dim)], ["Epochs", count(run.epochs)]];
  const settings = Object.entries(run.settings).filter(([, value]) => value !== null && value !== "");
  return [
    h("div", { class: "title" }, h("h1", {}, run.name), h("p", { class: "muted" }, "Search an entity above (press / to get there), or begin with one of these.")),
    h("ul", { class: "chips", "aria-label": "Entities with the most triples" }, run.hubs.map((one) => h("li", {}, h("a", { href: entityHash(one.name) }, one.name, h("small", {}, count(one.degree)))))),
    h("div", { class: "columns" },
      h("section", { class: "card", "aria-labelledby": "relations-title" }, h("h2", { id: "relations-title" }, "Relations"), table({ caption: "Relations", columns, rows: run.relations })),
      h("section", { class: "card", "aria-labelledby": "run-title" }, h("h2", { id: "run-title" }, "Run"),
        h("dl", { class: "figures" }, numbers.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
        h("h3", {}, "How well it ranks"), figures(run.metrics),
        h("details", {}, h("summary", {}, "All settings"), table({ caption: "Settings", rows: settings, columns: [
          { title: "Setting", value: ([key]) => key, cell: ([key]) => key }, { title: "Value", cell: ([, value]) => String(value) }] })))),
  ];
}
