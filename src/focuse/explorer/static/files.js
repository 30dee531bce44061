// Files that a visitor saves: tables as CSV, TSV or JSON, made in the browser from answers of the API.

import { h, say } from "./dom.js";

const TYPES = { csv: "text/csv", tsv: "text/tab-separated-values", json: "application/json" };
const FORMULA = /^"*[=+\-@\t\r\n＝＋－＠]/; // what a spreadsheet may take for the start of a formula

/** The text of a file with these rows, objects with the same keys. A name that a spreadsheet would run gets an apostrophe. */
export function fileText(rows, format) {
  if (format === "json") return `${JSON.stringify(rows, null, 1)}\n`;
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value !== "string") return String(value);
    const safe = FORMULA.test(value) ? `'${value}` : value;
    return /[",\t\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const columns = Object.keys(rows[0] ?? {});
  const lines = [columns, ...rows.map((row) => columns.map((column) => row[column]))];
  return lines.map((cells) => `${cells.map(cell).join(format === "csv" ? "," : "\t")}\r\n`).join("");
}

/** The name of a file: letters, digits and dashes, whatever the names in it contain. */
export const fileName = (words, format) => `focuse-${words.join(" ").match(/[\p{L}\p{N}_]+/gu)?.join("-").slice(0, 80) ?? "table"}.${format}`;

/** Rows of a comparison as one object each: the numbers of both runs next to each other. */
export const comparedRows = (rows) => rows.map(({ name, moved, first, second }) => {
  const prefixed = (side, link) => Object.entries(link ?? {}).map(([key, value]) => [`${side}_${key}`, value]);
  const all = Object.keys(first ?? second);
  const empty = ["first", "second"].flatMap((side) => all.map((key) => [`${side}_${key}`, null]));
  return Object.fromEntries([["name", name], ["moved", moved], ...empty, ...prefixed("first", first), ...prefixed("second", second)]);
});

/** Buttons that save a table; `rows` returns its rows or a promise of them. */
export function exporting(words, rows) {
  const save = async (format) => {
    const link = h("a", { download: fileName(words, format) });
    link.href = URL.createObjectURL(new Blob([fileText(await rows(), format)], { type: TYPES[format] }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it after the click
  };
  const note = h("span", {}, "Save as");
  const failed = (error) => {
    note.textContent = error.message;
    say(error.message);
  };
  const buttons = Object.keys(TYPES).map((format) =>
    h("button", { type: "button", "data-format": format, onclick: () => save(format).catch(failed) }, format.toUpperCase()));
  return h("div", { class: "export", role: "group", "aria-label": "Save this table" }, note, buttons);
}
