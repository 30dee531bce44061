// A free question: two of head, relation and tail are given, the third is ranked. One form for asking and comparing.

import { into, post, successive } from "./api.js";
import { count, empty, h, loading, number, percent, problem, say } from "./dom.js";
import { comparedRows, exporting } from "./files.js";
import { linksTable } from "./links.js";
import { orderNote, preferSlider, readPrefer } from "./prefer.js";
import { entityField } from "./search.js";
import { entityLink, probability, relationChip, table, weightRange } from "./table.js";

const read = (query, preferences) => ({
  head: query.get("head") ?? "", relation: query.get("relation") ?? "", tail: query.get("tail") ?? "",
  top: Math.min(200, Math.max(1, Number(query.get("top")) || 10)), new_only: query.get("new_only") === "true",
  prefer: readPrefer(query, preferences),
});

const parts = (asked) => [asked.head, asked.relation, asked.tail].filter(Boolean);

const given = (asked) => parts(asked).length;

/** The question without the parts that are left out. */
const question = (asked) => Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== "" && value !== null));

/** The address of a question. */
function addressOf(view, { new_only, ...others }) {
  const query = new URLSearchParams(Object.entries(question(others)));
  if (new_only) query.set("new_only", "true");
  return `#/${view}?${query}`;
}

/** Ask again whenever the slider moves; the order stays in the address, without a step of its own for the back button. */
const reorder = (view, asked, show) => () => {
  history.replaceState(null, "", addressOf(view, asked));
  show?.();
};

export function askView(query, run, signal) {
  const preferences = [run.preference].filter(Boolean);
  const asked = read(query, preferences);
  const place = h("div", { id: "answers" });
  const next = successive(signal);
  const show = () => {
    const current = next();
    into(place, () => post("predict", question(asked), current), ({ links, ordered_by }) => {
      say(`${links.length} answers, ordered by ${ordered_by}`);
      if (!links.length) return [empty("No completion is left.")];
      return [linksTable({ caption: "Answers", links, run }),
        h("div", { class: "foot" }, orderNote(ordered_by), exporting(["predict", ...parts(asked)], () => links))];
    }, { loading: () => loading("Asking the model…"), problem });
  };
  const isWhole = given(asked) >= 2;
  if (isWhole) show();
  else place.append(empty("Give two of the three parts; the third is ranked."));
  const slider = preferSlider({ preferences, asked, moved: reorder("ask", asked, isWhole ? show : null), signal });
  return [
    h("div", { class: "title" }, h("h1", {}, "Ask a question"),
      h("p", { class: "muted" }, "Leave one part empty. The run ranks what belongs there.")),
    h("section", { class: "card" }, form("ask", asked, run, slider)),
    h("section", { class: "card", "aria-label": "Answers" }, place),
  ];
}

export function compareView(query, run, signal) {
  const preferences = [run.preference, run.compare_preference].filter(Boolean);
  const asked = read(query, preferences);
  const place = h("div", { id: "comparison" });
  const next = successive(signal);
  const show = () => {
    const current = next();
    into(place, () => post("compare", question(asked), current), (found) => {
      say(`${found.shared} of ${found.rows.length} answers are in both`);
      return comparison(found, asked, run);
    }, { loading: () => loading("Asking both models…"), problem });
  };
  const isWhole = run.compare && given(asked) === 2;
  if (isWhole) show();
  else if (run.compare) place.append(empty("Give two of the three parts; both runs rank the third."));
  else place.append(empty("There is no second run. Start with: focuse serve RUN --compare OTHER_RUN"));
  const slider = preferSlider({ preferences, asked, moved: reorder("compare", asked, isWhole ? show : null), signal });
  return [
    h("div", { class: "title" }, h("h1", {}, "Compare two runs"),
      h("p", { class: "muted" }, run.compare ? `The same question to ${run.name} and ${run.compare}.` : "")),
    h("section", { class: "card" }, form("compare", asked, run, slider)),
    h("section", { class: "card", "aria-label": "Comparison" }, place),
  ];
}

