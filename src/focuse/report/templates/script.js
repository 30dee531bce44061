"use strict";
const number = text => { const value = parseFloat(text.replace(/,/g, "").replace("\u2212", "-"));
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
