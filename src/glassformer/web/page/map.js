// The map: the model from the tokens to the loss, each part a box that opens; inside lie its tensors as heat maps.

import { appendInTurns, button, make, short, visible, whole } from "./dom.js";
import { percent } from "./bars.js";
import { heat } from "./heat.js";
import { kept } from "./kept.js";
import { change, look } from "./state.js";
import { openCard } from "./card.js";
import { mapPicture } from "./map_picture.js";

export const mapView = { id: "map", title: "Map", draw };

const FEW = 20;
const SHOWN = { values: ["value"], gradients: ["gradient"], both: ["value", "gradient"], change: ["before", "value", "change"] };
const WORDS = {
  embedding: "tokens become vectors", source_embedding: "tokens of the source become vectors", attention: "each token looks at others",
  cross_attention: "each token looks at the source", feed_forward: "each position alone", final_norm: "the stream, normalized",
  head: "vectors become logits", attend: "softmax(q·k) · v", logits: "the scores it predicts with", vectors: "what the model returns", blocks: "the stream after all blocks", encoder: "what the decoder reads", decoder: "what the head reads",
};

function draw(place, page) {
  const settings = look("map");
  const open = new Set(settings.open ?? []);
  const shown = settings.shown ?? "values";
  const tree = treeOf(page.run);
  const lanes = lanesOf(tree, page);
  const many = lanes.flat().length > FEW; // then what is closed is in the picture alone
  const listed = lanes.map((nodes) => nodes.filter((node) => !many || open.has(node.name)));
  const flow = make("div", { class: "flow" }, listed.filter((nodes) => nodes.length).map((nodes) =>
    make("div", { class: "lane" }, nodes.map((node) => drawNode(node, page, open, shown)))));
  const show = (names) => {
    look("map", { open: [...new Set([...(look("map").open ?? []), ...names])] });
    page.redraw();
    document.querySelector(`[data-name="${names.at(-1)}"]`)?.scrollIntoView({ block: "nearest" });
    document.querySelector(`[data-name="${names.at(-1)}"] > .head`)?.focus({ preventScroll: true });
  };
  const tokens = lanes.length === 2 ? ["source", "target"] : ["tokens"];
  const opened = (all) => { look("map", { open: all ? everyName(tree) : [] }); page.redraw(); };
  place.append(make("div", { class: "stack" }, welcome(page),
    make("div", { class: "row" }, switcher(shown, page), button("Open all", () => opened(true)), button("Close all", () => opened(false))),
    tokensRow(page), mapPicture(lanes, tokens, show), flow, ending(page)));
}

function switcher(shown, page) {
  const names = page.hasChanges ? ["values", "gradients", "both", "change"] : ["values", "gradients", "both"];
  return make("div", { class: "row", role: "group", "aria-label": "What is shown" }, names.map((name) =>
    button(name, () => { look("map", { shown: name }); page.redraw(); }, { "aria-pressed": String(name === shown) })));
}

// What this page is; on the first visit with a way in.
function welcome(page) {
  const said = make("p", { class: "quiet" }, "This is one run of the model on the text above: every number it computed, from the tokens to the ", page.run.loss === null ? "output" : "loss",
    ". Click a part of the picture to see its numbers, and a number to see its formula, its source and its gradient.");
  if (isKnown()) return said;
  const box = make("div", { class: "box row welcome" }, said, button("Show me around (2 min)", () => { known(); change({ view: "tours" }, { undoable: false }); }, { class: "main" }),
    button("Close", () => { known(); box.replaceWith(said); }));
  return box;
}

function isKnown() {
  try { return kept !== null || localStorage.getItem("glassformer") === "known"; } catch { return true; } // a page inside a notebook keeps nothing
}

function known() {
  localStorage.setItem("glassformer", "known");
}

// --- the tree of names ----------------------------------------------------------------------------------------------

// {name, tensors: [{name, shape, axes, kind}], inside: Map}: by the dots in their names, in the order in which they are made
function treeOf(run) {
  const root = { name: "", tensors: [], inside: new Map() };
  for (const value of run.values) add(root, value, "value");
  for (const value of run.parameters) add(root, value, "parameter");
  arrange(root);
  return root;
}

function add(root, value, kind) {
  const words = value.name.split(".");
  let node = root;
  words.slice(0, -1).forEach((word, depth) => { node = child(node, word, words.slice(0, depth + 1).join(".")); });
  const last = words.at(-1);
  // What a layer returned goes by the layer's own name: it lies in that layer's box.
  if (node.inside.has(last)) node = node.inside.get(last);
  node.tensors.push({ ...value, kind });
}

function child(node, word, name) {
  if (!node.inside.has(word)) {
    const made = { name, tensors: [], inside: new Map() };
    node.inside.set(word, made);
    const own = node.tensors.findIndex((tensor) => tensor.name === name);
    if (own >= 0) made.tensors.push(...node.tensors.splice(own, 1));
  }
  return node.inside.get(word);
}

// Parts stand in the order in which they were finished: what they read may have been made long before.
function arrange(node) {
  for (const inner of node.inside.values()) arrange(inner);
  // Parts with parameters alone, such as the matrix of the keys, stand behind the first that has values.
  const known = [...node.inside.values()].map((inner) => inner.last).filter(Number.isFinite);
  for (const inner of node.inside.values()) if (!Number.isFinite(inner.last) && known.length) inner.last = Math.min(...known) + 0.5;
  node.last = Math.max(...known, ...node.tensors.map((tensor) => tensor.number ?? -Infinity));
  node.tensors = withoutTwins(node.tensors);
  node.tensors.sort((a, b) => (a.kind === b.kind ? (a.number ?? 0) - (b.number ?? 0) : a.kind === "value" ? -1 : 1));
  node.inside = new Map([...node.inside].sort(([, a], [, b]) => a.last - b.last));
}

