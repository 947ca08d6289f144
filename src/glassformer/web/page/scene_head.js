// One head, large: products of queries and keys, scores with the mask, weights; the chosen weight can be
// dragged, typed or forbidden.

import { openCard } from "./card.js";
import { button, fill, make, short, spoken } from "./dom.js";
import { heat } from "./heat.js";
import { kept } from "./kept.js";
import { page } from "./page.js";
import { ask, tile } from "./server.js";
import { look, runState, state } from "./state.js";
import { oneChange, tryChanges } from "./trials.js";

const HOW_TO_CHANGE =
  "; drag a weight up or down to change it, or choose it with the arrows and type a number";

const WINDOW = 64; // tokens along one side, at most
const MAPS = {
  value: {
    products: ["q · k", "query times key"],
    scores: ["scores", ""],
    weights: ["weights", "softmax of the scores: each row sums to 1"],
  },
  gradient: {
    scores: ["gradient of scores", "each row sums to 0"],
    weights: ["gradient of weights", "how more weight would move the number above"],
  },
  change: {
    scores: ["change of scores", "after the changes, minus before"],
    weights: ["change of weights", "after the changes, minus before"],
  },
};

// one: {station (of the weights), layer, head, whats, wide (pixels there are)}; returns a place that fills
// itself.
export function headPanel(one) {
  const place = make("section.scene-head.stack", { "aria-label": `Head ${one.head}` });
  place.ready = drawHead(place, { ...one, name: one.station.name.replace(/\.attend\.weights$/, "") }).catch(
    (error) => fill(place, make("p.bad", error.message)),
  );
  return place;
}

async function drawHead(place, own) {
  const run = runState();
  const { kinds } = await ask("attention", { state: run });
  const kind = kinds.find((one) => one.layers.includes(own.name));
  const say = await ask("heads", { state: run, kind: kind.kind, layer: kind.layers.indexOf(own.name) }).catch(
    () => null,
  );
  if (run !== runState()) return; // the page has gone on meanwhile
  Object.assign(own, { kind, scale: kind.scales[kind.layers.indexOf(own.name)], windows: windowsOf(kind) });
  own.maps = own.whats.flatMap((what) =>
    Object.entries(MAPS[what]).map(([step, words]) => headMap(own, what, step, words)),
  );
  own.said = make("p.scene-cell", { "aria-live": "polite" });
  own.tools = make("div.row.scene-cell-tools");
  await Promise.all(own.maps.map((map) => map.ready));
  const { cell } = look("scene");
  const isInside =
    Array.isArray(cell) &&
    [own.windows.query, own.windows.key].every(
      ([from, to], n) => Number.isInteger(cell[n]) && cell[n] >= from && cell[n] < to,
    );
  const shares = Object.entries(say?.scores[own.head] ?? {}).map(
    ([word, score]) => `${word} ${short(score, 2)} (chance ${short(say.chance[word], 2)})`,
  );
  fill(
    place,
    make("h3", `Block ${own.layer}, head ${own.head}${say ? `: ${say.words[own.head]}` : ""}`),
    shares.length
      ? make(
          "p.quiet",
          `Share of its attention on this text that goes to each kind of place: ${shares.join(", ")}.`,
        )
      : null,
    windowChoosers(own),
    make("div.pair", own.maps),
    own.said,
    own.tools,
  );
  choose(own, isInside ? cell : null);
}

function windowsOf(kind) {
  const first = look("scene").first ?? {};
  const span = (start, size) => {
    const from = Math.max(0, Math.min(Number.isInteger(start) ? start : size - WINDOW, size - WINDOW));
    return [from, Math.min(size, from + WINDOW)];
  };
  return { query: span(first.query, kind.queries.length), key: span(first.key, kind.keys.length) };
}

function windowChoosers({ kind, windows }) {
  const one = (side, count, title) => {
    if (count <= WINDOW) return null;
    const [from, to] = windows[side];
    const go = (start) => {
      look("scene", { first: { ...look("scene").first, [side]: Math.max(0, start) } });
      page.redraw();
    };
    return make(
      "div.row",
      { role: "group", "aria-label": title },
      button("‹", () => go(from - WINDOW), { disabled: from === 0, "aria-label": `earlier ${title}` }),
      make("span.scene-at", `${title} ${from} to ${to - 1} of ${count}`),
      button("›", () => go(from + WINDOW), { disabled: to === count, "aria-label": `later ${title}` }),
    );
  };
  const both = [one("query", kind.queries.length, "queries"), one("key", kind.keys.length, "keys")].filter(
    Boolean,
  );
  return both.length ? make("div.row", both) : null;
}

