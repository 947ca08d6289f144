// Ablate and patch: one change at a time for all heads or vectors, and a form for any change that has no
// place in the scene.

import { make, section } from "./dom.js";
import { kept, live } from "./kept.js";
import { ask } from "./server.js";
import { runState, state } from "./state.js";
import { keepSteady } from "./steady.js";
import { changeForm } from "./change_form.js";
import { sceneStory } from "./scene_answers.js";
import { sweepBox } from "./sweeps.js";

export function drawChange(place, page) {
  const story = make("p.scene-story");
  const told = (state().changes.length ? ask("outcome", { state: runState() }) : Promise.resolve(null))
    .then((outcome) => story.append(...[sceneStory(page, outcome)].flat()))
    .catch((error) => story.append(error.message));
  place.append(story);
  if (kept) {
    place.append(make("p.quiet", live.title));
    return;
  }
  place.append(
    section(
      "One at a time",
      "One run for each head that is switched off, or for each vector of the stream that is taken from a " +
        "second text.",
      sweepBox(page),
    ),
    section(
      "Any value",
      "A value of the run, a parameter, a part of the batch, or a gradient on its way back. Leave a place " +
        "empty to change all of it. Tokens, heads, layers, attention weights and single numbers are " +
        "changed in the scene.",
      changeForm(page),
    ),
  );
  keepSteady(place, [told]);
}
