// Changes of the run: tried on the server first, so that one that cannot be made never enters the list.

import { tell, visible } from "./dom.js";
import { page } from "./page.js";
import { ask } from "./server.js";
import { change, runState, state } from "./state.js";

function changeKey(one) {
  const where = Object.entries(one.where ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([one.word, one.name, where, one.value ?? 0, one.other ?? ""]);
}

// Add changes, in the place of others if these are given; returns whether they could be made.
export async function tryChanges(list, { without = [], also = {} } = {}) {
  const drop = new Set(without.map(changeKey));
  const next = () => [...state().changes.filter((one) => !drop.has(changeKey(one))), ...list];
  try {
    await ask("run", { state: runState({ changes: next(), ...also }) });
  } catch (error) {
    tell(error.message);
    return false;
  }
  change({ changes: next(), ...also });
  return true;
}

export function areMade(list) {
  const made = new Set(state().changes.map(changeKey));
  return list.every((one) => made.has(changeKey(one)));
}

// What is off goes on, and the other way round.
export function toggleChanges(list) {
  if (areMade(list)) return tryChanges([], { without: list });
  const made = new Set(state().changes.map(changeKey));
  return tryChanges(list.filter((one) => !made.has(changeKey(one))));
}

export function oneChange(word, name, where = {}, value = 0, other = "") {
  return { word, name, where, value, other };
}

const SWITCHED = /^(?:(encoder|decoder)\.)?blocks\.(\d+)\.(attention|cross_attention|feed_forward)(\.output\.x)?$/;

// A change in words: a token as “f” → “j” at 4, a head as block 0, attention, head 1: off.
export function changeInWords(one) {
  const at = one.where?.position;
  const [was, is] = [page.run?.[`${one.name}_before`]?.[at], page.run?.[one.name]?.[at]];
  if (one.word === "put" && was && is) return `“${visible(was.label)}” → “${visible(is.label)}” at ${at}`;
  const where = Object.entries(one.where ?? {}).map(([axis, number]) => `${axis} ${number}`).join(", ");
  const part = one.word === "zero" && SWITCHED.exec(one.name);
  if (part && (part[4] ? where.startsWith("head") : !where)) return `${part[1] ? `${part[1]} ` : ""}block ${part[2]}, ${part[3].replace("_", "-")}${where ? `, ${where}` : ""}: off`;
  const number = ["put", "scale", "add", "steer", "put_gradient", "scale_gradient"].includes(one.word) ? ` ${one.value}` : "";
  const other = one.other ? ` from ${JSON.stringify(one.other)}` : "";
  return `${one.word.replace("_", " ")}${number} ${one.name}${where ? ` (${where})` : ""}${other}`;
}
