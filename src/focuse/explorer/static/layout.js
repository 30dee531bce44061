// Where the entities of a neighborhood stand. No chance and no time in it: the same triples make the same picture.
//
// The asked entity stands in the middle, its neighbors on an ellipse, in sectors by relation, strongest first. They are
// spread evenly in height on each side, not by angle: so labels, which run outwards, never lie on one another.

/** Places on an ellipse for `n` things, clockwise from the top: [{x, y, right}]. */
export function ring(n, rx, ry) {
  const right = Math.ceil(n / 2);
  return Array.from({ length: n }, (_, index) => {
    const side = index < right;
    const [place, many] = side ? [index, right] : [n - 1 - index, n - right];
    const y = many === 1 ? 0 : -ry + (2 * ry * (place + 0.5)) / many;
    const x = rx * Math.sqrt(Math.max(0, 1 - 0.72 * (y / ry) ** 2));
    return { x: side ? x : -x, y, right: side };
  });
}

/**
 * `nodes` [{name, distance}] and `edges` [{head, relation, tail, strength}] to a Map from name to {x, y, right, distance}.
 * `relations` gives the sectors' order. `room` is what labels may take beside the ring.
 */
export function place(nodes, edges, relations, width, height, room) {
  const center = nodes.find((node) => node.distance === 0).name;
  const order = new Map(relations.map((name, index) => [name, index]));
  const two = nodes.some((node) => node.distance === 2);
  const rx = Math.max(70, width / 2 - room);
  const ry = height / 2 - 26;
  const places = new Map([[center, { x: 0, y: 0, right: true, distance: 0 }]]);

  const near = nodes.filter((node) => node.distance === 1);
  const best = strongest(near, edges, (one, other) => other === center);
  near.sort((a, b) => sector(best.get(a.name), order) - sector(best.get(b.name), order)
    || strength(best.get(b.name)) - strength(best.get(a.name)) || compare(a.name, b.name));
  const inner = two ? ring(near.length, rx * 0.4, ry * 0.78) : ring(near.length, rx, ry);
  near.forEach((node, index) => places.set(node.name, { ...inner[index], distance: 1 }));

  // The second ring follows the first: each stands where its strongest link's other end points to.
  const far = nodes.filter((node) => node.distance === 2);
  const parent = strongest(far, edges, (one, other) => places.get(other)?.distance === 1);
  const turn = new Map(near.map((node, index) => [node.name, index]));
  const parentOf = (node) => other(parent.get(node.name), node.name);
  far.sort((a, b) => (turn.get(parentOf(a)) ?? 0) - (turn.get(parentOf(b)) ?? 0) || compare(a.name, b.name));
  const outer = sides(far.map((node) => places.get(parentOf(node))?.right ?? true), rx, ry);
  far.forEach((node, index) => places.set(node.name, { ...outer[index], distance: 2 }));
  return places;
}

/** Places on the outer ring when each thing's side is given: parents and children share a side. */
function sides(rights, rx, ry) {
  const many = { true: rights.filter(Boolean).length, false: rights.filter((right) => !right).length };
  const seen = { true: 0, false: 0 };
  return rights.map((right) => {
    // Clockwise: down on the right, up on the left.
    const place = right ? seen[right]++ : many[right] - 1 - seen[right]++;
    const y = many[right] === 1 ? 0 : -ry + (2 * ry * (place + 0.5)) / many[right];
    const x = rx * Math.sqrt(Math.max(0, 1 - 0.5 * (y / ry) ** 2));
    return { x: right ? x : -x, y, right };
  });
}

/** For each node its strongest edge to an end that `fits`. */
function strongest(nodes, edges, fits) {
  const wanted = new Set(nodes.map((node) => node.name));
  const found = new Map();
  for (const edge of edges) {
    for (const [one, end] of [[edge.head, edge.tail], [edge.tail, edge.head]]) {
      if (wanted.has(one) && fits(one, end) && edge.strength > strength(found.get(one))) found.set(one, edge);
    }
  }
  return found;
}

const strength = (edge) => (edge ? edge.strength : -1);
const sector = (edge, order) => (edge ? order.get(edge.relation) ?? order.size : order.size);
const other = (edge, name) => (edge ? (edge.head === name ? edge.tail : edge.head) : null);
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/**
 * The curve of an edge from (a) to (b), drawn apart from others between the same two by `lane` (0, 1, -1, 2, …), with
 * room for the discs at its ends: {path, arrow, middle}.
 */
export function curve(a, b, lane, startRadius, endRadius, size) {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length = Math.hypot(dx, dy) || 1;
  const bend = lane * 22;
  const middle = { x: (a.x + b.x) / 2 - (dy / length) * bend, y: (a.y + b.y) / 2 + (dx / length) * bend };
  const start = towards(a, middle, startRadius);
  const tip = towards(b, middle, endRadius + 1);
  const base = towards(b, middle, endRadius + 1 + size);
  const [nx, ny] = [(tip.y - base.y) / size, (base.x - tip.x) / size];
  const half = size * 0.55;
  return {
    path: `M${at(start)}Q${at(middle)} ${at(base)}`,
    arrow: `M${at(tip)}L${at({ x: base.x + nx * half, y: base.y + ny * half })}L${at({ x: base.x - nx * half, y: base.y - ny * half })}Z`,
    middle: { x: (start.x + 2 * middle.x + tip.x) / 4, y: (start.y + 2 * middle.y + tip.y) / 4 },
  };
}

function towards(from, to, distance) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return { x: from.x + ((to.x - from.x) / length) * distance, y: from.y + ((to.y - from.y) / length) * distance };
}

const at = (point) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
