// The scene: the whole computation as one picture. Every token is a lane; its vector goes from left to right through the
// embedding, the blocks (one of them open) and the final norm to the answers.

import { openCard } from "./card.js";
import { button, fill, make } from "./dom.js";
import { heat } from "./heat.js";
import { kept, live } from "./kept.js";
import { page } from "./page.js";
import { sceneStory } from "./scene_answers.js";
import { setScene, StackPicture } from "./scene_stack.js";
import { ask } from "./server.js";
import { change, look, runState } from "./state.js";
import { everyTensor } from "./tensors.js";

export const sceneView = { id: "scene", title: "Scene", draw };

const SHOWN = { values: ["value"], gradients: ["gradient"], both: ["value", "gradient"], change: ["change"] };
let drawn = null; // the scene on the page: it stays until the next one is painted

function draw(place) {
  const box = make("section", { class: "scene", "aria-label": "The scene" });
  const before = drawn?.isConnected && drawn.dataset.model === page.opened.replace(/@\d+$/, "") ? [...drawn.childNodes] : null;
  box.dataset.model = page.opened.replace(/@\d+$/, "");
  if (before) box.append(...before);
  drawn = box;
  place.append(welcome(), box, everyTensor(page));
  ask("scene", { state: runState() }).then((found) => drawFound(box, found, Boolean(before)))
    .catch((error) => fill(box, make("p", { class: "bad" }, error.message)));
}

async function drawFound(box, found, wait) {
  const settings = look("scene");
  const shown = settings.shown in SHOWN && (settings.shown !== "change" || page.hasChanges) ? settings.shown : "values";
  const whats = SHOWN[shown];
  const wide = Math.max(320, box.clientWidth || innerWidth - 40);
  const parts = found.parts.map((part, n) => new StackPicture(part, { page, found, whats, wide, isLast: n === found.parts.length - 1 }));
  for (const one of parts) one.draw();
  const what = whats.at(-1) === "change" ? "value" : whats.at(-1);
  const widened = ask("lengths", { state: runState(), what }).then((lengths) => { for (const one of parts) one.widen(lengths, what); });
  if (wait) await Promise.all([widened, ...parts.flatMap((one) => one.loads)]);
  if (drawn !== box) return;
  const detail = make("div", { class: "scene-detail" });
  fill(box, make("p", { class: "scene-story" }, sceneStory(page)), tools(shown), parts.map((one) => one.element), detail);
  drawDetail(detail, found, whats);
  await widened;
}

let resized = null; // the picture is laid out for a width
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => { if (drawn?.isConnected) page.redraw(); }, 200);
});

// What this page is; on the first visit with a way in for everyone.
function welcome() {
  if (isKnown()) return "";
  const way = (title, act, settings) => button(title, () => { known(); act(); }, settings);
  const box = make("div", { class: "box row welcome" },
    make("p", { class: "quiet" }, "This is one run of the model on the text above, from the tokens on the left to its answer on the right. Every strip of color is a vector that it computed."),
    way("I am new to this", () => change({ view: "tours" }, { undoable: false }), { class: "main" }),
    page.run.loss === null && !page.run.next ? null : way("Show me the gradients", () => setScene({ shown: "gradients" })),
    way("I want to change something", () => change({ view: "change" }, { undoable: false }), live),
    button("Close", () => { known(); box.remove(); }));
  return box;
}

function isKnown() {
  try { return kept !== null || localStorage.getItem("glassformer") === "known"; } catch { return true; } // a page inside a notebook keeps nothing
}

function known() {
  localStorage.setItem("glassformer", "known");
}

function tools(shown) {
  const choose = (title, id, says) => button(title, () => setScene({ shown: id }), { "aria-pressed": String(id === shown), title: says });
  return make("div", { class: "row scene-tools" }, make("div", { class: "row", role: "group", "aria-label": "What is shown" },
    choose("Forward", "values", "the values, from the tokens to the answer"),
    page.whats?.includes("gradient") === false ? null : [choose("Backward", "gradients", "the gradients, from the loss to the tokens"), choose("Both", "both", "each strip: the value above, its gradient below")], page.hasChanges ? choose("What changed", "change", "the values minus those before the changes") : null),
  make("span", { class: "scene-legend", "aria-hidden": "true" }, legend(shown)));
}

function legend(shown) {
  const swatch = (kind, low, high) => [make("i", { class: `swatch-bar ${kind}` }), ` ${low} to ${high}`];
  return [shown === "gradients" ? null : swatch("values", "negative", "positive value"), shown === "gradients" || shown === "both" ? swatch("gradients", "negative", "positive gradient") : null, swatch("weights", "no", "most attention")].filter(Boolean).flat();
}

// The tensor that was chosen, large; every cell opens its card.
function drawDetail(place, found, whats) {
  const { zoom } = look("scene");
  const station = found.parts.flatMap((part) => [...part.start, ...part.blocks.flatMap((block) => block.stations), ...part.end].map((one) => ({ ...one, stack: part.stack }))).find((one) => one.name === zoom);
  const tensor = station && page.run.values.find((one) => one.name === zoom);
  if (!tensor) return;
  const head = look("scene")[station.stack]?.head ?? 0;
  const at = tensor.shape.length === 4 ? [0, head] : tensor.shape.slice(0, -2).map(() => 0);
  const where = zoom.split(".").map((word) => word.replaceAll("_", " "));
  fill(place, make("nav", { class: "scene-crumbs", "aria-label": "Where you are" }, button("Scene", () => setScene({ zoom: null }), { class: "link" }), where.map((word) => make("span", {}, ` › ${/^\d+$/.test(word) ? `block ${word}` : word}`)), tensor.shape.length === 4 ? make("span", {}, ` › head ${head}`) : null),
    make("p", { class: "quiet" }, `${found.says[station.kind]}.`),
    make("div", { class: "pair" }, whats.map((what) => heat({ ...tensor, what, at, ...page.labelsFor(tensor), size: Math.min(900, place.clientWidth - 40), title: `${what === "value" ? "" : `${what} of `}${zoom}`,
      onpick: (index) => openCard({ name: zoom, index, gradient: what === "gradient" }) }))));
}
