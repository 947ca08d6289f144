// The card of a number in a file: its value and its gradient, and the formula of the value with its letters.

import { keptTile } from "./kept.js";
import { page } from "./page.js";
import { ask } from "./server.js";
import { runState } from "./state.js";

const MISSING =
  "This file keeps this tensor more coarsely: the number is not in it. `glassformer explore` shows it.";

export async function cardFromFile({ name, index, gradient = false }) {
  const tensor = [...page.run.values, ...page.run.parameters].find((one) => one.name === name);
  const isParameter = page.run.parameters.includes(tensor);
  const found = await cell("gradient", name, index);
  const slope = numberOf(found);
  const value = gradient ? slope : numberOf(await cell("value", name, index));
  const card = {
    name,
    index,
    axes: tensor.axes,
    kind: gradient ? "gradient" : isParameter ? "parameter" : "value",
    value,
    gradient: slope,
    later: "",
    isInFile: true,
    reason: slope !== null ? "" : (found?.refused?.[0] ?? "This gradient is not in the file."),
  };
  if (gradient)
    return {
      ...card,
      note: "How this gradient was computed is not in the file: `glassformer explore` shows it.",
    };
  if (isParameter) return { ...card, note: "A parameter: training found it." };
  const all = await ask("formulas", { state: runState() }).catch((error) => error);
  const own = all.of?.[name];
  if (!own) return { ...card, note: all.message ?? "It has no formula." };
  return {
    ...card,
    ...own,
    note: value === null ? MISSING : own.note,
    source: own.source ? { forward: all.sources[own.source] } : null,
  };
}

// An entry of a tensor, in float32 with the digits that it has; null where the file does not have it.
const numberOf = (found) =>
  found?.cells ? (found.facts.single ? Number(found.cells[0].toPrecision(7)) : found.cells[0]) : null;

function cell(what, name, index) {
  const [row, column] = [0, 0, ...index].slice(-2);
  return keptTile({
    state: runState(),
    what,
    name,
    at: index.slice(0, -2),
    rows: [row, row + 1],
    columns: [column, column + 1],
  });
}
