// The card of a number: what it is, how it was made, where it goes, and a proof of its gradient.

import { cardFromFile } from "./card_file.js";
import { button, exact, fill, formula, make, short, spoken, tell, visible, whole } from "./dom.js";
import { kept } from "./kept.js";
import { page } from "./page.js";
import { ask } from "./server.js";
import { look, runState } from "./state.js";

const cardPlace = () => document.getElementById("card");
const cardExtras = []; // functions (card, one) → element: what other views add to every card
let asking = null;
let opener = null; // what had the focus before a card was opened
const before = []; // cards that were open, the latest last

export function addToCards(extra) {
  cardExtras.push(extra);
}

// one: {name, index, gradient}; with `quiet`, the focus stays where it is
export async function openCard(one, { back = false, quiet = false, wait = false } = {}) {
  asking?.abort();
  asking = new AbortController();
  if (!quiet && !cardPlace().contains(document.activeElement)) opener = document.activeElement;
  const last = look("card").open;
  if (last && !back && JSON.stringify(last) !== JSON.stringify(one)) before.push(last);
  look("card", { open: one });
  cardPlace().hidden = false;
  if (!cardPlace().firstChild) fill(cardPlace(), make("p.quiet", "…"));
  try {
    const question = {
      state: runState(),
      name: one.name,
      index: one.index,
      gradient: one.gradient === true,
      ...(wait ? { wait } : {}),
    };
    const found = await ask("card", question, asking.signal).catch((error) =>
      kept ? cardFromFile(one) : Promise.reject(error),
    );
    const [top, focused] = [cardPlace().scrollTop, cardPlace().contains(document.activeElement)];
    fill(cardPlace(), drawCard(found, one));
    cardPlace().scrollTop = wait ? top : 0;
    if (!quiet || focused) cardPlace().querySelector("h2").focus({ preventScroll: true });
    // The value is there first; a large model takes seconds for the gradient.
    if (found.later === "soon") openCard(one, { back: true, quiet: true, wait: true });
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(cardPlace(), cardTools(), make("p.bad", error.message));
  }
}

// Returns whether there was one to close.
export function closeCard() {
  const wasOpen = !cardPlace().hidden;
  look("card", { open: null });
  before.length = 0;
  const focused = cardPlace().contains(document.activeElement);
  hideCard();
  if (focused && opener?.isConnected) opener.focus({ preventScroll: true });
  else if (focused) document.getElementById("view").focus({ preventScroll: true });
  return wasOpen;
}

export function redrawCard() {
  const { open } = look("card");
  if (open) openCard(open, { back: true, quiet: true });
  else hideCard();
}

function hideCard() {
  asking?.abort();
  cardPlace().hidden = true;
  fill(cardPlace());
}

function cardTools() {
  return make(
    "div.close.row",
    button("←", () => openCard(before.pop(), { back: true }), {
      "aria-label": "Back to the card before",
      title: "Back to the card before",
      disabled: !before.length,
    }),
    button("×", closeCard, { "aria-label": "Close the card", title: "Close the card (Escape)" }),
  );
}

function drawCard(card, one) {
  const same = card.also?.length
    ? make(
        "p.quiet",
        "also known as ",
        card.also.map((name, n) => [n ? ", " : "", make("code", name)]).flat(),
      )
    : null;
  return [
    cardTools(),
    make(
      "h2",
      { tabindex: "-1" },
      `${card.kind === "gradient" ? "∂ / ∂ " : ""}${card.name}`,
      make("wbr"),
      make("span.nowrap", `[${card.index.join(", ")}]`),
    ),
    make("p.quiet", `${card.kind}: ${cardPosition(card)}`),
    cardInTokens(card),
    make("p.value", exact(card.value)),
    same,
    cardFormula(card),
    cardReaders(card),
    cardTerms(card),
    cardGradient(card, one),
    kept ? null : cardExtras.map((extra) => extra(card, one)),
    cardLinks("Computed from", card.inputs, card.more_inputs),
    cardFeeds(card),
    cardSource(card),
  ].flat();
}

// Where the number stands: position 3 “o”, feature 5.
function cardPosition(card) {
  const words = cardWords(card);
  return card.axes
    .map((axis, n) => {
      const word = words[n - card.axes.length + 2];
      return `${axis} ${card.index[n]}${word === undefined ? "" : ` “${visible(word)}”`}`;
    })
    .join(", ");
}

// The tokens at the row and at the column of the number.
function cardWords(card) {
  const tensor = page.run?.values.find((one) => one.name === card.name);
  if (!tensor) return [];
  const { rowLabels, columnLabels } = page.labelsFor(tensor);
  return [rowLabels?.[card.index.at(-2)], columnLabels?.[card.index.at(-1)]];
}

function cardInTokens(card) {
  const [query, key] = cardWords(card);
  if (key === undefined || query === undefined || !/\.attend\.(weights|scores)$/.test(card.name)) return null;
  return make("p", make("b", `“${spoken(query)}” looks at “${spoken(key)}”`));
}

