// Attention: all layers and heads as small maps, and the chosen one large.

import { attentionHead } from "./attention_head.js";
import { paintSmallMap } from "./attention_paint.js";
import { ARROWS, button, fill, make } from "./dom.js";
import { ask, tile } from "./server.js";
import { look, runState } from "./state.js";

export const attentionView = { id: "attention", title: "Attention", draw: drawAttention };

const GRID_CELLS = 64; // cells along one side of a small map, at most
const WHATS = { value: "weights", gradient: "gradients", change: "change" };

function drawAttention(place, page) {
  fill(place, make("h2", {}, "Attention"), make("p", { class: "quiet" }, "…"));
  ask("attention", { state: runState() }).then((found) => fill(place, attentionPage(found.kinds, page)))
    .catch((error) => fill(place, make("p", { class: "bad" }, error.message)));
}

function attentionPage(kinds, page) {
  if (!kinds.length) return [make("h2", {}, "Attention"), make("p", {}, "This model has no attention.")];
  const set = look("attention");
  const kind = kinds.find((one) => one.kind === set.kind) ?? kinds.at(-1);
  const within = (number, size) => Math.max(0, Math.min(size - 1, number ?? 0));
  const own = {
    kind, page, says: new Map(), what: set.what in WHATS && (set.what !== "change" || page.hasChanges) ? set.what : "value",
    layer: within(set.layer, kind.layers.length), head: within(set.head, kind.heads),
  };
  const large = make("section", { class: "attention-one", "aria-label": "The chosen head" });
  own.redraw = () => {
    large.dataset.head = `${kind.layers[own.layer]} ${own.head} ${own.what}`;
    return headsOf(own, own.layer).catch(() => null).then((say) => attentionHead(large, { ...own, say }));
  };
  own.redraw();
  return [
    make("h2", {}, "Attention"),
    make("div", { class: "row" }, kinds.length > 1 ? pressed("Who looks at whom", kinds.map((one) => [one.kind, one.title]), kind.kind, (id) => { look("attention", { kind: id, layer: 0, head: 0, first: {} }); page.redraw(); }) : null,
      pressed("What is shown", Object.entries(WHATS).filter(([id]) => id !== "change" || page.hasChanges), own.what, (id) => { look("attention", { what: id }); page.redraw(); })),
    make("div", { class: "attention-page" }, attentionGrid(own), large),
  ];
}

function pressed(title, choices, chosen, act) {
  return make("div", { class: "row", role: "group", "aria-label": title }, choices.map(([id, text]) => button(text, () => act(id), { "aria-pressed": String(id === chosen) })));
}

// What kind of head each one of a layer is.
function headsOf(own, layer) {
  if (!own.says.has(layer)) own.says.set(layer, ask("heads", { state: runState(), kind: own.kind.kind, layer }));
  return own.says.get(layer);
}

// --- the small maps -------------------------------------------------------------------------------------------------

function attentionGrid(own) {
  const few = own.kind.layers.length * own.kind.heads <= 24;
  const grid = make("div", { class: few ? "attention-grid few" : own.kind.heads > 8 ? "attention-grid many" : "attention-grid", role: "group", "aria-label": "All layers and heads" });
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); entry.target.load(); }
  }, { rootMargin: "200px" });
  const choose = (layer, head) => {
    Object.assign(own, { layer, head });
    look("attention", { kind: own.kind.kind, layer, head });
    for (const one of grid.querySelectorAll("button")) {
      const chosen = one.dataset.at === `${layer} ${head}`;
      one.setAttribute("aria-pressed", String(chosen));
      one.tabIndex = chosen ? 0 : -1;
    }
    own.redraw();
  };
  own.kind.layers.forEach((name, layer) => {
    const maps = Array.from({ length: own.kind.heads }, (_, head) => smallMap(own, layer, head, choose));
    const row = make("div", { class: "attention-layer" }, make("span", { class: "quiet" }, `layer ${layer}`), maps);
    row.load = () => loadLayer(own, layer, name, maps);
    seen.observe(row);
    grid.append(row);
  });
  grid.addEventListener("keydown", (event) => gridKeys(event, own, grid));
  return make("div", { class: "attention-all" }, make("h3", {}, `${own.kind.layers.length} × ${own.kind.heads} heads`), grid);
}

function smallMap(own, layer, head, choose) {
  const chosen = layer === own.layer && head === own.head;
  return make("button", { type: "button", class: "attention-small", "data-at": `${layer} ${head}`, "aria-pressed": String(chosen), tabindex: chosen ? "0" : "-1",
    "aria-label": `layer ${layer}, head ${head}`, onclick: () => choose(layer, head) }, make("canvas", { "aria-hidden": "true" }), make("span", { class: "kind" }, `${head}`));
}

function loadLayer(own, layer, name, maps) {
  maps.forEach((map, head) => {
    tile({ state: runState(), what: own.what, name: `${name}.attend.weights`, at: [0, head], height: GRID_CELLS, width: GRID_CELLS }).then((found) => {
      const plain = own.what === "value";
      const top = plain ? 1 : Math.max(Math.abs(found.facts.here.least ?? 0), Math.abs(found.facts.here.most ?? 0));
      paintSmallMap(map.querySelector("canvas"), found, top, !plain);
    }).catch((error) => { map.title = error.message; });
  });
  headsOf(own, layer).then((say) => maps.forEach((map, head) => {
    map.querySelector(".kind").textContent = say.words[head];
    map.setAttribute("aria-label", `layer ${layer}, head ${head}: ${say.words[head]}`);
    map.title = `layer ${layer}, head ${head}: ${say.words[head]}`;
  })).catch(() => {});
}

function gridKeys(event, own, grid) {
  if (!(event.key in ARROWS) || !event.target.dataset.at) return;
  event.preventDefault();
  const [layer, head] = event.target.dataset.at.split(" ").map(Number);
  const [down, right] = ARROWS[event.key];
  grid.querySelector(`[data-at="${layer + down} ${head + right}"]`)?.focus();
}
