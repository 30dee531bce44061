// The start of the page: which view the address asks for, the search box, and whether the model is ready.

import { get } from "./api.js";
import { askView, compareView } from "./ask.js";
import { entityHash, loading, problem, say } from "./dom.js";
import { entityView } from "./entity.js";
import { runView } from "./run.js";
import { entityField } from "./search.js";

const main = document.getElementById("main");
let run = null;
let leave = new AbortController();
let first = true;

/** '#/entity/NAME?relation=R' to its parts; a name may hold any sign, so it is encoded. */
function route() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const [, view = "", rest = ""] = path.split("/");
  let name = rest;
  try {
    name = decodeURIComponent(rest);
  } catch { /* half an escape, typed by hand: it is looked for as it stands */ }
  return { view, name, query: new URLSearchParams(query) };
}

function show() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  leave.abort(); // answers to the last view's questions are of no use any more
  leave = new AbortController();
  const panel = document.getElementById("panel");
  if (panel.open) panel.close();
  const { view, name, query } = route();
  const views = new Map([
    ["entity", { title: name, make: () => entityView(name, query, run, leave.signal) }],
    ["ask", { title: "Ask", make: () => askView(query, run, leave.signal) }],
    ["compare", { title: "Compare", make: () => compareView(query, run, leave.signal) }],
  ]);
  const known = view === "entity" && !name ? undefined : views.get(view); // no name, no entity: the start
  const { title, make } = known ?? { title: run.name, make: () => runView(run) };
  main.replaceChildren(...make());
  document.title = `${title} – focuse explorer`;
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === (known ? view : "run")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!first) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  first = false;
}

/** While the run fits its weights, say so; once it is ready, show what it then knows. */
async function watch() {
  const notice = document.getElementById("notice");
  const health = await get("health").catch(() => null);
  if (health?.status === "warming") {
    notice.textContent = "Fitting the weight estimator (once per run). Known triples are shown; predictions follow.";
    notice.hidden = false;
    setTimeout(watch, 1500);
    return;
  }
  if (health?.status === "failed") {
    notice.textContent = `The run could not fit its weights: ${health.problem}`;
    notice.hidden = false;
    return;
  }
  if (!notice.hidden) say("The run is ready");
  notice.hidden = true;
  if (run.metrics.source === "pending") {
    run = await get("run");
    if (route().view === "") show();
  }
}

function keys() {
  const search = entityField({ id: "find", label: "Search entities", placeholder: "Search entities  ( / )", clear: true, choose: (name) => { location.hash = entityHash(name); } });
  document.getElementById("search").append(search.element);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !document.getElementById("panel").open) {
      event.preventDefault();
      search.input.focus();
    }
  });
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address after # says which view this is
    main.focus();
  });
}

async function start() {
  main.replaceChildren(loading());
  try {
    run = await get("run");
  } catch (error) {
    main.replaceChildren(problem(error, start));
    return;
  }
  document.getElementById("to-compare").hidden = !run.compare;
  window.addEventListener("hashchange", show);
  show();
  watch();
}

keys();
start();
