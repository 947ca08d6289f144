// The page as a whole: what stands at the top, the tabs, the list of changes, and when the run is asked for
// again.

import { button, fill, make, tell } from "./dom.js";
import { onTheme } from "./color.js";
import { ask } from "./server.js";
import { change, onState, readAddress, redo, showRun, state, takeBack, undo, wantedRun } from "./state.js";
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
import { drawStrip, drawTop, fillTop, sayWrong } from "./top.js";

// What draws each view that Python declares in views.py.
export const DRAW = {
  scene: drawScene,
  lens: drawLens,
  change: drawChange,
  backward: drawBackward,
  training: drawTraining,
  writing: drawWriting,
  share: drawShare,
};
/** @type {View[]} */
const views = []; // the records of those that the server or the file has
const $ = (id) => document.getElementById(id);
const BAD_ADDRESS =
  "This address could not be read: it may have been cut short. The page starts from the beginning.";
let turn = 0;
let running = null; // the latest refresh

async function start() {
  const found = await ask("models");
  page.offers = found.models;
  Object.assign(page, { views, whats: found.whats });
  views.push(...found.views);
  const unknown = views.filter((view) => !(view.id in DRAW)).map((view) => view.id);
  if (unknown.length) throw new Error(`Nothing draws the views ${unknown.join(", ")}`);
  const first = {
    model: found.first ?? page.offers[0]?.key ?? "",
    text: found.prompt ?? "",
    view: found.first || page.offers.length ? "scene" : "training",
  };
  const isRead = readAddress({ ...first, ...found.told });
  onState((now, before) => {
    running = refresh(now, before);
  });
  page.redraw = drawView;
  page.reload = reload;
  addEventListener("keydown", shortcut);
  onTheme(() => {
    if (["backward", "change"].includes(state().view)) drawView();
  }); // other colors are in canvases
  addEventListener("hashchange", goOn);
  await refresh(state(), {});
  if (!isRead) tell(BAD_ADDRESS);
}

// Go on to another address, such as the one before: its card is drawn with its run, or alone where the run is
// the same.
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
  page.offers = (await ask("models")).models;
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
      Object.assign(page, {
        info,
        run,
        opened: now.model,
        shown: asked,
        hasChanges: now.changes.length + now.steps.length > 0,
      });
      redrawCard();
    } else if (!info) {
      showRun(null);
      Object.assign(page, { info, run: null, shown: null });
    }
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

// What the server refuses is taken back: the page keeps showing the run before, and says what was wrong, at
// its field if it has one.
function refused(error, now, before) {
  const was =
    before.model === undefined
      ? null
      : JSON.stringify(Object.fromEntries(Object.keys(wantedRun()).map((name) => [name, before[name]])));
  if (!page.run || was !== page.shown) {
    Object.assign(page, { run: null, shown: null, trouble: error.message });
    showRun(null);
    closeCard();
    drawAll();
    return;
  }
  takeBack(before);
  drawAll();
  const field = ["text", "answer"].find(
    (name) => now[name] !== before[name] && $(name) && now.model === before.model,
  );
  if (field) sayWrong(field, now[field] ?? "", error.message);
  else tell(error.message);
}

function drawView() {
  const own = views.find((view) => view.id === state().view);
  const place = make("div.stack", { "data-view": own?.id ?? "none" });
  try {
    if (!own) fill(place, noSuchView());
    else if (!page.run && own.needsRun) fill(place, emptyView());
    else DRAW[own.id](place, page);
  } catch (error) {
    // such as what an address says about a view that it cannot show
    fill(
      place,
      make("p.bad", `This view cannot be drawn as the address wants it: ${error.message}.`),
      button("Show it from the beginning", () => change({ look: {} }, { undoable: false })),
    );
  }
  fill($("view"), place);
  drawSteps(own?.id === "scene").catch((error) => tell(error.message));
  drawGuide(page);
}

// An address, or a program that wrote this file, may name a view of another version.
function noSuchView() {
  const shown = views.map((view) => view.title).join(", ");
  return make(
    "div.stack",
    make("p.bad", `This page has no view “${state().view}”. It has: ${shown}.`),
    button(`Open “${views[0].title}”`, () => change({ view: views[0].id }, { undoable: false }), {
      class: "main",
    }),
  );
}

function emptyView() {
  const said = state().model
    ? page.trouble
    : page.offers.length
      ? "Choose a model above, or train a small one."
      : "There is no model here yet: train a small one and look into it.";
  return make(
    "div.stack",
    make("p", { class: state().model ? "bad" : null }, said ?? "…"),
    make(
      "div.row",
      state().model && page.info?.example
        ? button(
            "Read an example instead",
            () =>
              change({ text: page.info.example, answer: null, changes: [], steps: [], of: { kind: "loss" } }),
            { class: "main" },
          )
        : null,
      button("Train a small model", () => change({ view: "training" }, { undoable: false }), {
        class: state().model ? null : "main",
      }),
    ),
  );
}

// Tabs are made once, so that the one with the focus keeps it. Experiments are several views: theirs stand in
// a second row.
function drawTabs() {
  const shown = state().view;
  const isExperiment = views.some((view) => view.id === shown && view.group === "experiments");
  const go = (id) => change({ view: id }, { undoable: false });
  const tab = (view) => button(view.title, () => go(view.id), { id: `tab-${view.id}` });
  if (!$("views").children.length) {
    const inGroup = (group) => views.filter((view) => view.group === group);
    const own = inGroup("experiments");
    const places = inGroup("").map(tab);
    if (own.length)
      places.splice(
        1,
        0,
        button("Experiments", () => go(own[0].id), { id: "tab-experiments" }),
      );
    fill($("views"), places, make("span.grow"), guideButton(), inGroup("beside").map(tab));
    fill($("experiments"), own.map(tab));
  }
  $("experiments").hidden = !isExperiment;
  for (const one of document.querySelectorAll("#views button, #experiments button")) {
    if (one.id === `tab-${shown}` || (isExperiment && one.id === "tab-experiments"))
      one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

function shortcut(event) {
  if (/^(input|textarea|select)$/i.test(event.target.tagName)) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "z") {
    event.preventDefault();
    (event.shiftKey ? redo : undo)();
  }
  if (event.key === "Escape" && !closeCard()) leaveGuide();
  if (!event.ctrlKey && !event.metaKey && !event.altKey && /^[1-9]$/.test(event.key) && views[event.key - 1])
    change({ view: views[event.key - 1].id }, { undoable: false });
}

start().catch((error) => fill($("view"), make("p.bad", error.message)));
