// The slider that orders links from likely to strong. Runs without a weight model have none.

import { h } from "./dom.js";

const STEP = 0.01;
const PAUSE = 250; // milliseconds without another move, after which the run is asked again: keys move step by step
const WORDS = new Map([["likely", 0], ["strong", 1]]);

/** The preference of an address as a number from 0 to 1; null, the default of the run, if there is none. */
export function readPrefer(query, preferences) {
  const text = query.get("prefer") || "";
  const share = WORDS.get(text) ?? (text.trim() ? Number(text) : NaN);
  return preferences.length && share >= 0 && share <= 1 ? share : null;
}

const digits = (share) => share.toLocaleString("en", { maximumFractionDigits: 2 });

const spoken = (share) => (share === 0 ? "likely" : share === 1 ? "strong" : `strong: ${digits(share)}`);

/**
 * `preferences` are those of the runs that are asked. The slider shows and sets `asked.prefer`, null for the default, and
 * calls `moved` unless the view has been left. The element is null if no run has a weight model.
 */
export function preferSlider({ preferences, asked, moved, signal }) {
  if (!preferences.length) return null;
  const [home] = preferences.map((one) => one.default);
  const usual = [...new Set(preferences.map((one) => digits(one.default)))].join(" and ");
  const slider = h("input", { type: "range", min: 0, max: 1, step: STEP, "aria-label": "Order links from likely to strong" });
  slider.value = home;
  const rest = slider.value; // the default, on a step of the slider
  const shown = h("output", {});
  const reset = h("button", { type: "button", class: "reset", title: "Order links as the run does by default" }, "Reset");
  let timer = null;

  const choose = (share) => {
    asked.prefer = share;
    slider.setAttribute("aria-valuetext", share === null ? `${spoken(home)}, the default` : spoken(share));
    shown.textContent = share === null ? `${usual} (default)` : digits(share);
    reset.hidden = share === null;
  };
  const later = (pause) => {
    clearTimeout(timer);
    timer = setTimeout(() => signal.aborted || moved(), pause);
  };
  slider.addEventListener("input", () => choose(slider.value === rest ? null : Number(slider.value)));
  slider.addEventListener("change", () => later(PAUSE));
  reset.addEventListener("click", () => {
    slider.value = home;
    choose(null);
    slider.focus(); // the button is gone
    later(0);
  });
  slider.value = asked.prefer ?? home;
  choose(asked.prefer);
  return h("div", { class: "prefer", role: "group", "aria-label": "Order of links" },
    h("span", { "aria-hidden": "true" }, "likely"), slider, h("span", { "aria-hidden": "true" }, "strong"),
    h("span", { class: "value" }, shown, reset));
}

/** What orders the links of an answer: 'Ordered by probability · weight⁴'. */
export function orderNote(orderedBy) {
  if (!orderedBy) return null;
  const [base, power] = orderedBy.split("^");
  return h("p", { class: "muted small order" }, `Ordered by ${base}`, power && power !== "1" ? h("sup", {}, power) : null);
}
