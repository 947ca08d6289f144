// Everything that can be switched off, as a grid: a row for each layer, its norms, sublayers and heads as switches.

import { fill, make, visible } from "./dom.js";
import { ask } from "./server.js";
import { runState } from "./state.js";
import { areMade, toggleChanges } from "./trials.js";
import { holdFocus } from "./steady.js";

const SWITCH_TITLES = { attention: "attention", cross_attention: "cross-attention", feed_forward: "feed-forward" };

export function switchGrid() {
  const place = make("div", { class: "stack" });
  place.ready = ask("switches", { state: runState({ changes: [] }) })
    .then((found) => fill(place, switchTable(found), switchRest(found), found.tokens.map(switchTokens)))
    .catch((error) => fill(place, make("p", { class: "bad" }, error.message)));
  return place;
}

function lever(text, off, title) {
  const isOff = areMade(off);
  const key = `switch ${title}`;
  const act = () => { holdFocus(key); toggleChanges(off); };
  return make("button", { type: "button", class: "lever", role: "switch", "aria-checked": String(!isOff), "aria-label": title, title: `${title}: ${isOff ? "off" : "on"}`, "data-key": key, onclick: act }, text);
}

function switchTable(found) {
  const there = new Set(found.rows.flatMap((row) => row.parts.map((part) => part.kind)));
  const kinds = Object.keys(SWITCH_TITLES).filter((kind) => there.has(kind));
  const head = make("tr", {}, make("th", { scope: "col" }, "layer"), kinds.flatMap((kind) => [
    make("th", { scope: "col" }, SWITCH_TITLES[kind]), kind === "feed_forward" ? null : make("th", { scope: "col" }, `its ${found.heads} heads`)]));
  const rows = found.rows.map((row) => {
    const called = found.rows.some((other) => other.stack !== row.stack) ? `${row.stack} ${row.layer}` : String(row.layer);
    return make("tr", {}, make("th", { scope: "row" }, called), kinds.flatMap((kind) => switchCells(row.parts.find((part) => part.kind === kind), kind, called)));
  });
  return make("div", { class: "scroll high", tabindex: "0", role: "group", "aria-label": "Switches of the layers" }, make("table", { class: "levers" }, make("thead", {}, head), make("tbody", {}, rows)));
}

function switchCells(part, kind, called) {
  if (!part) return [make("td"), kind === "feed_forward" ? null : make("td")];
  const title = `${SWITCH_TITLES[kind]} of layer ${called}`;
  const all = make("td", {}, make("div", { class: "leverRow" }, lever("all", part.off, title), part.norm ? lever("norm", part.norm, `norm of ${title}`) : null));
  if (kind === "feed_forward") return [all];
  return [all, make("td", {}, make("div", { class: "leverRow" }, part.heads.map((off, head) => lever(String(head), off, `head ${head} of ${title}`))))];
}

function switchRest(found) {
  if (!found.rest.length) return null;
  return make("div", { class: "row" }, found.rest.map((one) => lever(one.title, one.off, one.title)));
}

function switchTokens(part) {
  const name = part.part === "source" ? "Vectors of the source" : "Vectors of the tokens";
  return make("div", {}, make("h3", {}, name), make("div", { class: "tokens", role: "group", "aria-label": name },
    part.tokens.map((token, position) => lever(visible(token.label), token.off, `${part.part} ${position}, ${token.label}`))));
}
