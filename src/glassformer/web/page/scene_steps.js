// A slider over the steps of a recorded training: the scene shows the model as it was after each of them.

import { button, fill, make, whole } from "./dom.js";
import { kept } from "./kept.js";
import { ask } from "./server.js";
import { change, state } from "./state.js";

const SPEEDS = { "½ ×": 2000, "1 ×": 1000, "4 ×": 250 }; // milliseconds for each step
const stepsPlace = () => document.getElementById("steps");
let drawnFor = null; // the model without its step
let playing = null;

// Draw the slider for the model that is open; it stays as it is while the step changes, so that it can be
// dragged.
export async function drawSteps(isScene) {
  const [base, step] = state().model.split(/@(?=\d+$)/);
  if (!isScene || kept || !base) {
    hideSteps();
    return;
  }
  if (drawnFor === base) {
    stepsPlace().hidden = !stepsPlace().firstChild;
    stepsPlace().show?.(step);
    return;
  }
  hideSteps();
  drawnFor = base;
  const { steps } = await ask("steps", { model: base });
  if (drawnFor === base && steps.length > 1) build(base, steps, step);
}

function hideSteps() {
  pause();
  stepsPlace().hidden = true;
  fill(stepsPlace());
  drawnFor = null;
}

function pause() {
  clearInterval(playing);
  playing = null;
}

function build(base, steps, step) {
  const last = steps.length - 1;
  const slider = make("input", {
    type: "range",
    min: "0",
    max: String(last),
    "aria-label": "Step of the training",
  });
  const said = make("output.scene-at");
  const speed = make(
    "select",
    { "aria-label": "Speed" },
    Object.keys(SPEEDS).map((name) => make("option", { value: name, selected: name === "1 ×" }, name)),
  );
  const play = button("Play", () => (playing ? stop() : start()));
  const go = (place) => {
    slider.value = String(place);
    fill(said, `after step ${whole(steps[place])} of ${whole(steps[last])}`);
    change({ model: place === last ? base : `${base}@${steps[place]}` }, { undoable: false, push: false });
  };
  const stop = () => {
    pause();
    fill(play, "Play");
  };
  const start = () => {
    if (Number(slider.value) === last) go(0);
    fill(play, "Pause");
    const isBusy = () => document.getElementById("view").getAttribute("aria-busy") === "true";
    playing = setInterval(() => {
      if (isBusy()) return; // the picture before is still being drawn
      if (Number(slider.value) === last) stop();
      else go(Number(slider.value) + 1);
    }, SPEEDS[speed.value]);
  };
  speed.addEventListener("change", () => {
    if (playing) {
      pause();
      start();
    }
  });
  slider.addEventListener("input", () => go(Number(slider.value)));
  stepsPlace().show = (now) => {
    const place =
      now === undefined
        ? last
        : Math.max(
            0,
            steps.findIndex((one) => one >= Number(now)),
          );
    slider.value = String(place);
    fill(said, `after step ${whole(now === undefined ? steps[last] : Number(now))} of ${whole(steps[last])}`);
  };
  stepsPlace().show(step);
  fill(stepsPlace(), make("b", "Training"), play, slider, said, speed);
  stepsPlace().hidden = false;
}