// A value that goes by two names in one box is drawn once, under both.
function withoutTwins(tensors) {
  const found = new Map();
  for (const tensor of tensors) {
    const twin = tensor.same && found.get(tensor.same);
    if (twin) twin.names.push(tensor.name);
    else found.set(tensor.same ?? tensor.name, { ...tensor, names: [tensor.name] });
  }
  return [...found.values()];
}

function everyName(node) {
  return [...node.inside.values()].flatMap((inner) => [inner.name, ...everyName(inner)]);
}

// Blocks stand in the lane itself; an encoder-decoder has two lanes.
function lanesOf(tree, page) {
  const spread = (node) => [...node.inside.values(), ...node.tensors.map(alone)]; // what a group returned stands behind it
  const flat = (nodes) => nodes.flatMap((node) => (node.name.split(".").at(-1) === "blocks" && node.inside.size ? spread(node) : [node]));
  const inside = [...tree.inside.values(), ...tree.tensors.filter((tensor) => !tree.inside.has(tensor.name)).map(alone)];
  if (page.info.architecture !== "encoder-decoder") return [flat(inside)];
  const isSource = (node) => node.name.startsWith("source") || node.name.startsWith("encoder");
  const opened = (nodes) => flat(nodes.flatMap((node) => (["encoder", "decoder"].includes(node.name) ? spread(node) : [node])));
  return [opened(inside.filter(isSource)), opened(inside.filter((node) => !isSource(node)))];
}

function alone(tensor) {
  return { name: tensor.name, tensors: [{ names: [tensor.name], ...tensor }], inside: new Map() };
}

// --- boxes ----------------------------------------------------------------------------------------------------------

function drawNode(node, page, open, shown) {
  const isOpen = open.has(node.name);
  const last = node.name.split(".").at(-1);
  const title = /^\d+$/.test(last) ? `block ${last}` : last.replaceAll("_", " ");
  const box = make("div", { class: "node", "data-name": node.name });
  const head = make("button", { type: "button", class: "head", "aria-expanded": String(isOpen) },
    make("strong", {}, title), make("span", { class: "what" }, WORDS[last] ?? ""), make("span", { class: "grow" }),
    make("span", { class: "what" }, counted(node)), make("span", { "aria-hidden": "true" }, isOpen ? "−" : "+"));
  head.addEventListener("click", () => {
    const names = new Set(look("map").open ?? []);
    if (names.has(node.name)) names.delete(node.name); else names.add(node.name);
    look("map", { open: [...names] });
    open.clear();
    names.forEach((name) => open.add(name));
    const next = drawNode(node, page, open, shown);
    box.replaceWith(next);
    next.querySelector(".head").focus();
  });
  box.append(head);
  if (isOpen) box.append(body(node, page, open, shown));
  return box;
}

function counted(node) {
  const all = (one) => one.tensors.length + [...one.inside.values()].reduce((sum, inner) => sum + all(inner), 0);
  const count = all(node);
  return count === 1 ? "1 tensor" : `${whole(count)} tensors`;
}

function body(node, page, open, shown) {
  const inner = [...node.inside.values()].map((one) => drawNode(one, page, open, shown));
  return make("div", { class: "body" }, make("div", { class: "tensors" }, node.tensors.map((tensor) => tensorBox(tensor, page, shown))), inner);
}

function tensorBox(tensor, page, shown) {
  const place = make("div", { class: "pair", "data-tensor": tensor.names.join(" ") });
  const at = tensor.shape.slice(0, -2).map(() => 0);
  const redraw = () => place.replaceChildren(...choosers(tensor, at, redraw), ...SHOWN[shown].map((what) => one(tensor, what, [...at], page)));
  redraw();
  return place;
}

function one(tensor, what, at, page) {
  const labels = page.labelsFor(tensor);
  return heat({
    ...tensor, what, at, ...labels, title: `${what === "value" ? "" : `${what} of `}${tensor.names.join(" = ")}`,
    onpick: (index) => openCard({ name: tensor.name, index, gradient: what.startsWith("gradient") }),
  });
}

// A chooser for each axis before the last two, such as heads.
function choosers(tensor, at, redraw) {
  return tensor.shape.slice(0, -2).map((size, axis) => {
    if (size === 1) return null;
    const choice = make("input", { type: "number", min: "0", max: String(size - 1), value: String(at[axis]), onchange: () => { at[axis] = Math.max(0, Math.min(size - 1, Number(choice.value) || 0)); redraw(); } });
    return make("label", {}, `${tensor.axes[axis] ?? "index"} of ${size}`, choice);
  }).filter(Boolean);
}

function tokensRow(page) {
  const box = (token, position) => make("span", { class: "token", title: `position ${position}, id ${token.id}` }, visible(token.label));
  const row = (tokens, title) => (tokens ? make("div", {}, make("h2", {}, title), appendInTurns(make("div", { class: "tokens" }), tokens, box)) : null);
  return make("div", { class: "row" }, row(page.run.source, "Source"), row(page.run.tokens, page.run.source ? "Answer" : "Tokens"));
}

function ending(page) {
  const { run } = page;
  const loss = run.loss === null ? null : make("p", {}, "loss ", make("b", { class: "mono" }, short(run.loss, 6)),
    run.loss_before !== run.loss ? ` (before the changes ${short(run.loss_before, 6)})` : "");
  const next = run.next ? make("p", {}, page.info.classes ? "likeliest class: " : "likeliest next token: ", run.next.slice(0, 5).map((one) => make("span", { class: "token" }, `${visible(one.label)} ${percent(one.probability)}`))) : null;
  return make("div", { class: "box stack" }, loss, next);
}
