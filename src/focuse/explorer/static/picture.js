// The neighborhood as an SVG picture. Nodes are links: click, Enter, a new tab and the back button work by themselves.

import { count, entityHash, h, number, plural, s } from "./dom.js";
import { curve, place } from "./layout.js";

const NARROW = 560;
const LETTER = 6.6; // about as wide as one is
const DISC = [0, 6.5, 5]; // radius by distance
const listening = new WeakMap(); // of each frame, what ends its listeners when it is drawn again

/** How the same shade is found for a relation everywhere: its place among the run's relations. */
export const shade = (relations, name) => `shade-${Math.max(0, relations.indexOf(name)) % 10}`;

/** A picture of `found` (a neighborhood) that redraws itself when its room changes. `expand(name)` adds neighbors. */
export function picture(found, relations, expand) {
  const frame = h("div", { class: "picture" });
  let width = 0;
  const watcher = new ResizeObserver(() => {
    const now = Math.round(frame.clientWidth);
    if (now && now !== width) {
      width = now;
      frame.replaceChildren(draw(frame, found, relations, width, expand));
    }
  });
  watcher.observe(frame);
  return frame;
}

function draw(frame, found, relations, width, expand) {
  const narrow = width < NARROW;
  const far = found.nodes.filter((node) => node.distance === 2).length;
  const many = Math.max(found.nodes.length - far, far);
  const height = Math.max(narrow ? 420 : 520, Math.min(820, Math.ceil(many / 2) * 30 + 60));
  const longest = Math.max(...found.nodes.filter((node) => node.distance).map((node) => [...node.name].length));
  const room = Math.min(longest * LETTER + 26, narrow ? width * 0.32 : width * 0.27);
  const places = place(found.nodes, found.edges, relations, width, height, room);
  const box = `${-width / 2} ${-height / 2} ${width} ${height}`;
  const center = pill(found.entity, width);
  const reach = (name, from) => (name === found.entity ? edgeOfPill(center, from) : DISC[places.get(name).distance]);

  const lines = drawEdges(found.edges, places, relations, reach);
  const nodes = found.nodes.map((node) => (node.distance === 0 ? drawCenter(node, center) : drawNode(node, places.get(node.name), width, expand, far && node.distance === 1 ? (narrow ? "none" : "above") : "beside")));
  const picture = s("svg", { viewBox: box, width, height, role: "group", "aria-label": caption(found) },
    s("g", { class: "edges", "aria-hidden": "true" }, lines.map((line) => line.element)),
    s("g", { class: "relation-labels", "aria-hidden": "true" }, narrow || far ? [] : relationLabels(lines, found, places, center, relations)),
    s("g", { class: "nodes" }, nodes));
  light(frame, picture, lines);
  return picture;
}

const caption = (found) => {
  const own = found.edges.filter((edge) => edge.head === found.entity || edge.tail === found.entity).length;
  return `${found.entity} with ${count(own)} of its ${plural(found.degree, "triple")}, the strongest. Each entity is a link.`;
};

function drawEdges(edges, places, relations, reach) {
  const lanes = new Map();
  // Weak ones first, so that strong ones lie on top.
  return [...edges].reverse().filter((edge) => edge.head !== edge.tail).map((edge) => {
    const pair = [edge.head, edge.tail].sort().join("\u0000");
    const turn = lanes.get(pair) ?? 0;
    lanes.set(pair, turn + 1);
    const lane = Math.ceil(turn / 2) * (turn % 2 ? 1 : -1) * (edge.head < edge.tail ? 1 : -1);
    const thickness = 1 + 4.5 * edge.strength;
    const [from, to] = [places.get(edge.head), places.get(edge.tail)];
    const line = curve(from, to, lane, reach(edge.head, to), reach(edge.tail, from), 6 + thickness);
    const element = s("g", { class: `edge ${shade(relations, edge.relation)}`, opacity: (0.3 + 0.7 * edge.strength).toFixed(2) },
      s("title", {}, `${edge.head} — ${edge.relation} → ${edge.tail}: ${number(edge.weight)}`),
      s("path", { class: "line", d: line.path, "stroke-width": thickness.toFixed(1) }),
      s("path", { class: "arrow", d: line.arrow }));
    return { edge, element, middle: line.middle };
  });
}

