// A tensor as a heat map: a rectangle of its last two axes, at the resolution of the screen.
// Point at a cell to read it, click it to open its card; with the keyboard: arrows, then Enter.

import { ARROWS, axisNames, cellAt, cellText, exact, fill, make, short, visible, whole } from "./dom.js";
import { inkOn, isDark, paintCells } from "./color.js";
import { tile } from "./server.js";
import { runState } from "./state.js";

const NONNEGATIVE = /(weights|mask|rstd|keep|probabilities)$/;
const LETTERS = { example: "B", head: "H", position: "T", query: "T", key: "S", feature: "D", row: "R" };
const CELLS = 512; // cells along one side, at most, are asked for

// settings: what, name, axes, at, rows, columns, rowLabels, columnLabels, size (pixels of a side), most
// (pixels of a cell), title, says (in the place of shape and statistics), top (the number with the full
// color), least (the least such number), mask (the name of a mask: what is masked is hatched), large (numbers
// are written into the cells), state (of another run), onpick(index), onpoint(cursor or null). A figure has
// own, mark(cursor) and redraw().
export function heat(settings) {
  const canvas = make("canvas", {
    tabindex: "0",
    role: "img",
    "aria-label": settings.name,
    width: 1,
    height: 1,
    onpointerleave: () => leave(),
    onblur: () => leave(),
    onkeydown: (event) => keyed(own, event),
    onpointermove: (event) => point(own, event),
    onclick: (event) => {
      point(own, event);
      pick(own);
    },
    onfocus: () => {
      if (canvas.matches(":focus-visible")) say(own);
    },
  });
  const mark = make("div.cursor", { hidden: true });
  const caption = make("figcaption");
  const under = make("div.under", { "aria-live": "polite" });
  const sides = [make("div"), make("div")]; // what stands beside the rows and above the columns
  const figure = make(
    "figure.heat",
    caption,
    make("div.named", make("span"), sides[1], sides[0], make("div.cells", canvas, mark)),
    settings.onpoint ? null : under,
  );
  const own = { ...settings, canvas, mark, caption, under, sides, cursor: [0, 0], found: null };
  const leave = () => {
    if (own.onpoint) own.onpoint(null);
    else {
      mark.hidden = true;
      fill(under);
    }
  };
  canvas.redraw = () => own.found && draw(own);
  Object.assign(figure, {
    own,
    ready: load(own, figure),
    mark: (cursor) => showMark(own, cursor),
    redraw: () => draw(own),
  });
  return figure;
}

async function load(own, figure) {
  const question = {
    state: own.state ?? runState(),
    what: own.what ?? "value",
    name: own.name,
    height: CELLS,
    width: CELLS,
  };
  for (const part of ["at", "rows", "columns"]) if (own[part]) question[part] = own[part];
  try {
    [own.found, own.masked] = await Promise.all([
      tile(question),
      own.mask ? tile({ ...question, what: "value", name: own.mask }) : null,
    ]);
    draw(own);
  } catch (error) {
    figure.append(fill(own.under, make("span.bad", error.message)));
  }
  return figure;
}

function draw(own) {
  const { facts, cells } = own.found;
  const [height, width] = facts.size;
  const signed = facts.all.least < 0 || !NONNEGATIVE.test(own.name);
  const top = own.top ?? Math.max(own.least ?? 0, own.masked ? largestOf(own) : fullColor(facts.here));
  const family = (own.what ?? "").startsWith("gradient") ? "gradient" : "value";
  const size = sizeOf(own, height, width);
  paintCells(own.canvas, cells, facts.size, top, signed, family);
  if (own.large && size[1] / width >= 6) enlarge(own, size, (n) => inkOn(cells[n], top, signed, family));
  Object.assign(own.canvas.style, { width: `${size[1]}px`, height: `${size[0]}px` });
  [facts.rows, facts.columns].forEach((part, axis) => {
    const names =
      facts.step[axis] === 1 ? [own.rowLabels, own.columnLabels][axis]?.slice(...part) : undefined;
    axisNames(
      own.sides[axis],
      names,
      size[axis] / facts.size[axis],
      axis === 1,
      facts.shape.length + axis > 1 ? own.axes?.at(axis - 2) : undefined,
    );
  });
  own.canvas.dataset.painted = "yes";
  own.canvas.dataset.dark = isDark();
  own.canvas.setAttribute("aria-label", describe(own, facts));
  const cutOff =
    top < fullColor({ least: facts.here.least, most: facts.here.most }) && !own.masked
      ? make("span", `full color from ${short(top)}`)
      : null;
  fill(
    own.caption,
    make("b", own.title ?? own.name),
    own.says
      ? make("span", own.says)
      : [make("span", shapeText(own, facts)), make("span", statistics(facts)), cutOff],
  );
}

// Cells in full size: what is masked is hatched, and numbers are written where they fit.
function enlarge(own, size, ink) {
  const [tall, wide] = size;
  const { facts, cells } = own.found;
  const [height, width] = facts.size;
  const [down, across] = [tall / height, wide / width];
  const sharp = window.devicePixelRatio || 1;
  const small = make("canvas", { width, height });
  small.getContext("2d").drawImage(own.canvas, 0, 0);
  Object.assign(own.canvas, { width: Math.round(wide * sharp), height: Math.round(tall * sharp) });
  const pen = own.canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, own.canvas.width, own.canvas.height);
  pen.scale(sharp, sharp);
  Object.assign(pen, { textAlign: "center", textBaseline: "middle" });
  cells.forEach((number, n) => {
    const [x, y] = [(n % width) * across, Math.floor(n / width) * down];
    if (own.masked && !own.masked.cells[n]) hatch(pen, x, y, across, down);
    else if (across >= 28 && down >= 14) {
      const text = cellText(number);
      pen.fillStyle = ink(n);
      pen.font = `${Math.min(12, (across * 1.2) / text.length)}px sans-serif`;
      pen.fillText(text, x + across / 2, y + down / 2);
    }
  });
}

