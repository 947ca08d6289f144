// One head, large: the products of queries and keys, the scores with the mask, the weights, and lines between the tokens.

import { attentionLines } from "./attention_lines.js";
import { largeMap } from "./attention_paint.js";
import { button, fill, make, short, visible } from "./dom.js";
import { openCard } from "./card.js";
import { tile } from "./server.js";
import { live } from "./kept.js";
import { look, runState } from "./state.js";
import { areMade, oneChange, toggleChanges, tryChanges } from "./trials.js";

const HEAD_WINDOW = 32; // tokens along one side, at most

// own: {kind (an answer's kind), layer, head, what, say (of the heads of this layer), page}
export async function attentionHead(place, own) {
  const name = own.kind.layers[own.layer];
  const windows = headWindows(own);
  const known = new Set(own.page.run.values.map((value) => value.name));
  const part = (what, full) => (what !== "products" && !known.has(full) ? null : tile({
    state: runState(), what, name: full, at: [0, own.head], rows: windows.query, columns: windows.key, height: HEAD_WINDOW, width: HEAD_WINDOW,
  }));
  const plain = own.what === "value";
  try {
    const [products, scores, weights, mask] = await Promise.all([
      plain ? part("products", name) : null, part(own.what, `${name}.attend.scores`), part(own.what, `${name}.attend.weights`), part("value", `${name}.attend.mask`)]);
    if (place.dataset.head !== `${name} ${own.head} ${own.what}`) return; // another one was chosen meanwhile
    fill(place, headTop(own, name), windowChoosers(own, windows), headBody(own, name, windows, { products, scores, weights, mask }));
  } catch (error) {
    fill(place, make("p", { class: "bad" }, error.message));
  }
}

function headWindows(own) {
  const first = look("attention").first ?? {};
  const span = (start, size) => {
    const from = Math.max(0, Math.min(start ?? 0, size - HEAD_WINDOW));
    return [from, Math.min(size, from + HEAD_WINDOW)];
  };
  return { query: span(first.query, own.kind.queries.length), key: span(first.key, own.kind.keys.length) };
}

function windowChoosers(own, windows) {
  const one = (side, words, title) => {
    if (words.length <= HEAD_WINDOW) return null;
    const go = (from) => { look("attention", { first: { ...look("attention").first, [side]: from } }); own.redraw(); };
    const [from, to] = windows[side];
    const input = make("input", { type: "number", min: "0", max: String(words.length - 1), value: String(from), onchange: () => go(Number(input.value) || 0) });
    return make("div", { class: "row" }, make("label", {}, `${title} ${from} to ${to - 1} of ${words.length}, from`, input),
      button("◀", () => go(from - HEAD_WINDOW), { disabled: from === 0, "aria-label": `earlier ${title}` }),
      button("▶", () => go(from + HEAD_WINDOW), { disabled: to === words.length, "aria-label": `later ${title}` }));
  };
  return make("div", { class: "row" }, one("query", own.kind.queries, "queries"), one("key", own.kind.keys, "keys"));
}

function headTop(own, name) {
  const word = own.say?.words[own.head];
  const shares = Object.entries(own.say?.scores[own.head] ?? {}).map(([kind, score]) => `${kind} ${short(score, 2)} (chance ${short(own.say.chance[kind], 2)})`);
  const off = [oneChange("zero", `${name}.output.x`, { head: own.head })];
  const isOff = areMade(off);
  return make("div", { class: "stack tight" },
    make("div", { class: "row" }, make("h3", {}, `Layer ${own.layer}, head ${own.head}${word ? `: ${word}` : ""}`),
      button(isOff ? "Switch it on again" : "Switch this head off", () => toggleChanges(off), { "aria-pressed": String(isOff), ...live })),
    shares.length ? make("p", { class: "quiet" }, `Attention on this text that goes to each kind of place: ${shares.join(", ")}.`) : null);
}

const HEAD_STEPS = {
  value: { products: ["q · k", "query times key"], scores: ["scores", ""], weights: ["weights", "softmax of the scores: each row sums to 1"] },
  gradient: { scores: ["gradient of scores", "each row sums to 0"], weights: ["gradient of weights", "how more weight would move the number above"] },
  change: { scores: ["change of scores", "after the changes, minus before"], weights: ["change of weights", "after the changes, minus before"] },
};

