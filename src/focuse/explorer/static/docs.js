// The API's description, made readable without anything from elsewhere: addresses, what they take, what they give.

import { h } from "./dom.js";
import { table } from "./table.js";

const main = document.getElementById("main");

/** What a schema stands for, in a few words: 'string or null', 'list of Link', 'one of csv, tsv, json'. */
function kind(schema) {
  if (!schema || !Object.keys(schema).length) return "anything";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return `one of ${schema.enum.join(", ")}`;
  if (schema.const !== undefined) return String(schema.const);
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  return schema.type ?? "anything";
}

/** The bounds that a value must keep. */
function bounds(schema) {
  const all = [schema, ...(schema.anyOf ?? [])];
  const of = (key) => all.map((one) => one[key]).find((value) => value !== undefined);
  const words = [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["exclusiveMaximum", "<"], ["maxLength", "letters ≤"],
    ["minLength", "letters ≥"], ["maxItems", "rows ≤"], ["minItems", "rows ≥"], ["default", "default"]];
  return words.filter(([key]) => of(key) !== undefined && of(key) !== null).map(([key, word]) => `${word} ${of(key)}`).join(", ");
}

/** Text in which `names` stand between backticks: those as code. */
const prose = (text) => text.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));

const fields = (rows) => table({ caption: "Parameters", rows, columns: [
  { title: "Name", cell: (row) => h("code", {}, row.name) },
  { title: "Kind", cell: (row) => kind(row.schema) },
  { title: "Bounds", cell: (row) => bounds(row.schema) },
  { title: "Needed", cell: (row) => (row.required ? "yes" : "") },
  { title: "Meaning", cell: (row) => prose(row.description ?? row.schema.description ?? "") },
] });

function operation(path, method, told) {
  const body = told.requestBody?.content?.["application/json"]?.schema;
  const answer = told.responses["200"]?.content?.["application/json"]?.schema;
  return h("section", { class: "card" },
    h("h2", {}, h("span", { class: `method ${method}` }, method.toUpperCase()), h("code", {}, path)),
    h("p", {}, h("strong", {}, told.summary ?? "")),
    told.description ? h("p", { class: "muted" }, prose(told.description)) : null,
    told.parameters?.length ? fields(told.parameters) : null,
    body ? h("p", {}, "Takes ", link(kind(body))) : null,
    h("p", {}, "Gives ", answer ? link(kind(answer)) : "a file"));
}

const link = (name) => h("a", { href: `#${name}` }, name);

function model(name, schema) {
  const needed = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([key, one]) => ({ name: key, schema: one, required: needed.has(key) }));
  return h("section", { class: "card", id: name }, h("h2", {}, name), schema.description ? h("p", { class: "muted" }, prose(schema.description)) : null,
    rows.length ? fields(rows) : null);
}

async function start() {
  const told = await (await fetch("/openapi.json")).json();
  const operations = Object.entries(told.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => operation(path, method, one)));
  const models = Object.entries(told.components.schemas).filter(([name]) => !/ValidationError/.test(name)).map(([name, one]) => model(name, one));
  main.replaceChildren(
    h("div", { class: "title" }, h("h1", {}, "API"), h("p", { class: "muted" }, prose(told.info.description), " Errors are ", link("Problem"),
      " with a status of 4xx or 5xx. The whole description for programs: ", h("a", { href: "/openapi.json" }, "/openapi.json"))),
    ...operations, h("h1", {}, "What is taken and given"), ...models);
}

start().catch((error) => main.replaceChildren(h("p", { class: "problem" }, String(error.message))));
