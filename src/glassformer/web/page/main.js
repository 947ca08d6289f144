// The page as a whole: what stands at the top, the tabs, the list of changes, and when the run is asked for again.

import { button, fill, make, short, tell } from "./dom.js";
import { ask } from "./server.js";
import { canRedo, canUndo, change, onState, readAddress, redo, runState, state, undo } from "./state.js";
import { closeCard, redrawCard } from "./card.js";
import { page } from "./page.js";
import { drawTour } from "./tours.js";
import { VIEWS } from "./views.js";

const $ = (id) => document.getElementById(id);
let offers = [];
let turn = 0;

async function start() {
  const found = await ask("models");
  offers = found.models;
  const told = readAddress(found.told);
  page.views = VIEWS;
  if (found.views) VIEWS.splice(0, VIEWS.length, ...VIEWS.filter((view) => found.views.includes(view.id) || view.id === "share"));
  if (!told && found.first) change({ model: found.first, text: found.prompt ?? "" }, { undoable: false });
  onState(refresh);
  page.redraw = drawView;
  page.reload = reload;
  addEventListener("keydown", shortcut);
  addEventListener("hashchange", goOn);
  if (!state().model && offers.length) change({ model: offers[0].key }, { undoable: false });
  else if (!state().model && !told) change({ view: "training" }, { undoable: false });
  else await refresh(state(), {});
}

// Go on to another address: its card is drawn with its run, or by itself where that is the same.
async function goOn() {
  const { shown } = page;
  readAddress();
  await refresh(state(), {});
  if (page.shown === shown) redrawCard();
}

// Ask for the models at hand again: one may have been trained meanwhile.
async function reload() {
  offers = (await ask("models")).models;
  drawTop();
}

// Ask for what has changed, then draw it: an answer that came too late is not shown.
async function refresh(now, before) {
  const mine = (turn += 1);
  drawTabs();
  try {
    if (now.model && now.model !== before.model) {
      page.info = await ask("open", { model: now.model });
      if (mine !== turn) return;
      if (!now.text && page.info.example) { change({ text: page.info.example }, { undoable: false }); return; }
    }
    if (now.model && (JSON.stringify(runState()) !== page.shown || !page.run)) {
      const asked = JSON.stringify(runState());
      const run = await ask("run", { state: runState() });
      if (mine !== turn) return;
      Object.assign(page, { run, shown: asked, hasChanges: now.changes.length + now.steps.length > 0 });
      redrawCard();
    }
  } catch (error) {
    if (mine !== turn) return;
    tell(error.message);
    drawTop();
    drawStrip();
    if (!page.run && shownView().alone) drawView();
    else if (!page.run) fill($("view"), make("div", { class: "stack" }, make("p", { class: "bad" }, error.message), emptyView()));
    return;
  }
  drawTop();
  drawStrip();
  drawView();
}

function shownView() {
  return VIEWS.find((view) => view.id === state().view) ?? VIEWS[0];
}

function drawView() {
  const own = shownView();
  const place = make("div", { class: "stack", "data-view": own.id });
  if (!page.run && !own.alone) fill(place, emptyView());
  else own.draw(place, page);
  fill($("view"), place);
  drawTour(page);
}

function emptyView() {
  return make("div", { class: "stack" }, make("p", {}, offers.length ? "Choose a model above, or train a small one." : "There is no model here yet: train a small one and look into it."),
    make("div", { class: "row" }, button("Train one", () => change({ view: "training" }, { undoable: false }), { class: "main" })));
}

// --- the top --------------------------------------------------------------------------------------------------------

function drawTop() {
  const now = state();
  if ($("top").contains(document.activeElement) && $("top").dataset.model === now.model) { fillTop(now); return; }
  $("top").dataset.model = now.model;
  const models = make("select", { id: "model", onchange: (event) => { closeCard(); change({ model: event.target.value, text: "", answer: null, changes: [], steps: [], of: { kind: "loss" } }); } },
    listed(now).map((offer) => make("option", { value: offer.key, selected: offer.key === now.model }, offer.title)));
  const text = page.info?.reads === false ? null : field("text", page.info?.architecture === "encoder-decoder" ? "Source" : "Text", now.text, (value) => value !== state().text && change({ text: value, answer: null }));
  const answer = page.info?.answers
    ? field("answer", "Answer (empty: its own)", now.answer ?? "", (value) => change({ answer: value === "" ? null : value })) : null;
  fill($("top"), make("h1", {}, "Glassformer"), make("label", {}, "Model", models), text, answer, target(now));
}

