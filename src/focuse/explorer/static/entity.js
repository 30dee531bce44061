// One entity: the picture of its neighborhood, what it lacks, and its triples.

import { get, into, successive } from "./api.js";
import { count, empty, entityHash, h, loading, number, plural, problem, say } from "./dom.js";
import { exporting } from "./files.js";
import { linksTable, other, whyButton } from "./links.js";
import { picture, shade } from "./picture.js";
import { orderNote, preferSlider, readPrefer } from "./prefer.js";
import { entityLink, relationChip, table } from "./table.js";

const FEWEST = 12;
const STEP = 12;
const MOST = 120;
const PAGE = 100;
const LARGEST_PAGE = 5000;

export function entityView(name, query, run, signal) {
  const start = window.innerWidth < 700 ? 14 : 24;
  const chosen = { relation: query.get("relation") || "", depth: query.get("steps") === "2" ? 2 : 1, limit: start, least: 0, expanded: [] };
  const preferences = [run.preference].filter(Boolean);
  chosen.prefer = readPrefer(query, preferences);
  const heading = h("p", { class: "muted", id: "counts" });
  const graph = h("div", { class: "graph" });
  const lacks = h("div", { id: "missing" });
  const triples = h("div", { id: "triples" });
  const legend = h("div", { class: "legend", role: "group", "aria-label": "Show one relation" });
  const columns = h("div", { class: "columns" });
  const view = h("div", { class: "view" });
  const about = { name, run, signal, chosen, graph, lacks, triples, legend, heading, columns, view, next: successive(signal) };
  about.tools = tools(about);
  about.told = { loading, problem: (error, again) => (error.status === 404 ? gone(about, error) : problem(error, again)) };
  const moved = () => {
    remember(about);
    showLacks(about);
  };
  showGraph(about);
  showLacks(about);
  showTriples(about);
  columns.append(
    h("section", { class: "card", "aria-label": "Neighborhood" },
      h("div", { class: "card-head" }, h("h2", {}, "Neighborhood"), about.tools), graph, legend),
    h("section", { class: "card", "aria-labelledby": "lacks-title" },
      h("div", { class: "card-head" }, h("h2", { id: "lacks-title" }, "What is missing here?"),
        preferSlider({ preferences, asked: chosen, moved, signal })), lacks));
  view.append(
    h("div", { class: "title" }, h("h1", {}, name), heading), columns,
    h("section", { class: "card", "aria-labelledby": "triples-title" },
      h("div", { class: "card-head" }, h("h2", { id: "triples-title" }, "Known triples")), triples));
  return [view];
}

/** No such entity: one message, not one in every place that asked for it. */
function gone({ name, view }, error) {
  view.replaceChildren(h("div", { class: "title" }, h("h1", {}, name)), h("section", { class: "card" }, problem(error)));
  say(error.message);
  return "";
}

/** Filters stay in the address, without a step of their own for the back button. */
function remember({ name, chosen }) {
  const query = new URLSearchParams();
  if (chosen.relation) query.set("relation", chosen.relation);
  if (chosen.depth === 2) query.set("steps", "2");
  if (chosen.prefer !== null) query.set("prefer", String(chosen.prefer));
  history.replaceState(null, "", entityHash(name) + (query.size ? `?${query}` : ""));
}

// ---- the picture ----------------------------------------------------------------------------------------------------

function tools(about) {
  const { chosen } = about;
  const steps = h("select", { "aria-label": "Steps", onchange: (event) => {
    chosen.depth = Number(event.target.value);
    remember(about);
    showGraph(about);
  } }, h("option", { value: 1 }, "1 step"), h("option", { value: 2 }, "2 steps"));
  steps.value = String(chosen.depth);
  const shown = h("output", {}, "all");
  const least = h("input", { type: "range", min: 0, max: 0.95, step: 0.05, value: 0, "aria-label": "Weakest triple shown, as a share of its relation's range" });
  least.addEventListener("input", () => {
    chosen.least = Number(least.value);
    shown.textContent = chosen.least ? `≥ ${Math.round(chosen.least * 100)} %` : "all";
    about.redraw?.();
  });
  const more = (change) => () => {
    chosen.limit = Math.min(MOST, Math.max(FEWEST, chosen.limit + change));
    showGraph(about);
  };
  return h("div", { class: "tools" }, steps, h("label", { class: "slider" }, h("span", {}, "Strength"), least, shown),
    h("span", { class: "pair" },
      h("button", { type: "button", "aria-label": "Fewer triples", onclick: more(-STEP) }, "−"),
      h("button", { type: "button", "aria-label": "More triples", onclick: more(STEP) }, "+")));
}

function showGraph(about) {
  const { name, run, signal, chosen, graph } = about;
  const ask = async () => {
    const limit = chosen.depth === 2 ? Math.round(chosen.limit * 1.5) : chosen.limit;
    const wanted = { depth: chosen.depth, relation: chosen.relation, limit };
    const all = await Promise.all([
      get("neighborhood", { entity: name, ...wanted }, signal),
      ...chosen.expanded.map((one) => get("neighborhood", { entity: one, relation: chosen.relation, limit: 8 }, signal)),
    ]);
    return merged(all);
  };
  about.columns.classList.toggle("wide", chosen.depth === 2 || chosen.expanded.length > 0); // two rings need the room
  into(graph, ask, (found) => {
    about.heading.textContent = `${plural(found.degree, "triple")} · ${plural(found.relations_out.length, "relation")} from it, ${found.relations_in.length} to it`;
    showLegend(about, found);
    const frame = h("div");
    about.redraw = () => {
      const kept = strongEnough(found, chosen.least);
      frame.replaceChildren(kept.edges.length ? picture(kept, run.relations.map((one) => one.name), (one) => {
        chosen.expanded.push(one);
        showGraph(about);
      }) : empty(found.edges.length ? "No triple is that strong; move the slider back." : "No triples here."));
    };
    about.redraw();
    say(`${name}: neighborhood of ${plural(found.nodes.length, "entity", "entities")} drawn`);
    return [frame];
  }, about.told);
}