// What may not be looked at: a line across, told apart from a number near zero without any color.
function hatch(pen, x, y, across, down) {
  pen.fillStyle = isDark() ? "#24272c" : "#ececea";
  pen.fillRect(x, y, across, down);
  pen.strokeStyle = isDark() ? "#4a4f57" : "#c4c4be";
  pen.beginPath();
  pen.moveTo(x, y + down);
  pen.lineTo(x + across, y);
  pen.stroke();
}

// The largest number that is not masked.
function largestOf({ found, masked }) {
  return found.cells.reduce((top, number, n) => (masked.cells[n] ? Math.max(top, Math.abs(number)) : top), 0);
}

// The number with the full color: one outlier must not make everything else pale.
function fullColor(stats) {
  const largest = Math.max(Math.abs(stats.least ?? 0), Math.abs(stats.most ?? 0));
  const usual = Math.abs(stats.mean ?? 0) + 4 * (stats.spread ?? 0);
  return usual > 0 ? Math.min(largest, usual) : largest;
}

// Cells are squares where that fits; rows are high enough for a word where that fits.
function sizeOf(own, height, width) {
  const side = Math.max(200, Math.min(own.size ?? 360, innerWidth - 150));
  const across = Math.max(side / CELLS, Math.min(own.most ?? 26, side / width));
  const down = Math.min(Math.max(across, 16), side / height);
  return [Math.max(height * down, 22), Math.max(width * across, 22)];
}

function shapeText(own, facts) {
  const letters = (own.axes ?? []).map((axis) => LETTERS[axis] ?? axis);
  const numbers = facts.shape.map(whole).join(" × ");
  return letters.length ? `${letters.join(" × ")} = ${numbers}` : numbers;
}

function statistics(facts) {
  const { least, most, mean, spread, odd } = facts.here;
  const strange = odd ? `, ${whole(odd)} not finite` : "";
  return `${short(least)} to ${short(most)}, mean ${short(mean)} ± ${short(spread)}${strange}`;
}

function describe(own, facts) {
  return `${own.what ?? "value"} of ${own.name}, ${shapeText(own, facts)}, ${statistics(facts)}`;
}

function point(own, event) {
  if (!own.found || own.held) return;
  own.cursor = cellAt(own.canvas, event, own.found.facts.size);
  say(own);
}

function keyed(own, event) {
  if (!own.found) return;
  if (event.key in ARROWS) {
    const size = own.found.facts.size;
    own.cursor = own.cursor.map((at, axis) =>
      Math.max(0, Math.min(size[axis] - 1, at + ARROWS[event.key][axis])),
    );
    say(own);
    event.preventDefault();
  } else if (event.key === "Enter") pick(own);
}

function cellOf(own) {
  return own.cursor[0] * own.found.facts.size[1] + own.cursor[1];
}

// The index of the entry that a cell shows, in the whole tensor: of a coarse cell the one farthest from zero.
function indexOf(own) {
  const { facts, places } = own.found;
  const wide = facts.columns[1] - facts.columns[0];
  const flat = places ? places[cellOf(own)] : own.cursor[0] * wide + own.cursor[1];
  const place = [facts.rows[0] + Math.floor(flat / wide), facts.columns[0] + (flat % wide)];
  const leading = own.at ?? facts.shape.slice(0, -2).map(() => 0);
  return facts.shape.length < 2 ? [place[1]] : [...leading, ...place];
}

function say(own) {
  if (!own.found) return;
  showMark(own, own.cursor);
  if (own.onpoint) {
    own.onpoint(own.cursor);
    return;
  }
  const { facts, cells } = own.found;
  const index = indexOf(own);
  const coarse =
    facts.step[0] * facts.step[1] > 1
      ? `, the farthest from 0 of ${facts.step[0]} × ${facts.step[1]} entries`
      : "";
  const words = [own.rowLabels?.[index.at(-2)], own.columnLabels?.[index.at(-1)]]
    .filter((word) => word !== undefined)
    .map((word) => `“${visible(word)}”`);
  fill(own.under, `[${index.join(", ")}] ${words.join(" → ")} = ${exact(cells[cellOf(own)])}${coarse}`);
}

function showMark(own, cursor) {
  own.mark.hidden = !cursor || !own.found;
  if (own.mark.hidden) return;
  own.cursor = cursor;
  const [height, width] = own.found.facts.size.map(
    (size, axis) => [own.canvas.clientHeight, own.canvas.clientWidth][axis] / size,
  );
  Object.assign(own.mark.style, {
    top: `${cursor[0] * height}px`,
    left: `${cursor[1] * width}px`,
    height: `${Math.max(3, height)}px`,
    width: `${Math.max(3, width)}px`,
  });
}

function pick(own) {
  if (own.found) own.onpick?.(indexOf(own), own);
}
