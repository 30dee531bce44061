"""How a report looks: on screens wide and narrow, by day and by night, and on paper; and what its few scripts do."""

STYLE = """
:root { --ink: #1d2430; --soft: #5a6473; --line: #d9dee5; --faint: #eef1f5; --paper: #fff; --link: #1f5fa8;
  --c1: #c8601d; --c2: #2f6fae; --c3: #2f8558; --c4: #7c5aa6; --c5: #b3416b; --c6: #8a6d1b; --c7: #1b8a94;
  --c8: #6b4c3b; --rest: #9aa3af; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #a4adba; --line: #3a424e; --faint: #232a34;
  --paper: #161b22; --link: #7db4f0; --c1: #f0935a; --c2: #6fb0ea; --c3: #62c08f; --c4: #b394e0; --c5: #ea83aa;
  --c6: #d8b750; --c7: #59c7d1; --c8: #c9a48e; --rest: #6b7480; } }
* { box-sizing: border-box; }
html { color-scheme: light dark; scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body { font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; color: var(--ink); background: var(--paper); }
header { border-bottom: 2px solid var(--ink); padding-bottom: 1.5rem; margin-bottom: 1.5rem; }
.over { font-size: .85rem; letter-spacing: .06em; text-transform: uppercase; color: var(--soft); margin: 0; }
h1 { font-size: 2rem; line-height: 1.2; margin: .2rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 3rem 0 .8rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.8rem 0 .5rem; }
p, ul, ol { max-width: 46rem; margin: .6rem 0; overflow-wrap: anywhere; } ul, ol { padding-left: 1.3rem; }
li { margin: .25rem 0; }
.lead { font-size: 1.08rem; max-width: 50rem; } .note { color: var(--soft); font-size: .9rem; }
a { color: var(--link); } a:focus-visible, [tabindex]:focus-visible, button:focus-visible, summary:focus-visible {
  outline: 2px solid var(--link); outline-offset: 2px; }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.9rem, 1fr)); gap: .75rem; margin: 1.4rem 0; }
dl.tiles div { background: var(--faint); border-radius: .4rem; padding: .7rem .9rem; }
dl.tiles dt { font-size: .8rem; color: var(--soft); line-height: 1.3; }
dl.tiles dd { margin: .1rem 0 0; font-size: 1.5rem; font-weight: 600; font-variant-numeric: tabular-nums; }
dl.tiles dd small { display: block; font-size: .78rem; font-weight: 400; color: var(--soft); line-height: 1.3; }
nav ol { columns: 3 13rem; list-style: none; padding: 0; margin: .3rem 0 0; max-width: none; font-size: .95rem; }
nav li { margin: 0; padding: .12rem 0; break-inside: avoid; } nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
.scroll { overflow-x: auto; margin: .9rem 0 1.2rem; }
table { border-collapse: collapse; font-size: .92rem; line-height: 1.35; }
caption { text-align: left; font-weight: 600; padding: 0 0 .45rem; caption-side: top; }
th, td { padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: baseline;
  unicode-bidi: plaintext; }
thead th { border-bottom: 1.5px solid var(--ink); vertical-align: bottom; font-weight: 600; }
th { text-align: left; font-weight: 500; max-width: 24rem; overflow-wrap: anywhere; min-width: 5rem; }
tbody th { min-width: 7.5rem; }
td { max-width: 20rem; overflow-wrap: anywhere; min-width: 6.5rem; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; padding-left: .65rem;
  padding-right: 0; min-width: 0; }
thead th { overflow-wrap: normal; } thead th.n { white-space: normal; }
.again { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
th button { all: unset; cursor: pointer; font: inherit; } th button:focus-visible { outline: 2px solid var(--link); }
th button::after { content: "\\2195"; color: var(--rest); padding-left: .15em; font-weight: 400; font-size: .85em; }
th[aria-sort=ascending] button::after { content: "\\2191"; color: var(--ink); }
th[aria-sort=descending] button::after { content: "\\2193"; color: var(--ink); }
figure { margin: 1.2rem 0; } figcaption { font-size: .9rem; color: var(--soft); max-width: 46rem; margin-top: .5rem; }
.panels { display: flex; flex-wrap: wrap; gap: 1rem 1.5rem; align-items: flex-start; }
svg { max-width: 100%; height: auto; display: block; overflow: visible; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  fill: var(--ink); unicode-bidi: plaintext; }
svg .tick { fill: var(--soft); font-size: 11px; } svg .title { font-weight: 600; font-size: 13px; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .promise { stroke: var(--rest); stroke-width: 1.2; stroke-dasharray: 4 4; fill: none; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
svg .quartile { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 2 2; }
svg .halo { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
.s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); } .s3 { stroke: var(--c3); } .s0 { stroke: var(--rest); }
.f1 { fill: var(--c1); } .f2 { fill: var(--c2); } .f3 { fill: var(--c3); } .f4 { fill: var(--c4); }
.f5 { fill: var(--c5); } .f6 { fill: var(--c6); } .f7 { fill: var(--c7); } .f8 { fill: var(--c8); }
.f0 { fill: var(--rest); }
svg .violin { fill-opacity: .55; stroke-width: 1; } svg .dot { fill-opacity: .75; }
.map { overflow-x: auto; } .map svg { min-width: 44rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; list-style: none; padding: 0; font-size: .88rem;
  max-width: none; margin: .5rem 0; }
.legend svg { display: inline-block; vertical-align: -1px; margin-right: .35rem; }
.code { position: relative; margin: .7rem 0 1.2rem; }
pre { background: var(--faint); border-radius: .4rem; padding: .8rem 4.6rem .8rem 1rem; overflow-x: auto; margin: 0;
  font: .85rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.code button { position: absolute; top: .4rem; right: .4rem; font: .78rem system-ui, sans-serif; padding: .15rem .55rem;
  border: 1px solid var(--line); border-radius: .3rem; background: var(--paper); color: var(--ink); cursor: pointer; }
pre.many { columns: 3 15rem; column-gap: 2rem; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--link); }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
@media (max-width: 34rem) {
  body { padding: 1.4rem .9rem 3rem; } h1 { font-size: 1.55rem; }
  dl.tiles { grid-template-columns: 1fr 1fr; } dl.tiles dd { font-size: 1.25rem; } nav ol { columns: 1; }
  th { max-width: 12rem; } }
@page { margin: 16mm 14mm; }
@media print {
  :root { --ink: #000; --soft: #444; --line: #bbb; --faint: #f3f3f3; --paper: #fff; --link: #000; --c1: #c8601d;
    --c2: #2f6fae; --c3: #2f8558; --c4: #7c5aa6; --c5: #b3416b; --c6: #8a6d1b; --c7: #1b8a94; --c8: #6b4c3b;
    --rest: #8a939f; }
  html { color-scheme: light; font-size: 9.6pt; } body { max-width: none; padding: 0; }
  dl.tiles { grid-template-columns: repeat(3, 1fr); } .screen { display: none; } .map svg { min-width: 0; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  h2 { margin-top: 1.8rem; } table { font-size: 8.4pt; }
  h2, h3, caption { break-after: avoid; } thead { display: table-header-group; } caption { break-inside: avoid; }
  tr, figure, svg, dl.tiles div, li { break-inside: avoid; } p { orphans: 3; widows: 3; }
  .scroll { overflow: visible; } th, td { padding: .15rem .45rem .15rem 0; } td.n, th.n { padding-left: .45rem; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 7.6pt; }
  .code button, th button::after { display: none; } a { text-decoration: none; }
}
"""

