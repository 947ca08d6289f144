// One step of an optimizer: what every parameter would move, the loss before, predicted and after; and taking
// it.

import { button, exact, fill, make, short, tell } from "./dom.js";
import { live } from "./kept.js";
import { ask } from "./server.js";
import { change, look, runState, state, wantedRun } from "./state.js";

const STEP_SHOWN = 12; // parameters shown first

export function stepBox(page) {
  const place = make("div.stack");
  if (page.run.loss === null) {
    fill(
      place,
      make(
        "p.quiet",
        page.info.classes
          ? "There is no loss yet: choose the right class above, under “the loss”."
          : "This model returns vectors, so it has no loss to lower.",
      ),
    );
    place.ready = Promise.resolve();
    return place;
  }
  place.ready = ask("optimizers")
    .then(({ optimizers }) => fill(place, stepForm(page, optimizers)))
    .catch((error) => fill(place, make("p.bad", error.message)));
  return place;
}

function stepForm(page, optimizers) {
  const settings = look("step");
  const chosen = optimizers.find((one) => one.name === settings.optimizer) ?? optimizers[0];
  const lr = settings.optimizer === chosen.name && settings.lr > 0 ? settings.lr : chosen.lr;
  const shown = make("div.stack");
  const rate = make("input", {
    type: "number",
    step: "any",
    min: "0",
    id: "step-rate",
    value: String(lr),
    ...live,
  });
  const asked = () => ({ optimizer: chosen.name, lr: Number(rate.value) });
  const select = make(
    "select",
    {
      ...live,
      onchange: (event) => {
        look("step", { optimizer: event.target.value, lr: null });
        page.redraw();
      },
    },
    optimizers.map((one) =>
      make("option", { value: one.name, selected: one.name === chosen.name }, one.name),
    ),
  );
  rate.addEventListener("change", () => {
    look("step", asked());
    page.redraw();
  });
  const preview = () => {
    look("step", { ...asked(), open: true });
    drawStep(page, asked(), shown);
  };
  const taken = state().steps.length;
  if (settings.open) drawStep(page, asked(), shown);
  return [
    make(
      "div.row",
      make("label.narrow", "Optimizer", select),
      make("label.narrow", { for: "step-rate" }, "Learning rate", rate),
      button("Preview the step", preview, live),
      button("Take the step", () => takeStep(asked()), { class: "main", ...live }),
      taken ? button("Undo the last step", () => change({ steps: state().steps.slice(0, -1) }), live) : null,
    ),
    shown,
  ];
}

// Tried first: a step that cannot be taken does not enter the state.
async function takeStep(step) {
  const steps = [...state().steps, step];
  try {
    await ask("run", { state: wantedRun({ steps }) });
    look("step", { ...step, open: true });
    change({ steps });
  } catch (error) {
    tell(error.message);
  }
}

async function drawStep(page, step, place) {
  fill(place, make("p.quiet", "…"));
  try {
    const found = await ask("step", { state: runState(), ...step });
    fill(place, lossLine(found), stepTable(found.moves));
  } catch (error) {
    fill(place, make("p.bad", error.message));
  }
}

function lossLine(found) {
  const one = (word, number) =>
    make("span", { title: exact(number) }, `${word} `, make("b", short(number, 6)));
  const history =
    found.losses.length > 1
      ? make(
          "p.losses",
          make("span", "so far "),
          found.losses.map((loss, n) => one(n ? `step ${n}` : "at first", loss)),
        )
      : null;
  return make(
    "div.stack",
    history,
    make(
      "p.losses",
      make("span", "the next step: loss "),
      one("before", found.before),
      one("predicted", found.promised),
      one("after", found.after),
    ),
  );
}

function stepTable(moves) {
  const sorted = [...moves].sort((a, b) => b.relative - a.relative);
  const top = Math.max(...sorted.map((move) => move.relative));
  const all = look("step").all === true;
  const body = make(
    "tbody",
    (all ? sorted : sorted.slice(0, STEP_SHOWN)).map((move) => stepRow(move, top)),
  );
  const more = button(`Show all ${sorted.length} parameters`, () => {
    look("step", { all: true });
    fill(
      body,
      sorted.map((move) => stepRow(move, top)),
    );
    more.remove();
  });
  const head = ["parameter", "relative change", "cosine", "predicted"].map((word) =>
    make("th", { scope: "col" }, word),
  );
  return make(
    "div.stack",
    make(
      "p.quiet",
      "Cosine: between the move of the optimizer and that of gradient descent, 1 for the same direction. " +
        "Predicted: the change of the loss that this move would make if the loss were linear.",
    ),
    make(
      "div.scroll",
      { tabindex: "0", role: "group", "aria-label": "What every parameter would move" },
      make("table.flowed", make("thead", make("tr", head)), body),
    ),
    !all && sorted.length > STEP_SHOWN ? make("div.row", more) : null,
  );
}

function stepRow(move, top) {
  const bar = make("span.bar", {
    "aria-hidden": "true",
    style: { width: `${top ? (move.relative / top) * 6 : 0}rem` },
  });
  return make(
    "tr",
    make("th", { scope: "row", class: "mono" }, move.name),
    make(
      "td",
      { title: exact(move.relative) },
      make("span.barred", bar, make("span.mono", short(move.relative))),
    ),
    make("td.number.mono", short(move.downhill)),
    make("td.number.mono", short(move.promised)),
  );
}
