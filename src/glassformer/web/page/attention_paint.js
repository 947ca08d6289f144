// Maps of attention on canvases: small ones for a glance, large ones with cells to point at and words along both sides.

import { cssColor, inkOn, isDark, paint } from "./color.js";
import { cellText, make, visible } from "./dom.js";

// One pixel for each cell; the style sheet says how large it looks.
export function paintSmallMap(canvas, found, top, signed) {
  canvas.redraw = () => {
    const [height, width] = found.facts.size;
    const bytes = new Uint8ClampedArray(height * width * 4);
    for (let i = 0; i < found.cells.length; i += 1) paint(bytes, i * 4, found.cells[i], top, signed);
    canvas.width = width;
    canvas.height = height;
    canvas.getContext("2d").putImageData(new ImageData(bytes, width, height), 0, 0);
    canvas.dataset.painted = "yes";
  };
  canvas.redraw();
}

// A large map. settings: title, under, found (a tile), allowed (a tile of the mask, or null), top, signed, rows, columns (words), cell (pixels),
// onpoint({query, key}) while cells are pointed at, onpick({query, key}) when one is chosen; queries and keys count from the tile's first.
export function largeMap(settings) {
  const [height, width] = settings.found.facts.size;
  const { cell } = settings;
  const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": `${settings.title}: ${height} queries down, ${width} keys across; arrows move, Enter opens the card` });
  const mark = make("div", { class: "attention-mark", hidden: true });
  const cursor = { query: 0, key: 0 };
  canvas.redraw = () => drawCells(canvas, settings);
  canvas.redraw();
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const inside = (share, size) => Math.max(0, Math.min(size - 1, Math.floor(share * size)));
    Object.assign(cursor, { query: inside((event.clientY - box.top) / box.height, height), key: inside((event.clientX - box.left) / box.width, width) });
    settings.onpoint(cursor);
  };
  canvas.addEventListener("pointermove", at);
  canvas.addEventListener("click", (event) => { at(event); settings.onpick(cursor); });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Enter") settings.onpick(cursor);
    if (!(event.key in moves)) return;
    event.preventDefault();
    cursor.query = Math.max(0, Math.min(height - 1, cursor.query + moves[event.key][0]));
    cursor.key = Math.max(0, Math.min(width - 1, cursor.key + moves[event.key][1]));
    settings.onpoint(cursor);
  });
  const words = (list, side) => make("div", { class: `attention-words ${side}`, "aria-hidden": "true", style: { [side === "left" ? "height" : "width"]: `${list.length * cell}px` } },
    list.map((word) => make("span", { style: { [side === "left" ? "height" : "width"]: `${cell}px`, fontSize: `${Math.min(13, cell)}px`, lineHeight: `${cell}px` } }, visible(word))));
  const figure = make("figure", { class: "attention-large" }, make("figcaption", {}, make("b", {}, settings.title), make("span", {}, settings.under)),
    make("div", { class: "scroll" }, make("div", { class: "attention-sides" }, make("span"), words(settings.columns, "top"), words(settings.rows, "left"),
      make("div", { class: "attention-cells" }, canvas, mark))));
  figure.point = (place) => {
    mark.hidden = !place || place.query === undefined || place.key === undefined;
    if (!mark.hidden) Object.assign(mark.style, { left: `${place.key * cell}px`, top: `${place.query * cell}px`, width: `${cell}px`, height: `${cell}px` });
  };
  return figure;
}

function drawCells(canvas, { found, allowed, top, signed, cell }) {
  const [height, width] = found.facts.size;
  const sharp = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * cell * sharp);
  canvas.height = Math.round(height * cell * sharp);
  Object.assign(canvas.style, { width: `${width * cell}px`, height: `${height * cell}px` });
  const pen = canvas.getContext("2d");
  pen.scale(sharp, sharp);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let i = 0; i < found.cells.length; i += 1) {
    const [x, y] = [(i % width) * cell, Math.floor(i / width) * cell];
    if (allowed && !allowed.cells[i]) { hatch(pen, x, y, cell); continue; }
    pen.fillStyle = cssColor(found.cells[i], top, signed);
    pen.fillRect(x, y, cell, cell);
    if (cell >= 28) {
      pen.fillStyle = inkOn(found.cells[i], top, signed);
      const text = cellText(found.cells[i]);
      pen.font = `${Math.min(12, (cell * 1.4) / text.length)}px sans-serif`;
      pen.fillText(text, x + cell / 2, y + cell / 2);
    }
  }
  canvas.dataset.painted = "yes";
}

// What may not be looked at: lines across, told apart from a number near zero without any color.
function hatch(pen, x, y, cell) {
  pen.fillStyle = isDark() ? "#24272c" : "#ececea";
  pen.fillRect(x, y, cell, cell);
  pen.strokeStyle = isDark() ? "#4a4f57" : "#c4c4be";
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x, y + cell);
  pen.lineTo(x + cell, y);
  pen.stroke();
}