# Tables sort by click, and texts to copy have a button: nothing else, and the page is whole without it.
SCRIPT = """
"use strict";
const number = text => { const value = parseFloat(text.replace(/,/g, "").replace("\\u2212", "-"));
  return Number.isNaN(value) ? null : value; };
const compare = (a, b, numeric, turn) => {
  if (!numeric) return turn * a.localeCompare(b);
  const [x, y] = [number(a), number(b)];
  if (x === null || y === null) return (x === null) - (y === null);
  return turn * (x - y); };
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    if (!head.textContent) return;
    const button = document.createElement("button");
    button.type = "button"; button.textContent = head.textContent; head.replaceChildren(button);
    button.addEventListener("click", () => {
      const numeric = head.classList.contains("n");
      const before = head.getAttribute("aria-sort");
      const falling = before ? before === "ascending" : numeric;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      const text = row => row.cells[place].textContent;
      rows.sort((a, b) => compare(text(a), text(b), numeric, falling ? -1 : 1));
      table.tBodies[0].append(...rows);
    });
  });
}
for (const box of document.querySelectorAll(".code")) {
  const button = document.createElement("button");
  button.type = "button"; button.textContent = "copy";
  button.addEventListener("click", () => {
    const text = box.querySelector("pre");
    const range = document.createRange(); range.selectNodeContents(text);
    const chosen = getSelection(); chosen.removeAllRanges(); chosen.addRange(range);
    button.textContent = document.execCommand("copy") ? "copied" : "press Ctrl-C";
  });
  box.append(button);
}
"""
