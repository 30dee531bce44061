// Tables of predicted links: what an entity lacks, and answers to free questions.

import { h, number } from "./dom.js";
import { explain } from "./explain.js";
import { entityLink, probability, relationChip, table, weightRange } from "./table.js";

/** `around` is the entity whose view this is: its own name is not repeated in every row. */
export function linksTable({ caption, links, run, around = null }) {
  const names = run.relations.map((relation) => relation.name);
  const ranges = new Map(run.relations.map((relation) => [relation.name, relation]));
  const columns = [
    { title: "#", numeric: true, kind: "rank", cell: (link) => String(link.rank) },
    ...(around === null ? whole(names) : [
      { title: "Link", value: (link) => other(link, around), cell: (link) => h("div", { class: "stack" },
        relationChip(link.relation, names, link.head === around ? "→" : "←"), entityLink(other(link, around))) },
    ]),
    { title: "Probability", numeric: true, value: (link) => link.probability, cell: (link) => probability(link.probability) },
    { title: "Weight", numeric: true, value: (link) => (link.known ? link.weight : link.weight_mean),
      cell: (link) => weightRange(link, ranges.get(link.relation)) },
    ...(links.some((link) => link.known) ? [{ title: "", cell: (link) => h("span", { class: link.known ? "tag" : "tag new" }, link.known ? "known" : "new") }] : []),
    { title: "", cell: (link) => whyButton(link, run) },
  ];
  return table({ caption, columns, rows: links });
}

const whole = (names) => [
  { title: "Head", value: (link) => link.head, cell: (link) => entityLink(link.head) },
  { title: "Relation", value: (link) => link.relation, cell: (link) => relationChip(link.relation, names) },
  { title: "Tail", value: (link) => link.tail, cell: (link) => entityLink(link.tail) },
];

export const other = (link, name) => (link.head === name ? link.tail : link.head);

export function whyButton(link, run) {
  return h("button", {
    type: "button", class: "why", onclick: () => explain(link, run),
    "aria-label": `Why ${link.head}, ${link.relation}, ${link.tail}?`,
    title: `score ${number(link.score)}`,
  }, "Why?");
}
