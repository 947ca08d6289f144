// What walks ask of a run: single rows and numbers, always true ones.

import { short, visible } from "./dom.js";
import { ask, tile, work } from "./server.js";
import { runState } from "./state.js";

// The run that a walk is about, before any of its changes.
export const tourPlain = (more = {}) => runState({ changes: [], steps: [], of: { kind: "loss" }, ...more });

const ROW_PIECE = 1024; // numbers that a tile has along one side, at most

export async function tourRow(name, at, row, { what = "value", state = tourPlain() } = {}) {
  const piece = (columns) => tile({ state, what, name, at, rows: [row, row + 1], ...(columns ? { columns } : {}), height: 1, width: ROW_PIECE });
  const first = await piece(null);
  if (first.facts.step[1] === 1) return [...first.cells];
  const size = first.facts.columns[1];
  const starts = Array.from({ length: Math.ceil(size / ROW_PIECE) }, (_, n) => n * ROW_PIECE);
  return (await Promise.all(starts.map((start) => piece([start, Math.min(size, start + ROW_PIECE)])))).flatMap((found) => [...found.cells]);
}

export async function tourNumber(name, index, settings = {}) {
  const row = await tourRow(name, index.slice(0, -2), index.at(-2), settings);
  return row[index.at(-1)];
}

export const tourHas = (page, name) => page.run.values.some((value) => value.name === name);

export async function tourKind(kind = null) {
  const { kinds } = await ask("attention", { state: tourPlain() });
  return kind === null ? kinds.find((one) => one.kind === "decoder") ?? kinds[0] : kinds.find((one) => one.kind === kind);
}

// A head of one layer whose last query is neither sure nor torn, with what it has to choose from.
export async function tourHead(kind, layer, query) {
  const name = kind.layers[layer];
  const rows = await Promise.all(Array.from({ length: Math.min(kind.heads, 16) }, (_, head) => tourRow(`${name}.attend.weights`, [0, head], query)));
  const far = rows.map((row) => Math.abs(Math.max(...row) - 0.6));
  const head = far.indexOf(Math.min(...far));
  const [scores, mask] = await Promise.all(["scores", "mask"].map((part) => tourRow(`${name}.attend.${part}`, [0, head], query)));
  const allowed = mask.map((may, key) => (may ? key : -1)).filter((key) => key >= 0);
  return { name, layer, head, query, weights: rows[head], scores, allowed };
}

export const tourLargest = (numbers) => numbers.indexOf(Math.max(...numbers));

// The right one among a few, in their order: no hint by its place.
export function tourAmong(right, all, count = 4) {
  const others = all.filter((one) => one !== right);
  const step = Math.max(1, Math.floor(others.length / (count - 1)));
  const few = others.filter((_, n) => n % step === 0).slice(0, count - 1);
  return [...few, right].sort((a, b) => a - b);
}

export const tourQuoted = (word, position = null) => position === null ? `“${visible(word)}”` : `“${visible(word)}” (${position})`;

export const tourSum = (numbers) => numbers.reduce((sum, number) => sum + number, 0);

export const tourShort = (number) => short(number, 3);

// The number whose gradient a walk shows: the likeliest logit at the end, where there is one.
export const tourOf = ({ plain }) => plain.next?.length ? { kind: "logit", token: plain.next[0].id, position: -1 } : { kind: "loss" };

export const tourRun = (changes) => ask("run", { state: tourPlain({ changes }) });

export const tourWork = (word, question) => work(word, { state: tourPlain(), ...question }, null);

export const tourShare = (p) => `${(p * 100).toFixed(1)} %`;
