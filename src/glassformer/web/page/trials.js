// Changes of the run: tried on the server first, so that one that cannot be made never enters the list.

import { short, spoken, tell } from "./dom.js";
import { page } from "./page.js";
import { ask } from "./server.js";
import { change, state, wantedRun } from "./state.js";

function changeKey(one) {
  const where = Object.entries(one.where ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([one.word, one.name, where, one.value ?? 0, one.other ?? ""]);
}

// Add changes, in the place of others if these are given; returns whether they could be made.
export async function tryChanges(list, { without = [], also = {} } = {}) {
  const drop = new Set(without.map(changeKey));
  const next = () => [...state().changes.filter((one) => !drop.has(changeKey(one))), ...list];
  try {
    await ask("run", { state: wantedRun({ changes: next(), ...also }) });
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

const PARTS = { attention: "attention", cross_attention: "cross-attention", feed_forward: "feed-forward" };
const KINDS = {
  scale: (name, value) => `with ${name} times ${value}`,
  add: (name, value) => `with ${value} added to ${name}`,
  steer: (name, value, other) => `with ${name} moved by ${value} toward ${other}`,
  take: (name, value, other) => `with ${name} from ${other}`,
  mean: (name, value, other) => `with the mean of ${name} over ${other}`,
  freeze: (name) => `with ${name} as it was without the other changes`,
  stop: (name) => `without the gradient through ${name}`,
  put_gradient: (name, value) => `with the gradient ${value} at ${name}`,
  scale_gradient: (name, value) => `with the gradient of ${name} times ${value}`,
  zero: (name) => `without ${name}`,
  put: (name, value) => `with ${name} = ${value}`,
};

// A change as the beginning of a sentence: “without head 1 of block 0”, “with “j” in the place of “f” at 4”.
export function changeInWords(one) {
  const { position: at, key, head } = one.where ?? {};
  const [was, is] = [page.run?.[`${one.name}_before`]?.[at], page.run?.[one.name]?.[at]];
  if (one.word === "put" && was && is)
    return `with “${spoken(is.label, was.label)}” in the place of “${spoken(was.label, is.label)}” at ${at}`;
  const inside =
    /^(?:(encoder|decoder)\.)?blocks\.(\d+)\.(attention|cross_attention|feed_forward)(?:\.(.+))?$/.exec(
      one.name,
    );
  const place = inside ? `block ${inside[2]}${inside[1] ? ` of the ${inside[1]}` : ""}` : "";
  const ofHead = `${inside?.[3] === "cross_attention" ? "cross-attention " : ""}head ${head}`;
  if (inside?.[4] === "attend.mask" && key !== undefined)
    return (
      `with “${wordAt(one, at, false)}” ${one.value ? "allowed" : "not allowed"} to look at ` +
      `“${wordAt(one, key, true)}” in ${ofHead} of ${place}`
    );
  if (inside?.[4] === "attend.weights" && key !== undefined && one.word === "put")
    return (
      `with weight ${one.value} from “${wordAt(one, at, false)}” (${at}) to “${wordAt(one, key, true)}” ` +
      `(${key}) in ${ofHead} of ${place}`
    );
  if (inside?.[4] === "attend.weights" && at !== undefined && one.word === "scale")
    return (
      `with the attention of “${wordAt(one, at, false)}” (${at}) times ${short(one.value)} in ${ofHead} of ` +
      `${place}`
    );
  if (one.word === "zero" && /^(source_)?embedding$/.test(one.name) && at !== undefined)
    return `without the vector of “${wordAt(one, at, false)}” at ${at}`;
  const neuron = inside?.[4] === "down.x" && one.where?.feature !== undefined;
  const named =
    inside && !inside[4]
      ? `the ${PARTS[inside[3]]} of ${place}`
      : inside?.[4] === "output.x" && head !== undefined
        ? `${ofHead} of ${place}`
        : neuron
          ? `neuron ${one.where.feature} of ${place}`
          : one.name;
  const told = Object.entries(one.where ?? {}).filter(
    ([axis]) =>
      axis !== "example" && !(axis === "head" && named !== one.name) && !(neuron && axis === "feature"),
  );
  const where = told.map(([axis, number]) => `${axis} ${number}`).join(", ");
  return KINDS[one.word](where ? `${named} (${where})` : named, one.value, JSON.stringify(one.other ?? ""));
}

function wordAt({ name }, position, isKey) {
  const part =
    /^(encoder\.|source)/.test(name) || (isKey && name.includes("cross_attention")) ? "source" : "tokens";
  return spoken((page.run?.[part] ?? page.run?.tokens)?.[position]?.label ?? String(position));
}

// All changes, as the beginning of a sentence.
export function changesInWords(list) {
  const targets = list.filter((one) => one.name !== "targets");
  const [first] = targets.length ? targets : list;
  const rest = targets.filter((one) => one.word !== "scale" || !one.name.endsWith("attend.weights"));
  const [norm] = new Set(targets.map((one) => /^(.+norm)\.(?:mean|rstd|rrms)$/.exec(one.name)?.[1]));
  const isNorm = norm && targets.every((one) => one.word === "put" && one.name.startsWith(`${norm}.`));
  const text = isNorm
    ? `without ${norm}`
    : rest.length === 1
      ? changeInWords(rest[0])
      : targets.length > 1
        ? `with these ${targets.length} changes`
        : changeInWords(first);
  return text[0].toUpperCase() + text.slice(1);
}