/** One label for each relation of the center, at the edge nearest its sector's middle where nothing else stands. */
function relationLabels(lines, found, places, center, relations) {
  const sectors = new Map();
  for (const line of lines) {
    if (line.edge.head !== found.entity && line.edge.tail !== found.entity) continue;
    sectors.set(line.edge.relation, [...(sectors.get(line.edge.relation) ?? []), line.middle]);
  }
  const taken = [{ x: 0, y: 0, half: center.half + 4, height: center.height + 8 }];
  for (const at of places.values()) if (at.distance) taken.push({ x: at.x, y: at.y, half: 9, height: 14 });
  return [...sectors].map(([name, spots]) => {
    const text = short(name, 22);
    const half = [...text].length * 3.3;
    const turned = [...spots].sort((a, b) => Math.atan2(a.y, a.x) - Math.atan2(b.y, b.x));
    const free = [turned[Math.floor(turned.length / 2)], ...turned].find((spot) =>
      !taken.some((box) => Math.abs(box.x - spot.x) < box.half + half && Math.abs(box.y - spot.y) < box.height));
    if (!free) return null;
    taken.push({ ...free, half, height: 18 });
    return s("text", { class: shade(relations, name), x: free.x, y: free.y, "text-anchor": "middle", dy: "0.35em" }, text);
  });
}

// ---- entities -------------------------------------------------------------------------------------------------------

/** The asked entity's name in one or two lines, and half the width and height of the pill around it. */
function pill(name, width) {
  const lines = twoLines(name, width < NARROW ? 12 : 18);
  return { lines, half: Math.max(...lines.map((line) => [...line].length)) * (width < NARROW ? 3.6 : 4) + (width < NARROW ? 10 : 15), height: lines.length > 1 ? 22 : 15 };
}

/** How far from its middle the pill's edge lies in the direction of `to`. */
const edgeOfPill = ({ half, height }, to) =>
  Math.min(half / Math.max(1e-6, Math.abs(Math.cos(Math.atan2(to.y, to.x)))), height / Math.max(1e-6, Math.abs(Math.sin(Math.atan2(to.y, to.x))))) + 2;

const drawCenter = (node, { lines, half, height }) => s("g", { class: "node center", "data-name": node.name },
  s("rect", { x: -half, y: -height, width: 2 * half, height: 2 * height, rx: Math.min(height, 15) }),
  s("text", { "text-anchor": "middle" }, spans(lines, 0)), s("title", {}, `${node.name}: ${plural(node.degree, "triple")}`));

/** Lines of text around one height. */
const spans = (lines, x) =>
  lines.map((line, index) => s("tspan", { x, dy: index ? "1.15em" : lines.length > 1 ? "-0.23em" : "0.35em" }, line));

function drawNode(node, at, width, expand, label) {
  const radius = DISC[at.distance];
  const letters = Math.max(8, Math.floor((width / 2 - Math.abs(at.x) - radius - 8) / LETTER));
  const side = at.right ? { "text-anchor": "start", x: at.x + radius + 6 } : { "text-anchor": "end", x: at.x - radius - 6 };
  // Between two rings lines run on both sides of a disc: its name stands above, and on a narrow screen nowhere.
  const spot = label === "above" ? { "text-anchor": "middle", x: at.x, y: at.y - 14 } : { ...side, y: at.y };
  const text = { beside: () => spans(twoLines(node.name, letters), side.x), above: () => [short(node.name, 24)], none: () => [] }[label]();
  return s("a", {
    class: `node step-${at.distance}`, href: entityHash(node.name), "data-name": node.name,
    "aria-label": `${node.name}, ${plural(node.degree, "triple")}`,
    onclick: (event) => {
      if (!event.shiftKey) return;
      event.preventDefault();
      expand(node.name);
    },
  },
  s("circle", { class: "reach", cx: at.x, cy: at.y, r: 16 }), s("circle", { class: "disc", cx: at.x, cy: at.y, r: radius }),
  s("text", spot, text), s("title", {}, `${node.name}: ${plural(node.degree, "triple")}; Shift and click adds its neighbors`));
}

/** A long name broken after a space or a sign that parts words, in two lines at most. */
function twoLines(name, letters) {
  if ([...name].length <= letters) return [name];
  const parts = [...name.slice(0, letters + 1).matchAll(/[\s:_/.-]+/g)];
  const cut = parts.length ? parts.at(-1).index + parts.at(-1)[0].length : 0;
  return cut > 2 ? [short(name.slice(0, cut).trimEnd(), letters + 1), short(name.slice(cut), letters)] : [short(name, letters)];
}

/** Pointing at an entity brings out its own triples. */
function light(frame, picture, lines) {
  const on = (event) => {
    const name = event.target.closest?.("[data-name]")?.dataset.name;
    picture.classList.toggle("lit", Boolean(name));
    for (const { edge, element } of lines) element.classList.toggle("on", edge.head === name || edge.tail === name);
  };
  // Heard by the frame: a picture with such a listener of its own would be a stop of the Tab key.
  listening.get(frame)?.abort();
  const leave = new AbortController();
  listening.set(frame, leave);
  for (const kind of ["pointerover", "focusin"]) frame.addEventListener(kind, on, { signal: leave.signal });
  for (const kind of ["pointerleave", "focusout"]) frame.addEventListener(kind, () => picture.classList.remove("lit"), { signal: leave.signal });
}

export const short = (text, most) => {
  const letters = [...text]; // not by UTF-16 units, which would cut a sign in two
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
};
