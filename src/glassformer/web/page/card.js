// The card of a number: what it is, how it was made, where it goes, and a proof of its gradient.

import { button, exact, fill, make, short, tell, whole } from "./dom.js";
import { ask } from "./server.js";
import { look, runState } from "./state.js";

const cardPlace = () => document.getElementById("card");
const cardExtras = []; // functions (card, one) → element: what other views add to every card
let asking = null;
const before = []; // cards that were open, the latest last

export function addToCards(extra) {
  cardExtras.push(extra);
}

// one: {name, index, gradient}
export async function openCard(one, { back = false } = {}) {
  asking?.abort();
  asking = new AbortController();
  const last = look("card").open;
  if (last && !back && JSON.stringify(last) !== JSON.stringify(one)) before.push(last);
  look("card", { open: one });
  cardPlace().hidden = false;
  if (!cardPlace().firstChild) fill(cardPlace(), make("p", { class: "quiet" }, "…"));
  try {
    const question = { state: runState(), name: one.name, index: one.index, gradient: one.gradient === true };
    const found = await ask("card", question, asking.signal);
    fill(cardPlace(), drawCard(found, one));
    cardPlace().scrollTop = 0;
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(cardPlace(), cardTools(), make("p", { class: "bad" }, error.message));
  }
}

export function closeCard() {
  look("card", { open: null });
  before.length = 0;
  hideCard();
}

export function redrawCard() {
  const { open } = look("card");
  if (open) openCard(open, { back: true });
  else hideCard();
}

function hideCard() {
  asking?.abort();
  cardPlace().hidden = true;
  fill(cardPlace());
}

function cardTools() {
  return make("div", { class: "close row" },
    button("←", () => openCard(before.pop(), { back: true }), { "aria-label": "Back to the card before", disabled: !before.length }),
    button("×", closeCard, { "aria-label": "Close the card" }));
}

function drawCard(card, one) {
  const at = `${card.name}[${card.index.join(", ")}]`;
  const same = card.also?.length ? make("p", { class: "quiet" }, "also known as ", card.also.map((name, n) => [n ? ", " : "", make("code", {}, name)]).flat()) : null;
  return [
    cardTools(),
    make("h2", {}, card.kind === "gradient" ? `∂ / ∂ ${at}` : at),
    make("p", { class: "quiet" }, `${card.kind}: ${card.axes.map((axis, n) => `${axis} ${card.index[n]}`).join(", ")}`),
    make("p", { class: "value" }, exact(card.value)), same,
    cardFormula(card), cardReaders(card), cardTerms(card), cardGradient(card, one), cardExtras.map((extra) => extra(card, one)),
    cardLinks("Made from", card.inputs, card.more_inputs), cardFeeds(card), cardSource(card),
  ].flat();
}

function cardFormula(card) {
  if (!card.formula) return make("section", {}, make("p", { class: "quiet" }, card.note || "a number that was given, not computed"));
  return make("section", {}, make("h3", {}, card.op ? `By ${card.op}` : "Formula"), make("div", { class: "formula" }, card.formula),
    card.filled ? make("div", { class: "formula" }, card.filled) : null,
    card.note ? make("p", { class: "quiet" }, card.note) : null,
    card.evaluated !== null ? make("p", { class: "quiet" }, "computed again from what stands here: ", make("code", {}, exact(card.evaluated))) : null);
}

// Of a gradient: what each reader of the value sends back.
function cardReaders(card) {
  if (!card.readers?.length) return null;
  return make("section", {}, make("h3", {}, "Sent back by"), make("table", {}, make("tbody", {}, card.readers.map((reader) =>
    make("tr", {}, make("td", {}, reader.label, make("div", { class: "quiet mono" }, reader.formula)), make("td", { class: "number mono" }, short(reader.evaluated, 6)))))));
}

function cardTerms(card) {
  if (!card.terms?.length) return null;
  const largest = [...card.terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 12);
  const rows = largest.map((term) => make("tr", {}, make("td", { class: "mono" }, term.label), make("td", { class: "number mono" }, short(term.value, 6))));
  const shown = card.terms.length + card.more;
  const more = shown > rows.length ? `the ${rows.length} largest of ${whole(shown)}` : `all ${rows.length}`;
  return make("section", {}, make("h3", {}, "Terms"), make("p", { class: "quiet" }, more), make("table", {}, make("tbody", {}, rows)));
}

function cardGradient(card, one) {
  const part = make("section", {}, make("h3", {}, "Gradient"));
  if (card.gradient === null || card.gradient === undefined) {
    part.append(make("p", { class: "quiet" }, card.reason || "nothing runs back to it"));
    if (card.later) part.append(button("Find it", () => openCard({ ...one, gradient: true })));
    return part;
  }
  const said = make("p", { class: "quiet", role: "status" });
  part.append(make("p", { class: "mono" }, exact(card.gradient)),
    make("div", { class: "row" },
      one.gradient ? button("See the value", () => openCard({ ...one, gradient: false })) : button("How it was found", () => openCard({ ...one, gradient: true })),
      button("Prove it", () => cardProof(one, said))), said);
  return part;
}

async function cardProof(one, said) {
  fill(said, "The model runs once more, in float64 …");
  try {
    const found = await ask("proof", { state: runState(), name: one.name, index: one.index });
    fill(said, "complex step ", make("code", {}, exact(found.step)), ", backward ", make("code", {}, exact(found.gradient)), ", difference ",
      make("b", { class: found.difference < 1e-9 ? "good" : "bad" }, short(found.difference)));
  } catch (error) {
    fill(said);
    tell(error.message);
  }
}

function cardLinks(title, list, more) {
  if (!list?.length) return null;
  const shown = list.slice(0, 24).map((link) => make("li", {},
    button(`${link.gradient ? "∂ / ∂ " : ""}${link.name}[${link.index.join(", ")}]`, () => openCard(link), { class: "link mono" })));
  const rest = list.length - shown.length + (more ?? 0);
  return make("section", {}, make("h3", {}, title), make("ul", {}, shown), rest > 0 ? make("p", { class: "quiet" }, `and ${whole(rest)} more`) : null);
}

function cardFeeds(card) {
  if (!card.feeds?.length) return null;
  return make("section", {}, make("h3", {}, "Read by"), make("ul", {}, card.feeds.slice(0, 12).map((name) => make("li", {}, make("code", {}, name)))));
}

function cardSource(card) {
  const parts = Object.entries(card.source ?? {}).filter(([, own]) => own);
  if (!parts.length) return null;
  return make("section", {}, make("h3", {}, "Source"), parts.map(([direction, own]) =>
    make("details", { open: direction === (card.kind === "gradient" ? "backward" : "forward") },
      make("summary", {}, `${direction}: ${own.file}, line ${own.line}`),
      make("pre", { tabindex: "0" }, own.text.split("\n").map((line, number) => sourceLine(line, own.line + number, own.lines))))));
}

// The lines that computed the number stand out.
function sourceLine(line, number, lines) {
  const marked = lines && number >= lines[0] && number <= lines[1];
  return make(marked ? "mark" : "span", {}, `${line}\n`);
}
