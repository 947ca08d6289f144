// The card of a number in a file: the formula of its value with letters, and the numbers that stand for them there.
// interpret/templates.py says where the operands of a formula stand; this looks them up and computes indices alone.

import { short, whole } from "./dom.js";
import { keptTile } from "./kept.js";
import { page } from "./page.js";
import { ask } from "./server.js";
import { runState } from "./state.js";

const SHOWN_ROWS = 64;
const INDEX = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "//": (a, b) => Math.floor(a / b), "%": (a, b) => a % b };
const MISSING = "This file keeps its tensors more coarsely than this: “–” stands for a number that is not in it. `glassformer explore` shows all of them.";

export async function cardFromFile({ name, index, gradient = false }) {
  const tensor = [...page.run.values, ...page.run.parameters].find((one) => one.name === name);
  const isParameter = page.run.parameters.includes(tensor);
  const found = await cell("gradient", name, index);
  const slope = numberOf(found);
  const value = gradient ? slope : await entry("value", name, index);
  const card = { name, index, axes: tensor.axes, kind: gradient ? "gradient" : isParameter ? "parameter" : "value", value, gradient: slope, later: "", isInFile: true,
    reason: slope !== null ? "" : found?.refused?.[0] ?? "This gradient is not in the file." };
  if (gradient) return { ...card, note: "How this gradient was computed is not in the file: `glassformer explore` shows it." };
  if (isParameter) return { ...card, note: "A parameter: training found it." };
  const all = await ask("formulas", { state: runState() }).catch((error) => error);
  const own = all.of?.[name];
  if (!own) return { ...card, note: all.message ?? "It has no formula." };
  const letters = Object.fromEntries(index.map((part, axis) => [`i${axis}`, part]));
  for (const one of own.cases) if (one.when === null || await place(one.when, letters, all)) return { ...card, ...own, ...(await filled(one, letters, all, value)) };
  return { ...card, ...own };
}

// An entry of a tensor, in float32 with the digits that it has; null where the file does not have it.
async function entry(what, name, index) {
  return numberOf(await cell(what, name, index));
}

function cell(what, name, index) {
  const [row, column] = [0, 0, ...index].slice(-2);
  return keptTile({ state: runState(), what, name, at: index.slice(0, -2), rows: [row, row + 1], columns: [column, column + 1] });
}

const numberOf = (found) => (found?.cells ? (found.facts.single ? Number(found.cells[0].toPrecision(7)) : found.cells[0]) : null);

// What a part of an index stands for: a number, a letter, or [sign, part, part].
async function place(part, letters, all) {
  if (!Array.isArray(part)) return letters[part] ?? part;
  const [sign, ...inside] = part;
  const name = sign === "value" ? inside.shift() : null;
  const parts = await Promise.all(inside.map((one) => place(one, letters, all)));
  if (name !== null) return entry("value", name, parts);
  return sign === "table" ? parts.slice(1).reduce((list, at) => list[at], all.tables[parts[0]]) : INDEX[sign](...parts);
}

async function linkOf({ at }, letters, all) {
  return at?.[0] === "value" ? { name: at[1], index: await Promise.all(at.slice(2).map((one) => place(one, letters, all))) } : null;
}

async function filled(one, letters, all, value) {
  const read = async (operand, own) => ({ value: operand.at ? await place(operand.at, own, all) : operand.value, link: await linkOf(operand, own, all) });
  const single = await Promise.all(one.operands.map((operand) => (operand.runs.length ? null : read(operand, letters))));
  const math = one.filled_math.replace(/<mn data-operand="(\w+)"><\/mn>/g, (_, number) => (number === "result" ? blank(value, false) : blank(single[number].value)));
  const isKnown = single.every((part) => part === null || part.value !== null);
  const own = { math: one.math, filled_math: isKnown && one.operands.length ? math : null, ...(isKnown ? {} : { note: MISSING }), source: one.source ? { forward: all.sources[one.source] } : null, inputs: single.filter((part) => part?.link).map((part) => part.link) };
  const [letter] = Object.keys(one.running);
  if (letter === undefined) return own;
  const several = one.operands.filter((operand) => operand.runs.length);
  const rows = [];
  for (let at = 0; at < one.running[letter]; at += 1) {
    const here = { ...letters, [letter]: at };
    if (one.counts !== null && !(await place(one.counts, here, all))) continue; // such as a key that the mask hides
    rows.push([at, ...(await Promise.all(several.map((operand) => read(operand, here))))]);
  }
  const known = rows.filter((row) => row.slice(1).some((cell) => cell.value !== null)).slice(0, SHOWN_ROWS);
  const isWhole = rows.every((row) => row.slice(1).every((cell) => cell.value !== null));
  const note = [known.length < rows.length ? `${known.length} of ${whole(rows.length)}.` : "", isWhole ? "" : MISSING].filter(Boolean).join(" ");
  return { ...own, numbers: { head: [letter, ...several.map((operand) => operand.text)], rows: known, note } };
}

function blank(number, isInside = true) {
  const text = number === null ? "–" : short(number, 4);
  return number < 0 && isInside ? `<mrow><mo>(</mo><mn>${text}</mn><mo>)</mo></mrow>` : `<mn>${text}</mn>`;
}
