// The page as a whole: what stands at the top, the tabs, the list of changes, and when the run is asked for again.

import { button, fill, make, short, tell, visible } from "./dom.js";
import { live } from "./kept.js";
import { onTheme } from "./color.js";
import { ask } from "./server.js";
import { canRedo, canUndo, change, onState, readAddress, redo, showRun, state, takeBack, undo, wantedRun } from "./state.js";
import { closeCard, redrawCard } from "./card.js";
import { page } from "./page.js";
import { drawBackward } from "./backward.js";
import { drawChange } from "./change_view.js";
import { drawLens } from "./lens.js";
import { drawScene } from "./scene.js";
import { drawSteps } from "./scene_steps.js";
import { drawShare } from "./share.js";
import { drawTraining } from "./training.js";
import { drawWriting } from "./writing.js";
import { drawGuide, guideButton, leaveGuide } from "./guide.js";
import { changeInWords } from "./trials.js";

// What draws each view that Python declares in views.py.
const DRAW = {
  scene: drawScene, lens: drawLens, change: drawChange, backward: drawBackward, training: drawTraining,
  writing: drawWriting, share: drawShare,
};
const views = []; // the records of those that the server or the file has
const $ = (id) => document.getElementById(id);
const BAD_ADDRESS = "This address could not be read: it may have been cut short. The page starts from the beginning.";
let offers = [];
let turn = 0;
let running = null; // the latest refresh

async function start() {
  const found = await ask("models");
  offers = found.models;
  Object.assign(page, { views, whats: found.whats });
  views.push(...found.views);
  const unknown = views.filter((view) => !(view.id in DRAW)).map((view) => view.id);
  if (unknown.length) throw new Error(`Nothing draws the views ${unknown.join(", ")}`);
  const first = { model: found.first ?? offers[0]?.key ?? "", text: found.prompt ?? "", view: found.first || offers.length ? "scene" : "training" };
  const isRead = readAddress({ ...first, ...found.told });
  onState((now, before) => { running = refresh(now, before); });
  page.redraw = drawView;
  page.reload = reload;
  addEventListener("keydown", shortcut);
  onTheme(() => { if (["backward", "change"].includes(state().view)) drawView(); }); // other colors are in canvases
  addEventListener("hashchange", goOn);
  await refresh(state(), {});
  if (!isRead) tell(BAD_ADDRESS);
}

// Go on to another address, such as the one before: its card is drawn with its run, or alone where the run is the same.
async function goOn() {
  const { shown } = page;
  const isRead = readAddress({ model: page.opened ?? "", text: page.info?.example ?? "" });
  fillTop(state(), true);
  await refresh(state(), {});
  if (page.shown === shown) redrawCard();
  if (!isRead) tell(BAD_ADDRESS);
}

// Ask for the models at hand again: one may have been trained meanwhile.
async function reload() {
  offers = (await ask("models")).models;
  drawTop();
}

// Ask for what has changed, then draw it: an answer that came too late is not shown.
async function refresh(now, before) {
  const mine = (turn += 1);
  const told = $("status").firstChild; // an older message goes when this is drawn
  drawTabs();
  try {
    const info = now.model ? await ask("open", { model: now.model }) : null;
    if (mine !== turn) return;
    if (info?.example && !now.text && now.model !== page.opened) {
      Object.assign(page, { opened: now.model, info });
      change({ text: info.example }, { undoable: false, push: false });
      await running;
      return;
    }
    const wanted = wantedRun();
    const asked = JSON.stringify(wanted);
    if (info && (asked !== page.shown || !page.run)) {
      const run = await ask("run", { state: wanted });
      if (mine !== turn) return;
      showRun(wanted);
      Object.assign(page, { info, run, opened: now.model, shown: asked, hasChanges: now.changes.length + now.steps.length > 0 });
      redrawCard();
    } else if (!info) { showRun(null); Object.assign(page, { info, run: null, shown: null }); }
  } catch (error) {
    told?.remove();
    if (mine === turn) refused(error, now, before);
    return;
  }
  told?.remove();
  drawAll();
}

function drawAll() {
  drawTop();
  drawStrip();
  drawView();
}

