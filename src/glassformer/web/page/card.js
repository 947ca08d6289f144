// The card of a number: what it is, how it was made, where it goes, and a proof of its gradient.

import { button, exact, fill, make, short, tell } from "./dom.js";
import { ask } from "./server.js";
import { look, runState } from "./state.js";

const place = () => document.getElementById("card");
let asking = null;

// one: {name, index, gradient}
export async function openCard(one) {
  asking?.abort();
  asking = new AbortController();
  look("card", { open: one });
  place().hidden = false;
  if (!place().firstChild) fill(place(), make("p", { class: "quiet" }, "…"));
  try {
    const question = { state: runState(), name: one.name, index: one.index, gradient: one.gradient === true };
    const found = await ask("card", question, asking.signal);
    fill(place(), drawCard(found, one));
    place().scrollTop = 0;
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(place(), closer(), make("p", { class: "bad" }, error.message));
  }
}

export function closeCard() {
  look("card", { open: null });
  place().hidden = true;
  fill(place());
}

export function redrawCard() {
  const { open } = look("card");
  if (open) openCard(open);
}

function closer() {
  return button("×", closeCard, { class: "close", "aria-label": "Close the card" });
}

function drawCard(card, one) {
  const at = `${card.name}[${card.index.join(", ")}]`;
  return [
    closer(),
    make("h2", {}, card.kind === "gradient" ? `∂/∂ ${at}` : at),
    make("p", { class: "quiet" }, card.axes.map((axis, n) => `${axis} ${card.index[n]}`).join(", ")),
    make("p", { class: "value" }, exact(card.value)),
    formula(card), terms(card), gradientPart(card, one), links("Made from", card.inputs, one), links("Read by", card.feeds, one), source(card),
  ];
}

function formula(card) {
  if (!card.formula) return make("section", {}, make("p", { class: "quiet" }, card.note ?? "a number that was given, not computed"));
  return make("section", {}, make("h3", {}, card.op ? `By ${card.op}` : "Formula"), make("div", { class: "formula" }, card.formula),
    card.filled ? make("div", { class: "formula" }, card.filled) : null);
}

function terms(card) {
  if (!card.terms?.length) return null;
  const largest = [...card.terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 12);
  const rows = largest.map((term) => make("tr", {}, make("td", { class: "mono" }, term.label), make("td", { class: "number mono" }, short(term.value, 6))));
  const more = card.terms.length > largest.length ? `the ${largest.length} largest of ${card.terms.length} terms` : "all terms";
  return make("section", {}, make("h3", {}, "Terms"), make("p", { class: "quiet" }, more), make("table", {}, make("tbody", {}, rows)));
}

function gradientPart(card, one) {
  const part = make("section", {}, make("h3", {}, "Gradient"));
  if (card.gradient === null || card.gradient === undefined) {
    part.append(make("p", { class: "quiet" }, card.no_gradient ?? "nothing runs back to it"));
    return part;
  }
  const said = make("p", { class: "quiet" });
  part.append(make("p", { class: "mono" }, exact(card.gradient)),
    make("div", { class: "row" },
      one.gradient ? button("See the value", () => openCard({ ...one, gradient: false })) : button("How it was found", () => openCard({ ...one, gradient: true })),
      button("Prove it", () => prove(one, said))), said);
  return part;
}

async function prove(one, said) {
  try {
    const found = await ask("proof", { state: runState(), name: one.name, index: one.index });
    fill(said, "complex step ", make("code", {}, exact(found.step)), ", backward ", make("code", {}, exact(found.gradient)), ", difference ",
      make("b", { class: found.difference < 1e-9 ? "good" : "bad" }, short(found.difference)));
  } catch (error) {
    tell(error.message);
  }
}

function links(title, list, one) {
  if (!list?.length) return null;
  const shown = list.slice(0, 24).map((link) => {
    const text = link.index ? `${link.name}[${link.index.join(", ")}]` : link.name;
    if (!link.index || link.card === false) return make("li", {}, make("code", {}, text));
    return make("li", {}, button(text, () => openCard({ name: link.name, index: link.index, gradient: link.gradient ?? one.gradient }), { class: "link mono" }));
  });
  const more = list.length > shown.length ? make("p", { class: "quiet" }, `and ${list.length - shown.length} more`) : null;
  return make("section", {}, make("h3", {}, title), make("ul", {}, shown), more);
}

function source(card) {
  const parts = Object.entries(card.source ?? {}).filter(([, own]) => own);
  if (!parts.length) return null;
  return make("section", {}, make("h3", {}, "Source"), parts.map(([direction, own]) => make("details", { open: direction === (card.kind === "gradient" ? "backward" : "forward") },
    make("summary", {}, `${direction}: ${own.file}, line ${own.line}`), make("pre", { tabindex: "0" }, own.text))));
}
