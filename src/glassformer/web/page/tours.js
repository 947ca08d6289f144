// Guided tours: walks through the page that ask for a prediction before they show.
// A walk is data: {id, title, about, needs(page), prepare(page), steps: [{title, when, go, say, ask, then}]}; go and then say what the page is to show.

import { button, fill, make, tell } from "./dom.js";
import { closeCard, openCard } from "./card.js";
import { ask } from "./server.js";
import { change, look, state } from "./state.js";
import { tourRun } from "./tour_facts.js";
import { tourPanel } from "./tour_panel.js";
import { TOUR_ATTENTION } from "./tour_attention.js";
import { TOUR_CROSS } from "./tour_cross.js";
import { TOUR_INDUCTION } from "./tour_induction.js";
import { TOUR_NORM } from "./tour_norm.js";
import { TOUR_RESIDUAL } from "./tour_residual.js";
import { TOUR_SOFTMAX } from "./tour_softmax.js";

const TOURS = [TOUR_SOFTMAX, TOUR_ATTENTION, TOUR_RESIDUAL, TOUR_NORM, TOUR_CROSS, TOUR_INDUCTION];
export const toursView = { id: "tours", title: "Guide", draw: drawTours };

const TOUR_KEPT = ["model", "text", "answer", "changes", "steps", "of", "view"]; // what is given back when a tour is left
const TOUR_LONGEST = 512;
let tourTurn = 0;
const tourHeight = new ResizeObserver(([entry]) => document.documentElement.style.setProperty("--tour", `${entry.target.offsetHeight}px`));

// --- the list -------------------------------------------------------------------------------------------------------

function drawTours(place, page) {
  const list = make("div", { class: "tour-list" }, TOURS.map((tour) => tourBox(tour, page)));
  fill(place, make("h2", {}, "Tours"), make("p", { class: "quiet" }, "Short walks through the model that is open, about two minutes each. Every step asks for a prediction before it shows, and every number is this model's own."), list);
}

function tourBox(tour, page) {
  const at = look("tours")[tour.id];
  const missing = tourNeeds(tour, page);
  const begun = at?.model === state().model && at.step > 0 && !at.done;
  const start = (step, given) => beginTour(tour, page, step, given);
  const box = make("section", { class: "box stack tight", "data-tour": tour.id }, make("h3", {}, tour.title), make("p", {}, tour.about));
  if (missing) box.append(...tourMissing(missing));
  else box.append(make("div", { class: "row" }, begun ? button(`Go on at step ${at.step + 1}`, () => start(at.step, at.given), { class: "main" }) : null,
    button(begun || at?.done ? "Begin again" : "Begin", () => start(0, {}), { class: begun ? null : "main" }), at?.done ? make("span", { class: "good" }, "walked to its end") : null));
  return box;
}

function tourNeeds(tour, page) {
  const length = Math.max(page.run.tokens.length, page.run.source?.length ?? 0);
  if (length > TOUR_LONGEST) return { why: `Tours need a text of at most ${TOUR_LONGEST} tokens; this one has ${length}.` };
  return tour.needs(page);
}

// What is missing, and the models at hand that may have it.
function tourMissing({ why, train, match }) {
  const models = make("div", { class: "row" });
  if (match) {
    ask("models").then(({ models: offers }) => fill(models, offers.filter((offer) => match.test(offer.title) || match.test(offer.key)).slice(0, 4).map((offer) =>
      button(`Open ${offer.title}`, () => change({ model: offer.key, text: "", answer: null, changes: [], steps: [], of: { kind: "loss" } }))))).catch(() => {});
  }
  return [make("p", { class: "quiet" }, why, train ? [" Train one: ", make("code", {}, train)] : null), models];
}

// --- walking --------------------------------------------------------------------------------------------------------

async function beginTour(tour, page, step, given) {
  const before = Object.fromEntries(TOUR_KEPT.map((name) => [name, state()[name]]));
  let text = null;
  if (tour.text) {
    text = await tour.text(page);
    if (text === undefined) { tell(tour.refusal.why); return; }
  }
  look("tours", { running: tour.id, before, [tour.id]: { step, given, model: state().model } });
  tourShow(page, { changes: [], steps: [], ...(text === null ? {} : { text, answer: null }) });
}