// What the server refuses is taken back: the page keeps showing the run before, and says what was wrong, at its field if it has one.
function refused(error, now, before) {
  const was = before.model === undefined ? null : JSON.stringify(Object.fromEntries(Object.keys(wantedRun()).map((name) => [name, before[name]])));
  if (!page.run || was !== page.shown) {
    Object.assign(page, { run: null, shown: null, trouble: error.message });
    showRun(null);
    closeCard();
    drawAll();
    return;
  }
  takeBack(before);
  drawAll();
  const field = ["text", "answer"].find((name) => now[name] !== before[name] && $(name) && now.model === before.model);
  if (field) sayWrong(field, now[field] ?? "", error.message);
  else tell(error.message);
}

function sayWrong(field, typed, message) {
  const box = $(field);
  box.value = box.dataset.refused = typed;
  box.setAttribute("aria-invalid", "true");
  box.setAttribute("aria-describedby", `${field}-wrong`);
  box.after(make("span", { class: "bad wrong", id: `${field}-wrong`, role: "alert" }, message));
}

function clearWrong(field) {
  $(`${field}-wrong`)?.remove();
  for (const name of ["aria-invalid", "data-refused"]) $(field)?.removeAttribute(name);
}

function drawView() {
  const own = views.find((view) => view.id === state().view);
  const place = make("div", { class: "stack", "data-view": own?.id ?? "none" });
  try {
    if (!own) fill(place, noSuchView());
    else if (!page.run && own.needsRun) fill(place, emptyView());
    else DRAW[own.id](place, page);
  } catch (error) { // such as what an address says about a view that it cannot show
    fill(place, make("p", { class: "bad" }, `This view cannot be drawn as the address wants it: ${error.message}.`),
      button("Show it from the beginning", () => change({ look: {} }, { undoable: false })));
  }
  fill($("view"), place);
  drawSteps(own?.id === "scene").catch((error) => tell(error.message));
  drawGuide(page);
}

// An address, or a program that wrote this file, may name a view of another version.
function noSuchView() {
  const shown = views.map((view) => view.title).join(", ");
  return make("div", { class: "stack" }, make("p", { class: "bad" }, `This page has no view “${state().view}”. It has: ${shown}.`),
    button(`Open “${views[0].title}”`, () => change({ view: views[0].id }, { undoable: false }), { class: "main" }));
}

function emptyView() {
  const said = state().model ? page.trouble : offers.length ? "Choose a model above, or train a small one." : "There is no model here yet: train a small one and look into it.";
  return make("div", { class: "stack" }, make("p", { class: state().model ? "bad" : null }, said ?? "…"),
    make("div", { class: "row" }, state().model && page.info?.example ? button("Read an example instead", () => change({ text: page.info.example, answer: null, changes: [], steps: [], of: { kind: "loss" } }), { class: "main" }) : null,
      button("Train a small model", () => change({ view: "training" }, { undoable: false }), { class: state().model ? null : "main" })));
}

// --- the top --------------------------------------------------------------------------------------------------------

function drawTop() {
  const now = state();
  for (const field of ["text", "answer"]) clearWrong(field);
  if ($("top").contains(document.activeElement) && $("top").dataset.model === now.model) { fillTop(now); return; }
  $("top").dataset.model = now.model;
  const models = make("select", { id: "model", onchange: (event) => { closeCard(); change({ model: event.target.value, text: "", answer: null, changes: [], steps: [], of: { kind: "loss" } }); } },
    listed(now).map((offer) => make("option", { value: offer.key, selected: offer.key === now.model }, offer.title)));
  const text = page.info?.reads === false ? null : field("text", page.info?.architecture === "encoder-decoder" ? "Source" : "Text", now.text, (value) => change({ text: value, answer: null }));
  const answer = page.info?.answers
    ? field("answer", "Answer", now.answer ?? "", (value) => change({ answer: value === "" ? null : value }), "the model's own") : null;
  fill($("top"), make("h1", {}, "Glassformer"), make("label", {}, "Model", models), text, answer, target(now));
}

// The models at hand, and the one that is open where it is not among them: a step of a training, or none.
function listed(now) {
  if (offers.some((offer) => offer.key === now.model)) return offers;
  return [{ key: now.model, title: now.model ? (page.info?.title ?? now.model) : offers.length ? "choose one" : "none yet" }, ...offers];
}

// A field with the focus keeps what is being typed, unless the page goes to another address.
function fillTop(now, all = false) {
  for (const id of ["text", "answer"]) if ($(id) && (all || $(id) !== document.activeElement)) $(id).value = now[id] ?? "";
  $("target")?.replaceWith(target(now));
}

