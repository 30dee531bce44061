// Tables: sortable by their headings, scrolled within themselves on narrow screens.

import { entityHash, h, interval, number, percent, s, say } from "./dom.js";
import { shade } from "./picture.js";

/**
 * `columns` [{title, cell(row), value(row), numeric, kind}]: `value` makes a column sortable. The order of rows is the
 * server's until a heading is pressed.
 */
export function table({ caption, columns, rows }) {
  let by = null;
  let down = true;
  const body = h("tbody");
  const heads = columns.map((column) => {
    const head = h("th", { scope: "col", class: kind(column) });
    if (column.value) head.append(h("button", { type: "button", class: "sort", onclick: () => sort(column) }, column.title));
    else head.append(column.title);
    return head;
  });

  function sort(column) {
    down = by === column ? !down : Boolean(column.numeric);
    by = column;
    heads.forEach((head, index) => {
      if (columns[index] === by) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    fill([...rows].sort((a, b) => (down ? -1 : 1) * order(column.value(a), column.value(b))));
    say(`Sorted by ${column.title}, ${down ? "descending" : "ascending"}`);
  }

  const fill = (shown) => body.replaceChildren(...shown.map((row) =>
    h("tr", {}, columns.map((column) => h("td", { class: kind(column) }, column.cell(row))))));
  fill(rows);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body));
}

const kind = (column) => [column.numeric ? "n" : "", column.kind ?? ""].join(" ").trim() || null;

const order = (a, b) => {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b) : a - b;
};

// ---- cells that several tables have ---------------------------------------------------------------------------------

export const entityLink = (name) => h("a", { href: entityHash(name), class: "name" }, name);

export const relationChip = (name, relations, arrow = "") =>
  h("span", { class: `relation ${shade(relations, name)}` }, arrow ? `${arrow} ${name}` : name);

/** A probability as a bar and in words. */
export function probability(value) {
  if (value === null || value === undefined) return h("span", { class: "muted" }, "–");
  return h("span", { class: "probability" },
    s("svg", { class: "bar", viewBox: "0 0 48 8", width: 48, height: 8, "aria-hidden": "true" },
      s("rect", { class: "track", width: 48, height: 8, rx: 4 }),
      s("rect", { class: "fill", width: Math.max(1.5, value * 48).toFixed(1), height: 8, rx: 4 })),
    h("span", {}, percent(value)));
}

/** An expected weight with its interval, on the range that the relation's weights have. */
export function weightRange(link, range) {
  if (link.known && link.weight !== null) return h("span", { class: "weight", title: "known triple" }, h("b", {}, number(link.weight)));
  if (link.weight_mean === null) return h("span", { class: "muted" }, "–");
  const words = h("b", {}, number(link.weight_mean));
  if (link.weight_low === null || link.weight_high === null) return h("span", { class: "weight" }, words);
  const low = Math.min(range?.lowest ?? link.weight_low, link.weight_low, link.weight_high);
  const high = Math.max(range?.highest ?? link.weight_high, link.weight_low, link.weight_high);
  const at = (value) => 4 + (60 * (value - low)) / (high - low || 1);
  const [from, to] = [Math.min(link.weight_low, link.weight_high), Math.max(link.weight_low, link.weight_high)];
  const ends = interval(from, to);
  const told = `expected ${number(link.weight_mean)}, 90 % between ${ends[0]} and ${ends[1]}`;
  return h("span", { class: "weight", title: told },
    s("svg", { class: "range", viewBox: "0 0 68 12", width: 68, height: 12, role: "img", "aria-label": told },
      s("line", { class: "track", x1: 2, x2: 66, y1: 6, y2: 6 }),
      s("line", { class: "span", x1: at(from), x2: Math.max(at(to), at(from) + 1), y1: 6, y2: 6 }),
      s("circle", { class: "point", cx: at(link.weight_mean), cy: 6, r: 3.6 })),
    words, h("small", { class: "muted" }, ends.join(" – ")));
}
