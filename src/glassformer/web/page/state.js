// What the page shows, as data. It is kept in the address: an address opens the same picture again.

/** @type {PageState} */
const START = {
  model: "",
  text: "",
  answer: null,
  changes: [],
  of: { kind: "loss" },
  steps: [],
  view: "scene",
  look: {},
};
const OF_THE_RUN = ["model", "text", "answer", "changes", "of", "steps"];

/** @type {PageState} */
let now = structuredClone(START);
let shown = null; // what the run on the page was made of
const past = [];
const future = [];
const listeners = new Set();

/** The page as it is. */
export function state() {
  return now;
}

// What the server needs to know of the state: the view and what is open in it are the page's own.
/** @param {Partial<RunState>} changed @returns {RunState} */
export function wantedRun(changed = {}) {
  const all = { ...now, ...changed };
  return /** @type {any} */ (Object.fromEntries(OF_THE_RUN.map((name) => [name, all[name]])));
}

// The same of the run on the page, which may still be the one before: views ask about what they show.
/** @param {Partial<RunState>?} changed @returns {RunState} */
export function runState(changed = null) {
  const run = shown ?? wantedRun();
  return changed ? { ...run, ...changed } : run;
}

export function showRun(run) {
  shown = run;
}

// Change parts of the state; what concerns the run can be undone. The browser's Back returns to the state
// before, unless `push` is false.
/** @param {Partial<PageState>} parts */
export function change(parts, { undoable = true, push = true } = {}) {
  const before = now;
  if (Object.entries(parts).every(([name, part]) => JSON.stringify(now[name]) === JSON.stringify(part)))
    return;
  now = { ...now, ...parts };
  if (undoable && OF_THE_RUN.some((name) => JSON.stringify(before[name]) !== JSON.stringify(now[name]))) {
    past.push(before);
    future.length = 0;
  }
  publish(before, push);
}

// Return to the state before a change that the server refused, without telling the listeners.
export function takeBack(before) {
  if (past.at(-1) === before) past.pop();
  now = { ...before, view: now.view, look: now.look };
  keepAddress(false);
}

// What a view remembers for itself: look("attention", {layer: 2}); look("attention") reads it.
/** @param {string} view @param {Record<string, any>} [parts] @returns {Record<string, any>} */
export function look(view, parts = undefined) {
  if (parts !== undefined) {
    now = { ...now, look: { ...now.look, [view]: { ...now.look[view], ...parts } } };
    keepAddress(false);
  }
  return now.look[view] ?? {};
}

export const undo = () => move(past, future);
export const redo = () => move(future, past);
export const canUndo = () => past.length > 0;
export const canRedo = () => future.length > 0;

function move(from, to) {
  if (!from.length) return;
  const before = now;
  to.push(now);
  const next = from.pop();
  now = { ...next, view: now.view, look: now.look };
  publish(before, true);
}

export function onState(act) {
  listeners.add(act);
}

function publish(before, push) {
  keepAddress(push);
  for (const act of listeners) act(now, before);
}

function keepAddress(push) {
  const told = Object.fromEntries(
    Object.entries(now).filter(([name, part]) => JSON.stringify(part) !== JSON.stringify(START[name])),
  );
  const address = `#${encodeURIComponent(JSON.stringify(told))}`;
  try {
    if (push && address !== location.hash) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  } catch {
    // A page inside a notebook has no address of its own.
  }
}

const isObject = (part) => part !== null && typeof part === "object" && !Array.isArray(part);
const isList = (part, fits) => Array.isArray(part) && part.every((one) => isObject(one) && fits(one));
const FITS = {
  model: (part) => typeof part === "string",
  text: (part) => typeof part === "string",
  view: (part) => typeof part === "string",
  answer: (part) => part === null || typeof part === "string",
  of: (part) => isObject(part) && typeof part.kind === "string",
  changes: (part) =>
    isList(
      part,
      (one) => typeof one.word === "string" && typeof one.name === "string" && isObject(one.where ?? {}),
    ),
  steps: (part) => isList(part, (one) => typeof one.optimizer === "string"),
  look: (part) => isObject(part) && Object.values(part).every(isObject),
};

// Read the state from the address; without a model there, what it lacks is taken from `otherwise`. Returns
// false for a malformed one.
export function readAddress(otherwise = {}) {
  now = { ...structuredClone(START), ...otherwise };
  if (location.hash.length < 2) return true;
  try {
    const told = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    if (!isObject(told) || !Object.entries(told).every(([name, part]) => name in FITS && FITS[name](part)))
      return false;
    now = { ...(told.model ? structuredClone(START) : now), ...told };
    return true;
  } catch {
    return false;
  }
}