function field(id, title, value, act, placeholder = null) {
  const onkeydown = (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); submit(); } };
  const box = make("textarea", { id, rows: 1, placeholder, spellcheck: false, autocomplete: "off", ...live, value, onkeydown, onchange: () => submit() });
  const submit = () => {
    if (box.dataset.refused === box.value) return; // it stays as it is until it is edited
    clearWrong(id);
    if (box.value !== (state()[id] ?? "")) act(box.value);
  };
  return make("label", { class: "text" }, title, box);
}

// The number whose gradient is shown.
function target(now) {
  const of = page.run?.of;
  const choices = [];
  if (page.run?.loss !== null && page.run) choices.push(["loss", "the loss", { kind: "loss" }]);
  for (const one of page.run?.next ?? []) choices.push([`logit ${one.id}`, `the logit of “${visible(one.label)}”`, { kind: "logit", token: one.id, position: -1 }]);
  const own = now.of.kind === "loss" && of?.kind !== "loss" ? `${of?.kind} ${of?.token}` : now.of.kind === "logit" ? `logit ${now.of.token}` : now.of.kind;
  if (!choices.some(([key]) => key === own) && of) choices.push([own, of.title, now.of]);
  const select = make("select", { ...live, onchange: (event) => change({ of: choices.find(([key]) => key === event.target.value)[2] }) },
    choices.map(([key, title]) => make("option", { value: key, selected: key === own }, key === own ? `${title} = ${short(of?.value, 5)}` : title)));
  return make("label", { id: "target" }, "Gradient of", select);
}

// Tabs are made once, so that the one with the focus keeps it. Experiments are several views: theirs stand in a second row.
function drawTabs() {
  const shown = state().view;
  const isExperiment = views.some((view) => view.id === shown && view.group === "experiments");
  const go = (id) => change({ view: id }, { undoable: false });
  const tab = (view) => button(view.title, () => go(view.id), { id: `tab-${view.id}` });
  if (!$("views").children.length) {
    const inGroup = (group) => views.filter((view) => view.group === group);
    const own = inGroup("experiments");
    const places = inGroup("").map(tab);
    if (own.length) places.splice(1, 0, button("Experiments", () => go(own[0].id), { id: "tab-experiments" }));
    fill($("views"), places, make("span", { class: "grow" }), guideButton(), inGroup("beside").map(tab));
    fill($("experiments"), own.map(tab));
  }
  $("experiments").hidden = !isExperiment;
  for (const one of document.querySelectorAll("#views button, #experiments button")) {
    if (one.id === `tab-${shown}` || (isExperiment && one.id === "tab-experiments")) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

// --- the list of changes --------------------------------------------------------------------------------------------

function drawStrip() {
  const { changes, steps } = state();
  if (!changes.length && !steps.length && !canRedo() && !canUndo()) { fill($("strip")); return; }
  const chips = changes.map((one, number) => chip(changeInWords(one), page.run?.idle?.includes(number), () => change({ changes: changes.filter((_, n) => n !== number) })));
  const moves = steps.map((one, number) => chip(`one step of ${one.optimizer}, rate ${one.lr}`, false, () => change({ steps: steps.slice(0, number) })));
  fill($("strip"), changes.length + steps.length ? make("b", {}, "Changed:") : null, moves, chips,
    button("Undo", undo, { disabled: !canUndo() }), button("Redo", redo, { disabled: !canRedo() }),
    changes.length + steps.length ? button("Take all back", () => change({ changes: [], steps: [] }), live) : null);
}

function chip(text, idle, remove) {
  return make("span", { class: "token" }, text, idle ? make("span", { class: "bad" }, " (altered nothing)") : null, " ",
    button("×", remove, { class: "link", "aria-label": `Take back: ${text}`, ...live }));
}

function shortcut(event) {
  if (/^(input|textarea|select)$/i.test(event.target.tagName)) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "z") { event.preventDefault(); (event.shiftKey ? redo : undo)(); }
  if (event.key === "Escape" && !closeCard()) leaveGuide();
  if (!event.ctrlKey && !event.metaKey && !event.altKey && /^[1-9]$/.test(event.key) && views[event.key - 1]) change({ view: views[event.key - 1].id }, { undoable: false });
}

start().catch((error) => fill($("view"), make("p", { class: "bad" }, error.message)));
