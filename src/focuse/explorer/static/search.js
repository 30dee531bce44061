// A text field that offers entities: an ARIA combobox. The server does the matching; the page never has all names.

import { get } from "./api.js";
import { count, h, say } from "./dom.js";

const PAUSE = 120; // milliseconds of silence before a keystroke becomes a request
const LONGEST = 200; // letters of a search that the server takes
let made = 0;

/** `choose(name)` is called with a chosen entity; `value` is what stands in the field at first. */
export function entityField({ label, placeholder = "", value = "", choose = () => {}, id = `field-${++made}`, clear = false }) {
  const list = h("ul", { id: `${id}-list`, role: "listbox", "aria-label": label, class: "suggestions", hidden: true });
  const input = h("input", {
    id, type: "text", role: "combobox", placeholder, "aria-label": label, "aria-expanded": "false",
    "aria-controls": list.id, "aria-autocomplete": "list", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    maxlength: 1000,
  });
  input.value = value;
  let whole = { shown: input.value, name: value }; // a field has no line ends, a name may
  let names = [];
  let at = -1;
  let asked = ""; // what the names shown are for
  let timer = 0;
  let request = null;

  function close() {
    clearTimeout(timer);
    request?.abort();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    at = -1;
  }

  function mark(place) {
    at = place;
    [...list.children].forEach((item, index) => item.setAttribute("aria-selected", String(index === at)));
    if (at < 0) input.removeAttribute("aria-activedescendant");
    else {
      input.setAttribute("aria-activedescendant", list.children[at].id);
      list.children[at].scrollIntoView({ block: "nearest" });
    }
  }

  function take(name) {
    input.value = clear ? "" : name;
    whole = { shown: input.value, name };
    close();
    choose(name);
  }

  function show(found, query) {
    names = found.map((one) => one.name);
    asked = query;
    list.replaceChildren(...found.map((one, index) => h("li", {
      id: `${id}-option-${index}`, role: "option", "aria-selected": "false",
      // On pointerdown the field would lose the focus before the click arrives.
      onpointerdown: (event) => event.preventDefault(),
      onclick: () => take(one.name),
    }, h("span", {}, one.name), h("small", {}, count(one.degree)))));
    if (!names.length) list.replaceChildren(h("li", { class: "none", "aria-disabled": "true" }, `Nothing like “${query}”`));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(-1);
    say(names.length ? `${names.length} suggestions` : "No suggestions");
  }

  async function look(enter = false) {
    const query = input.value.slice(0, LONGEST);
    if (!query.trim()) return close();
    request?.abort();
    request = new AbortController();
    try {
      const found = await get("entities", { q: query, limit: 8 }, request.signal);
      if (enter && found.entities.length) return take(found.entities[0].name);
      show(found.entities, query);
    } catch (error) {
      if (error.name !== "AbortError") close();
    }
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE);
  });
  input.addEventListener("keydown", (event) => {
    const open = !list.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) look();
      else if (names.length) mark((at + (event.key === "ArrowDown" ? 1 : at < 0 ? 0 : -1) + names.length) % names.length);
    } else if (event.key === "Enter" && input.value.trim()) {
      event.preventDefault();
      clearTimeout(timer);
      // Names for what stood there before the last letters are not what is meant, unless one was chosen.
      if (open && names.length && (at >= 0 || asked === input.value)) take(names[Math.max(at, 0)]);
      else look(true); // faster than the suggestions: the best match
    } else if (event.key === "Escape") {
      if (open) event.stopPropagation();
      close();
    }
  });
  input.addEventListener("blur", close);
  // Spaces belong to a name; a field of spaces alone is empty.
  const name = () => (input.value === whole.shown ? whole.name : input.value.trim() && input.value);
  return { element: h("div", { class: "combobox" }, input, list), input, name };
}