/** The picture with the neighborhoods of expanded entities: what is new in them stands on the second ring. */
function merged([first, ...others]) {
  const nodes = new Map(first.nodes.map((node) => [node.name, node]));
  const edges = new Map(first.edges.map((edge) => [key(edge), edge]));
  for (const one of others) {
    one.nodes.forEach((node) => nodes.has(node.name) || nodes.set(node.name, { ...node, distance: 2 }));
    one.edges.forEach((edge) => edges.set(key(edge), edge));
  }
  return { ...first, nodes: [...nodes.values()], edges: [...edges.values()] };
}

const key = (edge) => JSON.stringify([edge.head, edge.relation, edge.tail]);

/** Without the triples weaker than `least`, and without entities that then hang in the air. */
function strongEnough(found, least) {
  const edges = found.edges.filter((edge) => edge.strength >= least);
  const linked = new Set([found.entity, ...edges.flatMap((edge) => [edge.head, edge.tail])]);
  return { ...found, edges, nodes: found.nodes.filter((node) => linked.has(node.name)) };
}

function showLegend(about, found) {
  const names = about.run.relations.map((one) => one.name);
  const own = names.filter((name) => found.relations_out.includes(name) || found.relations_in.includes(name));
  const choose = (name) => {
    about.chosen.relation = about.chosen.relation === name ? "" : name;
    remember(about);
    [showGraph, showLacks, showTriples].forEach((show) => show(about));
  };
  about.legend.replaceChildren(...own.map((name) => h("button", {
    type: "button", class: `chip ${shade(names, name)}`, "aria-pressed": String(about.chosen.relation === name), onclick: () => choose(name),
  }, h("i", { class: "dot", "aria-hidden": "true" }), name)),
  // Relations that only stand between its neighbors are named, too, but there is nothing of its own to choose.
  ...names.filter((name) => !own.includes(name) && found.edges.some((edge) => edge.relation === name))
    .map((name) => h("span", { class: `chip ${shade(names, name)}` }, h("i", { class: "dot", "aria-hidden": "true" }), name)));
}

// ---- the tables -----------------------------------------------------------------------------------------------------

function showLacks({ name, run, next, chosen, lacks, told }) {
  const asked = { entity: name, relation: chosen.relation, top: 20, prefer: chosen.prefer };
  const current = next();
  into(lacks, () => get("missing", asked, current), ({ links, ordered_by }) => {
    say(`${links.length} missing links found, ordered by ${ordered_by}`);
    if (!links.length) return [empty("Nothing is missing here that the run would add.")];
    return [linksTable({ caption: `What ${name} lacks`, links, run, around: name }),
      h("div", { class: "foot" }, orderNote(ordered_by), exporting(["missing", name], () => links))];
  }, { ...told, loading: () => loading("Asking the model…") });
}

function showTriples({ name, run, signal, chosen, triples, told }) {
  const asked = { entity: name, relation: chosen.relation };
  const names = run.relations.map((one) => one.name);
  const rows = [];
  const more = () => get("triples", { ...asked, offset: rows.length, limit: PAGE }, signal);
  const all = async () => {
    const saved = [];
    for (let total = 1; saved.length < total;) {
      const page = await get("triples", { ...asked, offset: saved.length, limit: LARGEST_PAGE }, signal);
      if (!page.triples.length) break;
      saved.push(...page.triples);
      total = page.total;
    }
    return saved;
  };
  const columns = [
    { title: "Relation", value: (triple) => triple.relation, cell: (triple) => relationChip(triple.relation, names, triple.head === name ? "→" : "←") },
    { title: "Entity", value: (triple) => other(triple, name), cell: (triple) => entityLink(other(triple, name)) },
    { title: run.weighted ? "Weight" : "Weight (none given)", numeric: true, value: (triple) => triple.weight, cell: (triple) => number(triple.weight) },
    { title: "Part", value: (triple) => triple.split, cell: (triple) => h("span", { class: "muted" }, triple.split) },
    { title: "", cell: (triple) => whyButton({ ...triple, known: true, probability: null, weight_mean: triple.weight, weight_low: null, weight_high: null, score: null }, run) },
  ];
  const show = (found) => {
    rows.push(...found.triples);
    if (!rows.length) return [empty("No triples here.")];
    const next = rows.length < found.total ? h("button", { type: "button", onclick: async () => triples.replaceChildren(...show(await more())) },
      `Show more (${count(rows.length)} of ${count(found.total)})`) : null;
    return [table({ caption: `Triples of ${name}`, columns, rows }), h("div", { class: "foot" }, next, exporting(["triples", name], all))]
      .filter(Boolean);
  };
  into(triples, more, show, told);
}
