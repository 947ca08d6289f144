// What the page shows, as data. It is kept in the address: an address opens the same picture again.

const START = { model: "", text: "", answer: null, changes: [], of: { kind: "loss" }, steps: [], view: "map", look: {} };
const OF_THE_RUN = ["model", "text", "answer", "changes", "of", "steps"];

let now = structuredClone(START);
const past = [];
const future = [];
const listeners = new Set();

export function state() {
  return now;
}

// What the server needs to know: the view and what is open in it are the page's own.
export function runState(changed = {}) {
  const all = { ...now, ...changed };
  return Object.fromEntries(OF_THE_RUN.map((name) => [name, all[name]]));
}

export function runStateBefore() {
  return runState({ changes: [] });
}

// Change parts of the state; what concerns the run can be undone.
export function change(parts, { undoable = true } = {}) {
  const before = now;
  if (Object.entries(parts).every(([name, part]) => JSON.stringify(now[name]) === JSON.stringify(part))) return;
  now = { ...now, ...parts };
  if (undoable && OF_THE_RUN.some((name) => JSON.stringify(before[name]) !== JSON.stringify(now[name]))) {
    past.push(before);
    future.length = 0;
  }
  publish(before);
}

// What a view remembers for itself: look("attention", {layer: 2}); look("attention") reads it.
export function look(view, parts = undefined) {
  if (parts !== undefined) {
    now = { ...now, look: { ...now.look, [view]: { ...now.look[view], ...parts } } };
    keepAddress();
  }
  return now.look[view] ?? {};
}

export function undo() {
  move(past, future);
}

export function redo() {
  move(future, past);
}

export function canUndo() {
  return past.length > 0;
}

export function canRedo() {
  return future.length > 0;
}

function move(from, to) {
  if (!from.length) return;
  const before = now;
  to.push(now);
  const next = from.pop();
  now = { ...next, view: now.view, look: now.look };
  publish(before);
}

export function onState(act) {
  listeners.add(act);
}

function publish(before) {
  keepAddress();
  for (const act of listeners) act(now, before);
}

function keepAddress() {
  const told = Object.fromEntries(Object.entries(now).filter(([name, part]) => JSON.stringify(part) !== JSON.stringify(START[name])));
  try {
    history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(told))}`);
  } catch {
    // A page inside a notebook has no address of its own.
  }
}

// `otherwise` is what holds where the address says nothing.
export function readAddress(otherwise = {}) {
  try {
    const told = location.hash.length > 1 ? JSON.parse(decodeURIComponent(location.hash.slice(1))) : otherwise;
    const known = Object.entries(told).filter(([name]) => name in START);
    now = { ...structuredClone(START), ...Object.fromEntries(known) };
    return known.length > 0;
  } catch {
    now = structuredClone(START);
    return false;
  }
}