function headMap(own, what, step, [title, under]) {
  const { name, head, kind, windows } = own;
  const has = (full) => page.run.values.some((value) => value.name === full);
  const full = step === "products" ? name : `${name}.attend.${step}`;
  const says =
    step === "scores" && what === "value"
      ? `q · k times ${short(own.scale)}${has(`${name}.attend.bias`) ? " plus a bias" : ""}; hatched: may ` +
        "not look"
      : under;
  const count = Math.max(windows.query[1] - windows.query[0], windows.key[1] - windows.key[0]);
  // Three beside each other.
  const room = own.wide > 1000 ? Math.min(620, own.wide / 3 - 84) : Math.min(own.wide - 70, 460);
  const whole = (side, size) =>
    windows[side][1] - windows[side][0] === size
      ? {}
      : { [side === "query" ? "rows" : "columns"]: windows[side] };
  const map = heat({
    name: full,
    what: step === "products" ? "products" : what,
    at: [0, head],
    ...whole("query", kind.queries.length),
    ...whole("key", kind.keys.length),
    axes: ["example", "head", "query", "key"],
    rowLabels: kind.queries,
    columnLabels: kind.keys,
    size: Math.max(room, count * 6),
    most: 40,
    large: true,
    title,
    says,
    least: step === "weights" && what === "value" ? 0.25 : 0,
    mask: step !== "products" && has(`${name}.attend.mask`) ? `${name}.attend.mask` : undefined,
    onpoint: (cursor) => pointAt(own, cursor && [cursor[0] + windows.query[0], cursor[1] + windows.key[0]]),
    onpick: ([, , query, key]) => {
      if (own.dragged) {
        own.dragged = false;
        return;
      }
      choose(own, [query, key]);
      openCard({
        name: `${name}.attend.${step === "products" ? "scores" : step}`,
        index: [0, head, query, key],
        gradient: what === "gradient",
      });
    },
  });
  Object.assign(map, { what, step });
  map.own.canvas.dataset.key = `${what} ${step}`;
  if (step === "weights" && what === "value" && !kept) dragging(own, map);
  return map;
}

const mapOf = (own, what, step) => own.maps.find((map) => map.what === what && map.step === step);
const weightsMap = (own) => mapOf(own, "value", "weights");
/** @param {number[]} cell */
const numberAt = (own, what, step, cell) => {
  const [query, key] = cell;
  const found = mapOf(own, what, step)?.own.found;
  return found?.cells[(query - own.windows.query[0]) * found.facts.size[1] + key - own.windows.key[0]];
};

// All maps mark the same cell; a sentence says how its weight came about.
function pointAt(own, cell) {
  if (own.held) return;
  const at = cell ?? own.cell;
  for (const map of own.maps) map.mark(at && [at[0] - own.windows.query[0], at[1] - own.windows.key[0]]);
  fill(
    own.said,
    at ? sentence(own, at) : `Point at a cell. Click it for its card${kept ? "" : HOW_TO_CHANGE}.`,
  );
}

function sentence(own, at) {
  const words = [
    make(
      "b",
      `“${spoken(own.kind.queries[at[0]])}” (${at[0]}) looks at “${spoken(own.kind.keys[at[1]])}” ` +
        `(${at[1]}): `,
    ),
  ];
  const [what] = own.whats;
  const number = (step) => short(numberAt(own, what, step, at), 4);
  if (what !== "value")
    return [...words, `${what} of the score ${number("scores")}, of the weight ${number("weights")}.`];
  if (isMasked(own, at))
    return [...words, `it may not. q · k is ${number("products")}, the weight is ${number("weights")}.`];
  return [...words, `q · k ${number("products")} → score ${number("scores")} → weight ${number("weights")}.`];
}

/** @param {number[]} cell */
function isMasked(own, cell) {
  const [query, key] = cell;
  const masked = own.maps.find((map) => map.own.masked)?.own.masked;
  return masked
    ? !masked.cells[(query - own.windows.query[0]) * masked.facts.size[1] + key - own.windows.key[0]]
    : false;
}