function cardFormula(card) {
  if (!card.math)
    return make(
      "section",
      make("p.quiet", card.note || "This number was given with the model or its input; nothing computed it."),
    );
  // Of several readers, each has its own line below.
  const lines = card.readers?.length ? [] : [card.math, card.filled_math].filter(Boolean).map(formula);
  return make(
    "section",
    make("h3", card.op ? `Computed by ${card.op}` : "Formula", cardDerivation(card, card.op)),
    lines,
    card.note ? make("p.quiet", card.note) : null,
    card.evaluated !== null && card.evaluated !== undefined
      ? make(
          "p.quiet",
          `recomputed from the numbers ${lines.length ? "above" : "below"}: `,
          make("code", exact(card.evaluated)),
        )
      : null,
  );
}

// The page that derives the gradient of an op; a file has no such pages.
function cardDerivation({ derivations }, op) {
  if (kept || !derivations?.[op]) return null;
  return [
    " ",
    make(
      "a",
      {
        href: `derivations/${derivations[op]}`,
        target: "_blank",
        rel: "noopener",
        title: `How the gradient of ${op} is derived, in a new tab`,
      },
      "derivation",
    ),
  ];
}

// Of a gradient: the part that comes from each use of the value.
function cardReaders(card) {
  if (!card.readers?.length) return null;
  return make(
    "section",
    make("h3", "Gradient from each of its uses"),
    card.readers.map((reader) =>
      make(
        "div",
        make(
          "p.row",
          make("span.grow", reader.label, cardDerivation(card, reader.op)),
          make("code", short(reader.evaluated, 6)),
        ),
        formula(reader.math),
      ),
    ),
  );
}

function cardTerms(card) {
  if (!card.terms?.length || card.readers?.length) return null;
  const largest = [...card.terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 12);
  const rows = largest.map((term) =>
    make("tr", make("td.mono", term.label), make("td.number.mono", short(term.value, 6))),
  );
  const shown = card.terms.length + card.more;
  const more = shown > rows.length ? `the ${rows.length} largest of ${whole(shown)}` : `all ${rows.length}`;
  return make("section", make("h3", "Terms"), make("p.quiet", more), make("table", make("tbody", rows)));
}

function cardGradient(card, one) {
  const part = make("section", make("h3", "Gradient"));
  if (card.gradient === null || card.gradient === undefined) {
    part.append(
      make(
        "p.quiet",
        { role: "status" },
        card.later === "soon" ? "The backward pass is running …" : card.reason || "It has no gradient.",
      ),
    );
    return part;
  }
  const said = make("p.quiet", { role: "status" });
  part.append(
    make("p.mono", exact(card.gradient)),
    make(
      "div.row",
      one.gradient
        ? button("See the value", () => openCard({ ...one, gradient: false }))
        : card.isInFile
          ? null
          : button("How it was computed", () => openCard({ ...one, gradient: true })),
      kept ? null : button("Prove it", () => cardProof(one, said)),
    ),
    said,
  );
  return part;
}

async function cardProof(one, said) {
  fill(said, "The model runs once more, in float64 …");
  try {
    const found = await ask("proof", { state: runState(), name: one.name, index: one.index });
    fill(
      said,
      "complex step ",
      make("code", exact(found.step)),
      ", backward ",
      make("code", exact(found.gradient)),
      ", difference ",
      make("b", { class: found.difference < 1e-9 ? "good" : "bad" }, short(found.difference)),
    );
  } catch (error) {
    fill(said);
    tell(error.message);
  }
}

function cardLinks(title, list, more) {
  if (!list?.length) return null;
  const shown = list.slice(0, 24).map((link) =>
    make(
      "li",
      button(`${link.gradient ? "∂ / ∂ " : ""}${link.name}[${link.index.join(", ")}]`, () => openCard(link), {
        class: "link mono",
      }),
    ),
  );
  const rest = list.length - shown.length + (more ?? 0);
  return make(
    "section",
    make("h3", title),
    make("ul", shown),
    rest > 0 ? make("p.quiet", `and ${whole(rest)} more`) : null,
  );
}

function cardFeeds(card) {
  if (!card.feeds?.length) return null;
  return make(
    "section",
    make("h3", "Used by"),
    make(
      "ul",
      card.feeds.slice(0, 12).map((name) => make("li", make("code", name))),
    ),
  );
}

function cardSource(card) {
  const parts = Object.entries(card.source ?? {}).filter(([, own]) => own);
  if (!parts.length) return null;
  return make(
    "section",
    make("h3", "Source"),
    parts.map(([direction, own]) =>
      make(
        "details",
        { open: direction === (card.kind === "gradient" ? "backward" : "forward") },
        make("summary", `${direction}: ${own.file}, line ${own.line}`),
        make(
          "pre",
          { tabindex: "0" },
          own.text.split("\n").map((line, number) => sourceLine(line, own.line + number, own.lines)),
        ),
      ),
    ),
  );
}

// The lines that computed the number stand out.
function sourceLine(line, number, lines) {
  const marked = lines && number >= lines[0] && number <= lines[1];
  return make(marked ? "mark" : "span", {}, `${line}\n`);
}
