// The panel that says why a link is predicted: the model's numbers, a summary, and the triples and rules behind it.

import { into, post } from "./api.js";
import { h, loading, number, problem, s } from "./dom.js";
import { entityLink, probability, relationChip, table, weightRange } from "./table.js";

// Lists of an explanation in the order of interest; others that it may have follow under their own names.
const SECTIONS = {
  supporting: "Supporting triples", opposing: "Opposing triples", rules: "Rules that imply it",
  similar: "Similar triples", same_head: "Same head", same_tail: "Same tail",
};
let leave = null;

/** Open the panel for one link {head, relation, tail}. Escape, the button or a click beside it close it. */
export function explain(link, run) {
  const panel = document.getElementById("panel");
  leave?.abort();
  leave = new AbortController();
  const { head, relation, tail } = link;
  const names = run.relations.map((one) => one.name);
  const why = h("div", { class: "explanation" });
  panel.replaceChildren(
    h("header", {},
      h("h2", { id: "panel-title" }, link.known ? "Why this triple?" : "Why this link?"),
      h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => panel.close() }, "×")),
    h("p", { class: "triple" }, entityLink(head), " ", relationChip(relation, names), " ", entityLink(tail)),
    why);
  panel.onclick = (event) => {
    if (event.target === panel || event.target.closest("a")) panel.close();
  };
  panel.onclose = () => leave.abort();
  if (!panel.open) panel.showModal();
  const asked = link.score === null || link.score === undefined ? numbers(link) : Promise.resolve(link);
  const ask = async () => [await asked, await post("explain", { head, relation, tail }, leave.signal)];
  into(why, ask, ([known, found]) => [summary(known, run), ...reasons(found, names)], { loading: () => loading("Looking for reasons…"), problem });
}

/** A triple of the graph has no probability yet: the run tells it. */
async function numbers({ head, relation, tail }) {
  const { links } = await post("predict", { head, relation, tail, top: 1 }, leave.signal);
  return links[0];
}

function summary(link, run) {
  const range = run.relations.find((one) => one.name === link.relation);
  return h("dl", { class: "figures" },
    h("div", {}, h("dt", {}, "Probability"), h("dd", {}, probability(link.probability))),
    h("div", {}, h("dt", {}, link.known ? "Weight" : "Expected weight"), h("dd", {}, weightRange(link, range))),
    h("div", {}, h("dt", {}, "Score"), h("dd", {}, number(link.score))));
}

function reasons({ text, explanation }, names) {
  const parts = [h("p", { class: "words" }, explanation.summary ?? text)];
  const lists = Object.keys(SECTIONS).concat(Object.keys(explanation).filter((key) => !(key in SECTIONS)));
  lists.filter((key) => isRows(explanation[key])).forEach((key, place) => {
    const title = SECTIONS[key] ?? words(key);
    parts.push(h("details", { open: place < 2 }, h("summary", {}, `${title} (${explanation[key].length})`), rowsTable(title, explanation[key], names)));
  });
  parts.push(...(explanation.notes ?? []).map((note) => h("p", { class: "muted small" }, String(note))));
  return parts;
}

const isRows = (value) => Array.isArray(value) && value.length > 0 && typeof value[0] === "object" && value[0] !== null;

/** Rows of any shape: three names are a triple with links, numbers that change a score are bars, the rest is text. */
function rowsTable(caption, rows, names) {
  const triples = rows.every((row) => typeof row.head === "string" && typeof row.tail === "string");
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((key) => rows.some((row) => row[key] !== null && row[key] !== false));
  const plain = keys.filter((key) => !(triples && ["head", "relation", "tail"].includes(key)));
  const most = Math.max(...rows.map((row) => Math.abs(row.change ?? 0)), 1e-9);
  const columns = plain.map((key) => ({
    title: words(key), numeric: rows.every((row) => row[key] === null || typeof row[key] === "number"),
    value: (row) => (typeof row[key] === "object" ? plainText(row[key]) : row[key]),
    cell: (row) => (key === "change" ? changeBar(row.change, most) : plainText(row[key])),
  }));
  const triple = { title: "Triple", value: (row) => row.head, cell: (row) => h("span", {}, entityLink(row.head), " ", relationChip(row.relation, names), " ", entityLink(row.tail)) };
  return table({ caption, columns: triples ? [triple, ...columns] : columns, rows });
}

/** How the score would change without a triple, to the left or right of nothing. */
function changeBar(change, most) {
  const length = (Math.abs(change) / most) * 24;
  return h("span", { class: "probability" },
    s("svg", { class: "change", viewBox: "0 0 50 8", width: 50, height: 8, "aria-hidden": "true" },
      s("rect", { class: change < 0 ? "loss" : "gain", x: change < 0 ? 25 - length : 25, width: Math.max(length, 1), height: 8, rx: 2 }),
      s("line", { x1: 25, x2: 25, y1: 0, y2: 8 })),
    h("span", {}, number(change)));
}

const TITLES = { change: "Score without it", implied: "Implied weight" };
const words = (key) => TITLES[key] ?? (key.charAt(0).toUpperCase() + key.slice(1)).replaceAll("_", " ");

function plainText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(plainText).join(" · ");
  if (typeof value === "object") return Object.values(value).filter((one) => one !== null && typeof one !== "boolean").map(plainText).join(" ");
  return String(value);
}
