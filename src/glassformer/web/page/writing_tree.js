// What was written behind each text: a tree of tokens, and the question that stands at one of them.

import { chatMessages, chatOn } from "./chat.js";
import { look, runState } from "./state.js";

export const SETTINGS = {
  temperature: { title: "temperature", usual: 0.8, min: "0", max: "10", step: "0.1" },
  top_k: { title: "top-k (empty: all)", usual: null, min: "1", step: "1" },
  top_p: { title: "top-p", usual: 1, min: "0.01", max: "1", step: "0.01" },
  min_p: { title: "min-p", usual: 0, min: "0", max: "1", step: "0.01" },
  seed: { title: "seed", usual: 0, min: "0", step: "1" },
};
const roots = new Map(); // what was written behind each text: a tree, {id, label, ends, parent, children}
export const writing = { key: null, node: null, found: null, parts: null, stop: null, turn: 0 };

export function writingQuestion(ids = writingPath().map((node) => node.id)) {
  const set = Object.fromEntries(
    Object.entries(SETTINGS)
      .map(([name, one]) => [name, look("writing")[name] ?? one.usual])
      .filter(([, value]) => value !== null),
  );
  return { state: runState(), written: ids, ...set, ...(chatOn() ? { chat: chatMessages() } : {}) };
}

export function writingKey() {
  return JSON.stringify([runState(), chatOn() ? chatMessages() : null]);
}

export function writingRoot() {
  const key = writingKey();
  if (!roots.has(key)) roots.set(key, { id: null, label: "", parent: null, children: [] });
  return roots.get(key);
}

export function writingPath(node = writing.node) {
  const path = [];
  for (let one = node; one?.parent; one = one.parent) path.unshift(one);
  return path;
}

export function writingAdd(parent, token) {
  const known = parent.children.find((child) => child.id === token.id);
  if (known) return known;
  const made = { id: token.id, label: token.label, ends: token.ends, parent, children: [] };
  parent.children.push(made);
  return made;
}
