// Maps of attention on canvases: small ones for a glance, large ones with cells to point at and words along both sides.

import { cssColor, inkOn, isDark, paintCells } from "./color.js";
import { ARROWS, cellAt, cellText, make, visible } from "./dom.js";

// One pixel for each cell; the style sheet says how large it looks.
export function paintSmallMap(canvas, found, top, signed) {
  canvas.redraw = () => {
    paintCells(canvas, found.cells, found.facts.size, top, signed);
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
    [cursor.query, cursor.key] = cellAt(canvas, event, [height, width]);
    settings.onpoint(cursor);
  };
  canvas.addEventListener("pointermove", at);
  canvas.addEventListener("click", (event) => { at(event); settings.onpick(cursor); });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter") settings.onpick(cursor);
    if (!(event.key in ARROWS)) return;
    event.preventDefault();
    cursor.query = Math.max(0, Math.min(height - 1, cursor.query + ARROWS[event.key][0]));
    cursor.key = Math.max(0, Math.min(width - 1, cursor.key + ARROWS[event.key][1]));
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
