// The guide: tours over the scene. A step points at a place, asks, and tells once there is an answer.
// Steps come from the server with the numbers of this run: {title, say, math, ask, choices, right, tolerance,
// why, point, look, then}.

import { closeCard, openCard } from "./card.js";
import { button, fill, formula, make, short, tell } from "./dom.js";
import { kept } from "./kept.js";
import { ask, settled } from "./server.js";
import { change, look, runState, state } from "./state.js";

const guidePlace = () => document.getElementById("guide");
const plainRun = () => runState({ changes: [], steps: [], of: { kind: "loss" } });
const PLACES = {
  tokens: ".scene-stack:not(.scene-stack ~ .scene-stack) .scene-tokens",
  answers: ".scene-answers",
}; // besides values, which go by their names
const pointer = new CSSStyleSheet(); // it points at what is drawn now, and at what is drawn again
document.adoptedStyleSheets.push(pointer);
const height = new ResizeObserver(() =>
  document.documentElement.style.setProperty("--guide", `${document.getElementById("guide").offsetHeight}px`),
);
let drawnKey = null;

export function guideButton() {
  return kept
    ? null
    : button("Guide", () => (look("guide").open ? leaveGuide() : setGuide({ open: true })), {
        id: "tab-guide",
      });
}

function setGuide(parts, more = {}) {
  change(
    { ...more, look: { ...state().look, ...more.look, guide: { ...look("guide"), ...parts } } },
    { undoable: false },
  );
}

// Begin a tour at its first step; what was shown before is given back at its end.
export async function beginTour(tour) {
  const { changes, steps, of, view } = state();
  await goTo({
    open: true,
    tour,
    step: 0,
    given: {},
    before: look("guide").before ?? { changes, steps, of, view, scene: look("scene") },
  });
}

// Go to a step, or show the answer of one: the scene opens what the step is about.
async function goTo(at) {
  // A large model takes its time.
  const waiting = setTimeout(() => guidePlace().append(make("p.quiet", "Computing this step …")), 500);
  try {
    const found = await ask("guide_step", { state: plainRun(), tour: at.tour, step: at.step });
    const isTold = at.given[at.step] !== undefined;
    const {
      changes,
      of,
      card,
      look: scene,
    } = isTold ? found.then : { changes: [], of: null, card: null, look: {} };
    guidePlace().dataset.moved = "yes";
    setGuide(at, {
      view: "scene",
      changes,
      steps: [],
      of: of ?? { kind: "loss" },
      look: { scene: { ...found.look, ...scene } },
    });
    if (card && innerWidth > 900) openCard(card, { quiet: true });
    else closeCard();
  } catch (error) {
    tell(error.message);
  } finally {
    clearTimeout(waiting);
  }
}

// End a tour, and give back what was shown before it; `open` keeps the list of tours.
function endTour(open) {
  const { before } = look("guide");
  const { scene, ...was } = before ?? {};
  if (before) closeCard();
  setGuide({ open, tour: null, before: null }, before ? { ...was, look: { scene } } : {});
}

// Returns whether there was one to leave.
export function leaveGuide() {
  if (!look("guide").open) return false;
  endTour(false);
  document.getElementById("tab-guide")?.focus();
  return true;
}

// Draw the guide as the address has it: called whenever a view was drawn.
export async function drawGuide(page) {
  const place = guidePlace();
  const at = look("guide");
  const key = JSON.stringify([at, plainRun()]);
  place.hidden = !at.open || !page.run || kept !== null;
  document.getElementById("tab-guide")?.setAttribute("aria-pressed", String(!place.hidden));
  if (place.hidden) {
    fill(place);
    pointer.replaceSync("");
    drawnKey = null;
    return;
  }
  if (key === drawnKey) return;
  drawnKey = key;
  height.observe(place);
  try {
    const found = at.tour
      ? await ask("guide_step", { state: plainRun(), tour: at.tour, step: at.step })
      : await ask("guide", { state: plainRun() });
    if (key !== drawnKey) return;
    fill(place, at.tour ? drawStep(found, at) : drawList(found));
    pointAt(at.tour ? found.point : null);
    const isTold = at.given?.[at.step] !== undefined;
    if (place.dataset.moved === "yes")
      /** @type {HTMLElement?} */ (place.querySelector(isTold ? "button.main" : "h2"))?.focus({
        preventScroll: true,
      });
    place.scrollTop = isTold ? place.scrollHeight : 0; // on a small screen, what is new is in sight
  } catch (error) {
    if (key !== drawnKey) return;
    fill(
      place,
      top("Guide"),
      make("p.bad", error.message),
      make(
        "div.row",
        button("All tours", () => endTour(true)),
      ),
    );
    pointAt(null);
  }
  place.dataset.moved = "";
}

