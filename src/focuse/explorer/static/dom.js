// Making elements. Names come from other people's graphs, so text is only ever set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element: h("a", {href: "#/", onclick: f}, "text", child, …). */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** The same of SVG. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** A weight: three digits are as much as anyone reads. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return value.toExponential(1);
  const digits = Math.abs(value) >= 0.01 && Math.abs(value) < 1 ? { maximumFractionDigits: 3 } : { maximumSignificantDigits: 3 };
  return value.toLocaleString("en", digits).replace("-", "−");
}

/** Both ends of an interval, with as many digits behind the point: ["0.075", "0.538"]. */
export function interval(low, high) {
  const most = Math.max(Math.abs(low), Math.abs(high));
  if (most >= 1e6 || (most > 0 && most < 1e-3)) return [low, high].map((value) => value.toExponential(1).replace("-", "−"));
  const digits = most >= 0.01 && most < 1 ? 3 : Math.max(0, 2 - Math.floor(Math.log10(most || 1)));
  return [low, high].map((value) => {
    const rounded = Math.abs(value) < 0.5 / 10 ** digits ? 0 : value; // no −0.000
    return rounded.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
  });
}

export function percent(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0.99 && value < 1) return ">99 %";
  if (value > 0 && value < 0.01) return "<1 %";
  return `${Math.round(value * 100)} %`;
}

export const count = (value) => value.toLocaleString("en");

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** The address of an entity's view. */
export const entityHash = (name) => `#/entity/${encodeURIComponent(name)}`;

/** Say something to people who hear the page instead of seeing it. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

export const loading = (text = "Loading…") =>
  h("p", { class: "loading", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), text);

export const empty = (text) => h("p", { class: "empty" }, text);

/** What went wrong, what to do, nearby names as links, and a button to try again. */
export function problem(error, again) {
  const near = (error.nearest ?? []).map((name) => h("li", {}, h("a", { href: entityHash(name) }, name)));
  return h("div", { class: "problem", role: "alert" },
    h("p", {}, h("strong", {}, error.message)),
    error.hint && !near.length ? h("p", {}, error.hint) : null,
    near.length ? [h("p", {}, "Did you mean"), h("ul", { class: "chips" }, near)] : null,
    again ? h("button", { type: "button", onclick: again }, "Try again") : null);
}
