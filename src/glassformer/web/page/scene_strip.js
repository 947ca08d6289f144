// The vectors of one station: one strip of color for each token, as wide as the station.

import { paintCells } from "./color.js";
import { tile } from "./server.js";
import { runState } from "./state.js";

const FAMILY = (what) => (what.startsWith("gradient") ? "gradient" : "value");

// Ask for the numbers of a place in the picture. whats: one or two kinds of numbers, such as value and
// gradient; fades: what the changes left alone is pale.
export async function loadStrip(canvas, place, plan, whats, { head = null, fades = false } = {}) {
  const isMatrix = place.kind === "weights";
  const question = (what) => ({
    state: runState(),
    what,
    name: place.name,
    ...(isMatrix ? { at: [0, head] } : {}),
    ...(place.isLane && plan.lanes[1] - plan.lanes[0] < plan.count ? { rows: plan.lanes } : {}),
    height: 128,
    width: isMatrix ? 128 : Math.max(8, Math.min(96, Math.round(place.width))),
  });
  const [moved, ...found] = await Promise.all([
    fades ? tile(question("change")).catch(() => null) : null,
    ...whats.map((what) => tile(question(what))),
  ]);
  canvas.redraw = () => paintStrip(canvas, place, found, whats, isMatrix, moved);
  canvas.redraw();
  return found;
}

const PALE = 0.16; // how much is left of the color of what did not change
const MOVED = 0.1; // a change of this share of the full color keeps all of it

function paintStrip(canvas, place, found, whats, isMatrix, moved) {
  const sharp = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: Math.round(place.width * sharp), height: Math.round(place.height * sharp) });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  const off = document.createElement("canvas");
  found.forEach(({ facts, cells }, n) => {
    const what = whats[n];
    const plain = isMatrix && what === "value";
    const top = plain ? Math.max(0.25, ...cells) : usual(cells);
    const strength =
      moved && ((cell) => PALE + (1 - PALE) * Math.min(1, Math.abs(moved.cells[cell]) / (MOVED * top)));
    paintCells(off, cells, facts.size, top, !plain, FAMILY(what), strength);
    const [rows, columns] = facts.size;
    const each = canvas.height / rows;
    const gap = each / sharp < 7 ? 0 : (isMatrix ? 1 : 3) * sharp;
    for (let row = 0; row < rows; row += 1) {
      const high = (each - gap) / found.length;
      const top = row * each + gap / 2 + n * high;
      if (!isMatrix || columns > 60)
        pen.drawImage(off, 0, row, columns, 1, 0, top, canvas.width, Math.max(1, high));
      else
        for (let column = 0; column < columns; column += 1) {
          const across = canvas.width / columns;
          pen.drawImage(
            off,
            column,
            row,
            1,
            1,
            column * across + gap / 2,
            top,
            across - gap,
            Math.max(1, high),
          );
        }
    }
  });
  canvas.dataset.painted = "yes";
}

// The number with the full color: a few outliers, which large models have, must not make everything else
// pale.
function usual(cells) {
  const sizes = Float64Array.from(cells, Math.abs).filter(Number.isFinite).sort();
  return sizes[Math.floor(0.97 * (sizes.length - 1))] || sizes.at(-1) || 1;
}

// Which row, which cell and which index of the tensor the pointer is at.
export function stripAt(canvas, event, { facts, cells, places }) {
  const box = canvas.getBoundingClientRect();
  const [rows, columns] = facts.size;
  const within = (share, size) => Math.max(0, Math.min(size - 1, Math.floor(share * size)));
  const row = within((event.clientY - box.top) / box.height, rows);
  const column = within((event.clientX - box.left) / box.width, columns);
  const wide = facts.columns[1] - facts.columns[0];
  const flat = places ? places[row * columns + column] : row * wide + column;
  return {
    row,
    column,
    number: cells[row * columns + column],
    at: [facts.rows[0] + Math.floor(flat / wide), facts.columns[0] + (flat % wide)],
  };
}