async function pointAt(point) {
  const canvas = `> canvas[data-name=${JSON.stringify(point)}]`;
  const selector = point && (PLACES[point] ?? `.scene-station:has(${canvas})`);
  pointer.replaceSync(
    selector
      ? `${selector} { box-shadow: 0 0 0 200vmax var(--dim); border-radius: .3rem; z-index: 2;
           scroll-margin: 4rem 4rem calc(var(--guide) + 2rem); }
         ${point in PLACES ? selector : `.scene-station ${canvas}`} { outline: 3px solid var(--point);
           outline-offset: ${point === "tokens" ? "-3px; clip-path: none; background: none" : "2px"}; }`
      : "",
  );
  if (!selector) return;
  await settled();
  document.querySelector(selector)?.scrollIntoView({
    block: "nearest",
    inline: "center",
    behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
  });
}

function top(title) {
  return make(
    "div.row.guide-top",
    make("span.quiet.grow", title),
    button("×", leaveGuide, { "aria-label": "Close the guide", title: "Close the guide (Escape)" }),
  );
}

function drawList(tours) {
  return [
    top("Guide"),
    make(
      "p",
      "Short tours over the scene. Each step asks before it tells, and every number is of the run you see.",
    ),
    make(
      "ul.plain.guide-list",
      tours.map(({ id, title, about, lacks }) =>
        make(
          "li",
          button(title, () => beginTour(id), {
            disabled: Boolean(lacks),
            "data-tour": id,
            class: id === "first" ? "main" : null,
          }),
          make(
            "span.quiet",
            (lacks || about).split("`").map((part, n) => (n % 2 ? make("code", part) : part)),
          ),
        ),
      ),
    ),
  ];
}

function drawStep(found, at) {
  const given = at.given[at.step];
  const isTold = given !== undefined;
  const move = (step) => goTo({ ...at, step });
  const answer = (value) => goTo({ ...at, given: { ...at.given, [at.step]: value } });
  const isLast = at.step === found.count - 1;
  const keys = (event) => {
    const step = { ArrowLeft: at.step - 1, ArrowRight: isTold ? at.step + 1 : -1 }[event.key];
    if (event.target.tagName !== "INPUT" && step >= 0 && step < found.count) move(step);
  };
  return [
    top(`${found.tour}, step ${at.step + 1} of ${found.count}`),
    make(
      "div.guide-body",
      { onkeydown: keys },
      make(
        "div.stack",
        make("h2", { tabindex: "-1" }, found.title),
        make("p", found.say),
        found.math ? formula(found.math) : null,
      ),
      make(
        "div.stack",
        { role: "group", "aria-label": found.ask },
        make("p", make("b", found.ask)),
        found.choices.length ? choices(found, given, answer) : numberField(found, given, answer),
        isTold
          ? make(
              "p",
              { role: "status" },
              make("b", { class: isRight(found, given) ? "good" : null }, verdict(found, given)),
              ` ${found.why}`,
            )
          : null,
      ),
      make(
        "div.row.guide-moves",
        at.step > 0 ? button("Back", () => move(at.step - 1)) : null,
        isTold ? null : button("Show me", () => answer(null)),
        isLast
          ? button("All tours", () => endTour(true), { class: isTold ? "main" : null, disabled: !isTold })
          : button("Next", () => move(at.step + 1), { class: isTold ? "main" : null, disabled: !isTold }),
      ),
    ),
  ];
}

function choices({ choices: all, right }, given, answer) {
  const mark = (n) => (given === undefined ? "" : n === right ? "✓ " : n === given ? "✗ " : "");
  return make(
    "div.row",
    all.map((choice, n) =>
      button(`${mark(n)}${choice}`, () => answer(n), {
        disabled: given !== undefined && n !== right && n !== given,
        "aria-pressed": given === undefined ? null : String(n === given),
        class: given !== undefined && n === right ? "right" : null,
      }),
    ),
  );
}

function numberField(found, given, answer) {
  const input = make("input", {
    type: "number",
    step: "any",
    value: String(given ?? ""),
    disabled: given !== undefined,
    onkeydown: (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        check();
      }
    },
  });
  const check = () => {
    if (input.value !== "" && Number.isFinite(Number(input.value))) answer(Number(input.value));
    else input.focus();
  };
  if (given === null) return null; // it was asked for, not guessed
  return make(
    "div.row",
    make("label", "Your number", input),
    given === undefined ? button("Check", check, { class: "main" }) : null,
  );
}

function isRight({ choices: all, right, tolerance }, given) {
  if (given === null) return false;
  return all.length
    ? given === right
    : Math.abs(given - right) <= Math.max(tolerance * Math.abs(right), tolerance ? 0.005 : 0);
}

function verdict(found, given) {
  const truth = found.choices.length ? found.choices[found.right] : short(found.right, 4);
  return given === null ? `It is: ${truth}.` : isRight(found, given) ? "Right." : `Not quite: ${truth}.`;
}