// The chosen cell has a field for its weight and a switch for its mask.
function choose(own, cell) {
  restore(own);
  own.cell = cell;
  if (cell) look("scene", { cell });
  pointAt(own, cell);
  const { kind, name, head } = own;
  if (!cell || kept || own.whats[0] !== "value") {
    fill(own.tools);
    return;
  }
  const [query, key] = cell;
  const isOff = isMasked(own, cell);
  const flip = oneChange("put", `${name}.attend.mask`, { head, position: query, key }, isOff ? 1 : 0);
  own.field = make("input", {
    type: "number",
    min: "0",
    max: "1",
    step: "0.05",
    value: String(Number(numberAt(own, "value", "weights", cell).toPrecision(3))),
    "data-key": "weight",
    onkeydown: (event) => {
      if (event.key === "Enter") putWeight(own);
    },
  });
  own.slider = make("input", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.01",
    value: own.field.value,
    "aria-label": "Weight, by dragging",
    oninput: () => preview(own, Number(own.slider.value)),
    onpointerup: () => putWeight(own),
  });
  own.shares = make("input", {
    type: "checkbox",
    checked: look("scene").shares !== false,
    onchange: () => look("scene", { shares: own.shares.checked }),
  });
  fill(
    own.tools,
    make("label.narrow", "Weight", own.field),
    own.slider,
    make("label.check", own.shares, "the rest of the row shares what is left"),
    button("Put it there", () => putWeight(own), { class: "main" }),
    button(
      `${isOff ? "Allow" : "Forbid"} “${spoken(kind.queries[query])}” to look at “${spoken(kind.keys[key])}”`,
      () => tryChanges([flip]),
      { "data-key": "mask" },
    ),
  );
}

// Put a weight at the chosen cell, in the place of one that was put there before; the others of its row are
// scaled so that it sums to 1.
async function putWeight(own) {
  const weight = Number(own.field.value);
  if (own.field.value === "" || !(weight >= 0 && weight <= 1)) {
    fill(own.said, make("span.bad", "A weight is a number from 0 to 1."));
    own.field.focus();
    return;
  }
  const [query, key] = own.cell;
  const name = `${own.name}.attend.weights`;
  const ofRow = (one) => one.name === name && one.where?.head === own.head && one.where?.position === query;
  const puts = state().changes.filter((one) => ofRow(one) && one.word === "put");
  const put = puts.filter((one) => one.where.key === key);
  const scaled =
    puts.length > put.length
      ? []
      : state().changes.filter((one) => ofRow(one) && one.word === "scale" && one.where.key === undefined);
  const list = [oneChange("put", name, { head: own.head, position: query, key }, weight)];
  if (own.shares.checked) {
    const row = await tile({
      state: runState(),
      what: "value",
      name,
      at: [0, own.head],
      rows: [query, query + 1],
    });
    const rest = row.cells.reduce((sum, one, n) => (n === key ? sum : sum + one), 0);
    const factor = scaled.reduce((all, one) => all * one.value, 1) * ((1 - weight) / rest);
    if (rest > 0 && Number.isFinite(factor))
      list.unshift(oneChange("scale", name, { head: own.head, position: query }, factor));
  }
  tryChanges(list, { without: [...put, ...(own.shares.checked ? scaled : [])] });
}

// What the chosen weight would be, on the map and in the field: the model runs when it is let go.
function preview(own, weight) {
  const map = weightsMap(own);
  own.before ??= map.own.found;
  const cells = Float64Array.from(own.before.cells);
  const at =
    (own.cell[0] - own.windows.query[0]) * own.before.facts.size[1] + own.cell[1] - own.windows.key[0];
  const was = cells[at];
  cells[at] = weight;
  map.own.found = { ...own.before, cells };
  map.redraw();
  own.field.value = own.slider.value = String(weight);
  fill(own.said, make("b", `weight ${short(was, 3)} → ${weight}`), ": let go to run the model with it.");
}

function restore(own) {
  if (own.before) {
    const map = weightsMap(own);
    map.own.found = own.before;
    map.redraw();
  }
  own.before = null;
}

// A weight follows the pointer up and down; fingers, which scroll the page here, have the slider.
function dragging(own, map) {
  const { canvas } = map.own;
  let from = null;
  const end = () => {
    own.held = map.own.held = false;
    from = null;
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" || event.button !== 0 || !map.own.found) return;
    const cell = [map.own.cursor[0] + own.windows.query[0], map.own.cursor[1] + own.windows.key[0]];
    if (!isMasked(own, cell))
      from = { y: event.clientY, cell, weight: numberAt(own, "value", "weights", cell) };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from || (!own.held && Math.abs(event.clientY - from.y) < 5)) return;
    if (!own.held) {
      canvas.setPointerCapture(event.pointerId);
      choose(own, from.cell);
      own.held = map.own.held = true;
    }
    preview(
      own,
      Math.max(0, Math.min(1, Math.round(100 * (from.weight + (from.y - event.clientY) / 150)) / 100)),
    );
  });
  canvas.addEventListener("pointerup", () => {
    const isMoved = own.held;
    end();
    if (isMoved) {
      own.dragged = true;
      putWeight(own);
    }
  });
  canvas.addEventListener("pointercancel", () => {
    restore(own);
    end();
  });
}