function headBody(own, name, windows, found) {
  const rows = own.kind.queries.slice(...windows.query);
  const columns = own.kind.keys.slice(...windows.key);
  const said = make("p", { class: "attention-said", "aria-live": "polite" });
  const tools = make("div", { class: "row" });
  const full = (at) => ({ query: at.query + windows.query[0], key: at.key + windows.key[0] });
  const parts = [];
  const point = (at) => {
    parts.forEach((one) => one.point(at));
    fill(said, at?.query === undefined || at?.key === undefined ? headHint(own) : headSentence(own, at, { rows, columns, found }));
  };
  const pick = (at) => {
    const { query, key } = full(at);
    fill(tools, maskSwitch(own, name, { query, key, allowed: found.mask?.cells[at.query * columns.length + at.key] !== 0 }));
  };
  const cell = cellSize(rows.length, columns.length);
  for (const [step, [title, under]] of Object.entries(HEAD_STEPS[own.what])) {
    if (!found[step]) continue;
    const open = (at) => { pick(at); const { query, key } = full(at); openCard({ name: `${name}.attend.${step === "products" ? "scores" : step}`, index: [0, own.head, query, key], gradient: own.what === "gradient" }); };
    const scaled = step === "scores" && own.what === "value" ? `q · k times ${short(own.kind.scales[own.layer])}${found.scores && hasBias(own, name) ? " plus a bias" : ""}; hatched: may not look` : under;
    parts.push(largeMap({
      title, under: scaled, found: found[step], allowed: step === "products" ? null : found.mask, rows, columns, cell, onpoint: point, onpick: open,
      top: step === "weights" && own.what === "value" ? 1 : largestOf(found[step], step === "products" ? null : found.mask), signed: !(step === "weights" && own.what === "value"),
    }));
  }
  const maps = make("div", { class: "attention-steps" }, [...parts]);
  const lines = own.what === "value" && found.weights ? attentionLines({ weights: found.weights, rows, columns, onpoint: point, first: { query: windows.query[0], key: windows.key[0] } }) : null;
  if (lines) parts.push(lines);
  point(null);
  return make("div", { class: "stack tight" }, maps, said, tools,
    lines ? make("div", {}, make("h4", {}, "Lines: left looks, right is looked at"), make("div", { class: "scroll" }, lines)) : null);
}

function hasBias(own, name) {
  return own.page.run.values.some((value) => value.name === `${name}.attend.bias`);
}

function headHint(own) {
  return own.what === "value" ? "Point at a cell or at a token; click a cell for its card." : "Point at a cell; click it for its card.";
}

function headSentence(own, at, { rows, columns, found }) {
  const number = (step) => found[step]?.cells[at.query * columns.length + at.key];
  const words = [make("b", {}, `“${visible(rows[at.query])}” looks at “${visible(columns[at.key])}”: `)];
  if (own.what !== "value") return [...words, `score ${short(number("scores"), 4)}, weight ${short(number("weights"), 4)} (${own.what})`];
  if (number("mask") === 0) return [...words, `it may not. q · k ${short(number("products"), 4)} is masked, the weight is ${short(number("weights"))}.`];
  return [...words, `q · k ${short(number("products"), 4)} → score ${short(number("scores"), 4)} → weight ${short(number("weights"), 4)}`];
}

function maskSwitch(own, name, { query, key, allowed }) {
  const flip = oneChange("put", `${name}.attend.mask`, { head: own.head, position: query, key }, allowed ? 0 : 1);
  const title = `${allowed ? "Forbid" : "Allow"} “${visible(own.kind.queries[query])}” (${query}) to look at “${visible(own.kind.keys[key])}” (${key})`;
  return button(title, () => tryChanges([flip]), live);
}

function largestOf(found, mask) {
  let top = 0;
  found.cells.forEach((value, n) => { if (!(mask && !mask.cells[n]) && Math.abs(value) > top) top = Math.abs(value); });
  return top;
}

function cellSize(rows, columns) {
  const wide = document.documentElement.clientWidth;
  const room = wide <= 900 ? Math.min(wide - 120, 330) : Math.max(220, Math.min(330, (wide - 560) / 3 - 30)); // three beside each other
  return Math.max(8, Math.min(36, Math.floor(room / Math.max(rows, columns))));
}
