// Every tensor of a run by its name: each part of the model is a box that opens; inside lie its tensors as
// heat maps.

import { button, make, whole } from "./dom.js";
import { heat } from "./heat.js";
import { look } from "./state.js";
import { openCard } from "./card.js";

const SHOWN = {
  values: ["value"],
  gradients: ["gradient"],
  both: ["value", "gradient"],
  change: ["before", "value", "change"],
};
const WORDS = {
  embedding: "tokens become vectors",
  source_embedding: "tokens of the source become vectors",
  attention: "each token looks at others",
  cross_attention: "each token looks at the source",
  feed_forward: "each position alone",
  final_norm: "the stream, normalized",
  head: "vectors become logits",
  attend: "softmax(q·k) · v",
  logits: "the scores it predicts with",
  vectors: "what the model returns",
  blocks: "the stream after all blocks",
  encoder: "what the decoder reads",
  decoder: "what the head reads",
};

// All tensors of the run by the dots in their names, in boxes that open.
export function everyTensor(page) {
  const settings = look("tensors");
  const open = new Set(settings.open ?? []);
  const shown = look("scene").shown ?? "values";
  const tree = treeOf(page.run);
  const opened = (all) => {
    look("tensors", { open: all ? everyName(tree) : [], listed: true });
    page.redraw();
  };
  const box = make(
    "details.box.every",
    { open: Boolean(settings.listed || open.size) },
    make("summary", "Every tensor of this run, by name"),
  );
  const list = () => {
    look("tensors", { listed: box.open });
    if (box.open && box.childElementCount === 1)
      box.append(
        make(
          "div.stack",
          make(
            "div.row",
            button("Open all", () => opened(true)),
            button("Close all", () => opened(false)),
          ),
          make(
            "div.lane",
            [...tree.inside.values()].map((node) => drawNode(node, page, open, shown)),
          ),
        ),
      );
  };
  box.addEventListener("toggle", list);
  if (box.open) list();
  return box;
}

// --- the tree of names -------------------------------------------------------------------------------------

// {name, tensors: [{name, shape, axes, kind}], inside: Map}: by the dots in their names, in the order in
// which they are made
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
  words.slice(0, -1).forEach((word, depth) => {
    node = child(node, word, words.slice(0, depth + 1).join("."));
  });
  const last = words.at(-1);
  // What a layer returned goes by the layer's own name: it lies in that layer's box. Outside of all boxes, a
  // tensor has its own.
  if (node.inside.has(last) || node === root) node = child(node, last, value.name);
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
  for (const inner of node.inside.values())
    if (!Number.isFinite(inner.last) && known.length) inner.last = Math.min(...known) + 0.5;
  node.last = Math.max(...known, ...node.tensors.map((tensor) => tensor.number ?? -Infinity));
  node.tensors = withoutTwins(node.tensors);
  node.tensors.sort((a, b) =>
    a.kind === b.kind ? (a.number ?? 0) - (b.number ?? 0) : a.kind === "value" ? -1 : 1,
  );
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

// --- boxes -------------------------------------------------------------------------------------------------

// A box that is open has an open one around it.
function drawNode(node, page, open, shown) {
  const last = node.name.split(".").at(-1);
  const isInside = (name) => name === node.name || name.startsWith(`${node.name}.`);
  const box = make(
    "details.node",
    { "data-name": node.name, open: [...open].some(isInside) },
    make(
      "summary.head",
      make("strong", /^\d+$/.test(last) ? `block ${last}` : last.replaceAll("_", " ")),
      make("span.what", WORDS[last] ?? ""),
      make("span.grow"),
      make("span.what", counted(node)),
    ),
  );
  const list = () => {
    if (box.open && box.childElementCount === 1) box.append(body(node, page, open, shown));
  };
  box.addEventListener("toggle", () => {
    const before = [...open].filter(isInside);
    if (box.open === before.length > 0) return; // it was drawn so
    if (box.open) open.add(node.name);
    else for (const name of before) open.delete(name);
    look("tensors", { open: [...open] });
    list();
  });
  list();
  return box;
}

function counted(node) {
  const all = (one) =>
    one.tensors.length + [...one.inside.values()].reduce((sum, inner) => sum + all(inner), 0);
  const count = all(node);
  return count === 1 ? "1 tensor" : `${whole(count)} tensors`;
}

function body(node, page, open, shown) {
  const inner = [...node.inside.values()].map((one) => drawNode(one, page, open, shown));
  return make(
    "div.body",
    make(
      "div.tensors",
      node.tensors.map((tensor) => tensorBox(tensor, page, shown)),
    ),
    inner,
  );
}

function tensorBox(tensor, page, shown) {
  const place = make("div.pair", { "data-tensor": tensor.names.join(" ") });
  const at = tensor.shape.slice(0, -2).map(() => 0);
  const redraw = () =>
    place.replaceChildren(
      ...choosers(tensor, at, redraw),
      ...SHOWN[shown].map((what) => one(tensor, what, [...at], page)),
    );
  redraw();
  return place;
}

function one(tensor, what, at, page) {
  const labels = page.labelsFor(tensor);
  return heat({
    ...tensor,
    what,
    at,
    ...labels,
    title: `${what === "value" ? "" : `${what} of `}${tensor.names.join(" = ")}`,
    onpick: (index) => openCard({ name: tensor.name, index, gradient: what.startsWith("gradient") }),
  });
}

// A chooser for each axis before the last two, such as heads.
function choosers(tensor, at, redraw) {
  return tensor.shape
    .slice(0, -2)
    .map((size, axis) => {
      if (size === 1) return null;
      const choice = make("input", {
        type: "number",
        min: "0",
        max: String(size - 1),
        value: String(at[axis]),
        onchange: () => {
          at[axis] = Math.max(0, Math.min(size - 1, Number(choice.value) || 0));
          redraw();
        },
      });
      return make("label", `${tensor.axes[axis] ?? "index"} of ${size}`, choice);
    })
    .filter(Boolean);
}