function form(view, asked, run, slider) {
  const head = entityField({ label: "Head", placeholder: "any head", value: asked.head });
  const tail = entityField({ label: "Tail", placeholder: "any tail", value: asked.tail });
  const relation = h("select", { "aria-label": "Relation" }, h("option", { value: "" }, "any relation"),
    run.relations.map((one) => h("option", { value: one.name }, one.name)));
  relation.value = asked.relation;
  const top = h("input", { type: "number", min: 1, max: 200, value: asked.top, "aria-label": "How many" });
  const fresh = h("input", { type: "checkbox" });
  fresh.checked = asked.new_only;
  const submit = (event) => {
    event.preventDefault();
    const parts = { head: head.name(), relation: relation.value, tail: tail.name(), top: top.value };
    location.hash = addressOf(view, { ...parts, prefer: asked.prefer, new_only: fresh.checked });
  };
  return h("form", { class: "ask", onsubmit: submit },
    h("label", { class: "part" }, "Head", head.element), h("label", { class: "part" }, "Relation", relation),
    h("label", { class: "part" }, "Tail", tail.element), h("label", { class: "few" }, "Top", top),
    h("label", { class: "check" }, fresh, "new only"),
    h("button", { type: "submit", class: "primary" }, view === "ask" ? "Ask" : "Compare"), slider);
}

// ---- side by side ---------------------------------------------------------------------------------------------------

function comparison(found, asked, run) {
  const sides = [found.first, found.second];
  const names = run.relations.map((one) => one.name);
  const ranges = new Map(run.relations.map((one) => [one.name, one]));
  const label = found.missing === "relation" ? (row) => relationChip(row.name, names) : (row) => entityLink(row.name);
  const of = (place, title) => [
    { title: `${title}: rank`, numeric: true, value: (row) => (row[place] ? -row[place].rank : null), cell: (row) => (row[place] ? `#${row[place].rank}` : "–") },
    { title: "Probability", numeric: true, value: (row) => row[place]?.probability, cell: (row) => (row[place] ? probability(row[place].probability) : "") },
    { title: "Weight", numeric: true, value: (row) => row[place]?.weight_mean, cell: (row) => (row[place] ? weightRange(row[place], ranges.get(row[place].relation)) : "") },
  ];
  const columns = [
    { title: "Answer", value: (row) => row.name, cell: (row) => h("span", {}, label(row), knownTag(row)) },
    ...of("first", found.first.run), ...of("second", found.second.run),
    { title: "Difference", value: (row) => row.moved, cell: (row) => moved(row, found) },
  ];
  return [
    h("div", { class: "sides" }, sides.map(sideCard)),
    h("p", {}, `${count(found.shared)} of ${count(found.rows.length)} answers stand in both lists.`),
    table({ caption: "Both runs' answers", columns, rows: found.rows }),
    exporting(["compare", ...parts(asked)], () => comparedRows(found.rows)),
  ];
}

const knownTag = (row) => ((row.first ?? row.second).known ? h("span", { class: "tag" }, "known") : null);

function moved(row, found) {
  if (row.moved === null) return h("span", { class: "tag only" }, `only ${row.first ? found.first.run : found.second.run}`);
  if (row.moved === 0) return h("span", { class: "muted" }, "same place");
  const up = row.moved > 0;
  return h("span", { class: up ? "up" : "down" }, `${up ? "▲" : "▼"} ${Math.abs(row.moved)}`);
}

function sideCard(side) {
  return h("div", { class: "side" }, h("h2", {}, side.run), h("p", { class: "muted" }, side.model),
    // Nearby names are told, not linked: they are this run's, and views of entities are the first one's.
    side.problem ? problem({ message: side.problem.error, hint: side.problem.hint }) : null,
    orderNote(side.ordered_by), figures(side.metrics));
}

/** Figures of a run as a list; `source` says what they were measured on. */
export function figures(metrics) {
  if (metrics.source === "pending") return h("p", { class: "muted" }, "Figures are being measured…");
  if (metrics.source === "none") return h("p", { class: "muted" }, "No figures: the run has no test split.");
  const figure = (name, value) => (name.startsWith("Hits") ? percent(value) : number(value));
  const source = h("p", { class: "muted small" }, `measured on ${metrics.source}`);
  const orders = Object.keys(metrics.compared);
  if (orders.length) {
    const columns = [{ title: "Order", cell: ([name]) => name },
      ...orders.map((order) => ({ title: order, numeric: true, cell: ([name]) => figure(name, metrics.compared[order][name]) }))];
    return [table({ caption: "How well each order ranks", columns, rows: Object.entries(metrics.figures) }), source];
  }
  const shown = Object.entries(metrics.figures).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, figure(name, value))));
  return [h("dl", { class: "figures" }, shown), source];
}