function leaveTour(tour, page, done) {
  const { before } = look("tours");
  look("tours", { running: null, before: null, [tour.id]: { ...look("tours")[tour.id], done } });
  closeCard();
  const back = before && before.model === state().model ? before : {};
  tourShow(page, { ...back, view: "tours" });
}

// Draw the panel of the tour that is under way: called whenever a view was drawn.
export async function drawTour(page) {
  const mine = (tourTurn += 1);
  const set = look("tours");
  const tour = TOURS.find((one) => one.id === set.running);
  const place = document.getElementById("tour");
  tourHeight.observe(place);
  if (!tour || !page.run) { place.hidden = true; fill(place); place.dataset.key = ""; return; }
  const at = set[tour.id];
  const leave = () => leaveTour(tour, page, at.done);
  const key = JSON.stringify([tour.id, at, state().model, state().text]);
  place.hidden = false;
  if (place.dataset.key === key) return;
  if (at.model !== state().model || tourNeeds(tour, page)) {
    place.dataset.key = key;
    fill(place, tourPanel({ title: tour.title, text: "This tour is on the way with another model, or this one lacks what it needs.", leave, again: tourNeeds(tour, page) ? null : () => beginTour(tour, page, 0, {}) }));
    return;
  }
  try {
    const facts = { ...(await tour.prepare(page)), plain: await tourRun([]) };
    const steps = tour.steps.filter((step) => !step.when || step.when(page, facts));
    const number = Math.min(at.step, steps.length - 1);
    const step = steps[number];
    const keep = (parts) => look("tours", { [tour.id]: { ...look("tours")[tour.id], ...parts } });
    const arrived = at.arrived === number;
    if (!arrived) {
      if (mine !== tourTurn) return;
      keep({ step: number, arrived: number });
      showStep(page, (at.given?.[number] === undefined ? step.go : step.then ?? step.go)(page, facts));
      return; // the page is drawn again, and this with it
    }
    let [question, trouble] = [null, null];
    try { question = await step.ask?.(page, facts); } catch (error) { trouble = error.message; } // what this model cannot do is no reason to stop
    if (mine !== tourTurn) return;
    const focused = place.contains(document.activeElement) || place.dataset.moved === "yes";
    place.dataset.key = key;
    place.dataset.moved = "";
    const move = (to) => { place.dataset.moved = "yes"; keep({ step: to, arrived: null }); drawTour(page); };
    fill(place, tourPanel({
      title: tour.title, number, count: steps.length, heading: step.title, text: step.say(page, facts), trouble, question, given: at.given?.[number], leave,
      answer: (value) => { place.dataset.moved = "yes"; keep({ given: { ...look("tours")[tour.id].given, [number]: value } }); if (step.then) showStep(page, step.then(page, facts)); else drawTour(page); },
      back: number > 0 ? () => move(number - 1) : null, next: number < steps.length - 1 ? () => move(number + 1) : null, finish: () => leaveTour(tour, page, true),
    }));
    if (focused) place.querySelector(at.given?.[number] === undefined ? "h2" : "button.main:not([disabled])")?.focus();
  } catch (error) {
    if (mine !== tourTurn) return;
    fill(place, tourPanel({ title: tour.title, text: error.message, leave, again: null }));
  }
}

// Let the page show what a step wants to be seen.
function showStep(page, { view, look: looks = {}, changes = [], of = { kind: "loss" }, card = null }) {
  for (const [name, parts] of Object.entries(looks)) look(name, parts);
  if (card === null) closeCard();
  window.scrollTo(0, 0);
  tourShow(page, { view, changes, of });
  if (card !== null) openCard(card);
}

// Change the state; where it is as wanted already, what views remember may still be new.
function tourShow(page, parts) {
  if (Object.entries(parts).every(([name, part]) => JSON.stringify(state()[name]) === JSON.stringify(part))) page.redraw();
  else change(parts, { undoable: false });
}
