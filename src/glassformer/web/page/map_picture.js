// The model as one picture: a stream from left to right, and what each block writes into it. Every part is a button.

import { make } from "./dom.js";

const HEIGHT = 156; // of a lane
const TALL = 88; // of a sublayer's box: its name stands upright in it
const SUBLAYERS = ["attention", "cross_attention", "feed_forward"];

// lanes: lists of nodes {name, inside}; open(names): shows what lies inside of parts with these names
export function mapPicture(lanes, tokens, open) {
  const block = Math.max(2, ...lanes.flat().filter(isBlock).map((node) => sublayersOf(node).length)) * 24; // all blocks are equally wide
  const widthOf = (node) => (isBlock(node) ? block : 92);
  const wide = Math.max(560, ...lanes.map((nodes) => 70 + nodes.reduce((sum, node) => sum + widthOf(node), 0)));
  const picture = make("svg", { viewBox: `0 0 ${wide} ${HEIGHT * lanes.length}`, class: "picture", role: "group", "aria-label": "The model, from the tokens to its output" });
  const ends = lanes.map((nodes, lane) => pictureLane(picture, nodes, lane, tokens[lane], wide, widthOf, open));
  picture.style.maxWidth = `${wide * 1.15}px`;
  picture.style.minWidth = `${wide * 0.8}px`;
  if (lanes.length === 2) pictureMemory(picture, ends[0], lanes[1], ends[1].places);
  return make("div", { class: "scroll" }, picture);
}

function isBlock(node) {
  return /(^|\.)blocks\.\d+$/.test(node.name);
}

function sublayersOf(node) {
  return SUBLAYERS.filter((kind) => node.inside.has(kind));
}

function pictureLane(picture, nodes, lane, tokens, wide, widthOf, open) {
  const middle = HEIGHT * lane + HEIGHT / 2;
  picture.append(make("line", { x1: 10, y1: middle, x2: wide - 8, y2: middle, class: "stream" }));
  picture.append(pictureText(8, middle - 14, tokens, "what"));
  const places = new Map();
  let x = 62;
  for (const node of nodes) {
    const width = widthOf(node);
    places.set(node.name, { x: x + width / 2, y: middle });
    picture.append(isBlock(node) ? pictureBlock(node, x, middle, width, open) : picturePart(node, x, middle, width, open));
    x += width;
  }
  return { x, y: middle, places };
}

function pictureBlock(node, x, middle, width, open) {
  const number = node.name.split(".").at(-1);
  const kinds = sublayersOf(node);
  const each = (width - 8) / Math.max(1, kinds.length);
  const label = make("g", {}, pictureText(x + width / 2, middle + HEIGHT / 2 - 8, number, "what middle"));
  const boxes = kinds.map((kind, place) => {
    const inner = node.inside.get(kind);
    const title = `block ${number}: ${kind.replaceAll("_", " ")}`;
    const room = { x: x + 4 + place * each + 1, y: middle - TALL / 2, width: Math.max(4, each - 2), height: TALL };
    return pictureButton(title, kind.replaceAll("_", "-"), room, kind, () => open([node.name, inner.name]));
  });
  const whole = { x: x + 2, y: middle - TALL / 2 - 5, width: width - 4, height: TALL + 10 };
  if (!kinds.length) boxes.push(pictureButton(`block ${number}`, number, whole, "part", () => open([node.name])));
  return make("g", {}, make("rect", { ...whole, rx: 6, class: "frame" }), boxes, label);
}

function picturePart(node, x, middle, width, open) {
  const title = node.name.split(".").at(-1).replaceAll("_", " ");
  const room = { x: x + 4, y: middle - 17, width: width - 8, height: 34 };
  return pictureButton(title, title.replace("embedding", "embed"), room, "part", () => open([node.name]));
}

function pictureButton(title, text, room, kind, act) {
  const onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } };
  return make("g", { role: "button", tabindex: "0", class: `press ${kind}`, "aria-label": title, onclick: act, onkeydown },
    make("title", {}, title), make("rect", { ...room, rx: 4 }), pictureWord(room, text));
}

// What the encoder made is read by every block of the decoder.
function pictureMemory(picture, from, nodes, places) {
  const last = from.x;
  const y = from.y + HEIGHT / 2 - 2;
  const blocks = nodes.filter(isBlock).map((node) => places.get(node.name));
  if (!blocks.length) return;
  picture.prepend(make("path", { class: "memory", d: `M ${last} ${from.y} V ${y} H ${blocks[0].x} ${blocks.map((place) => `M ${place.x} ${y} V ${place.y - TALL / 2 - 5}`).join(" ")}` }));
}

// A word in the middle of a box, upright where it is wider than the box.
function pictureWord(room, text) {
  const [x, y] = [room.x + room.width / 2, room.y + room.height / 2];
  const word = pictureText(x, y + 4, text, "middle");
  if (text.length * 6 > room.width && room.height > room.width) { word.setAttribute("transform", `rotate(-90 ${x} ${y})`); word.setAttribute("y", y + 3.5); }
  return word;
}

function pictureText(x, y, text, kind) {
  return make("text", { x, y, class: kind }, text);
}