// The models at hand, and the one that is open where it is not among them: a step of a training, or none.
function listed(now) {
  if (offers.some((offer) => offer.key === now.model)) return offers;
  return [{ key: now.model, title: now.model ? (page.info?.title ?? now.model) : offers.length ? "choose one" : "none yet" }, ...offers];
}

function fillTop(now) {
  for (const [id, value] of [["text", now.text], ["answer", now.answer ?? ""]]) if ($(id) && $(id) !== document.activeElement) $(id).value = value;
  $("target")?.replaceWith(target(now));
}

function field(id, title, value, act) {
  const box = make("textarea", { id, rows: 1, spellcheck: false, autocomplete: "off" });
  box.value = value;
  box.addEventListener("change", () => act(box.value));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); act(box.value); }
  });
  return make("label", { class: "text" }, title, box);
}

// The number that runs back.
function target(now) {
  const of = page.run?.of;
  const choices = [];
  if (page.run?.loss !== null && page.run) choices.push(["loss", "the loss", { kind: "loss" }]);
  for (const one of page.run?.next ?? []) choices.push([`logit ${one.id}`, `logit of ${JSON.stringify(one.label)}`, { kind: "logit", token: one.id, position: -1 }]);
  const own = now.of.kind === "loss" && of?.kind !== "loss" ? `${of?.kind} ${of?.token}` : now.of.kind === "logit" ? `logit ${now.of.token}` : now.of.kind;
  if (!choices.some(([key]) => key === own) && of) choices.push([own, of.title, now.of]);
  const select = make("select", { onchange: (event) => change({ of: choices.find(([key]) => key === event.target.value)[2] }) },
    choices.map(([key, title]) => make("option", { value: key, selected: key === own }, title)));
  return make("label", { id: "target" }, of ? `Runs back: ${short(of.value, 5)}` : "Runs back", select);
}

function drawTabs() {
  fill($("views"), VIEWS.map((view) => button(view.title, () => change({ view: view.id }, { undoable: false }),
    { "aria-current": (VIEWS.some((one) => one.id === state().view) ? state().view : VIEWS[0].id) === view.id ? "page" : null, id: `tab-${view.id}` })));
}

// --- the list of changes --------------------------------------------------------------------------------------------

function drawStrip() {
  const { changes, steps } = state();
  if (!changes.length && !steps.length && !canRedo() && !canUndo()) { fill($("strip")); return; }
  const chips = changes.map((one, number) => chip(describe(one), page.run?.idle?.includes(number), () => change({ changes: changes.filter((_, n) => n !== number) })));
  const moves = steps.map((one, number) => chip(`one step of ${one.optimizer}, rate ${one.lr}`, false, () => change({ steps: steps.slice(0, number) })));
  fill($("strip"), changes.length + steps.length ? make("b", {}, "Changed:") : null, moves, chips,
    button("Undo", undo, { disabled: !canUndo() }), button("Redo", redo, { disabled: !canRedo() }),
    changes.length + steps.length ? button("Take all back", () => change({ changes: [], steps: [] })) : null);
}

function chip(text, idle, remove) {
  return make("span", { class: "token" }, text, idle ? make("span", { class: "bad" }, " (altered nothing)") : null, " ",
    button("×", remove, { class: "link", "aria-label": `Take back: ${text}` }));
}

export function describe(one) {
  const where = Object.entries(one.where ?? {}).map(([axis, number]) => `${axis} ${number}`).join(", ");
  const number = ["put", "scale", "add", "steer", "put_gradient", "scale_gradient"].includes(one.word) ? ` ${one.value}` : "";
  const other = one.other ? ` from ${JSON.stringify(one.other)}` : "";
  return `${one.word.replace("_", " ")}${number} ${one.name}${where ? ` (${where})` : ""}${other}`;
}

function shortcut(event) {
  if (/^(input|textarea|select)$/i.test(event.target.tagName)) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "z") { event.preventDefault(); (event.shiftKey ? redo : undo)(); }
  if (event.key === "Escape") closeCard();
  if (!event.ctrlKey && !event.metaKey && !event.altKey && /^[1-9]$/.test(event.key) && VIEWS[event.key - 1]) change({ view: VIEWS[event.key - 1].id }, { undoable: false });
}

start().catch((error) => fill($("view"), make("p", { class: "bad" }, error.message)));
