// Changes made in place: another token in a lane, another number on a card, a neuron times a factor.

import { addToCards } from "./card.js";
import { button, make, tell, visible } from "./dom.js";
import { kept } from "./kept.js";
import { page } from "./page.js";
import { tokenPicker } from "./picker.js";
import { state } from "./state.js";
import { areMade, oneChange, toggleChanges, tryChanges } from "./trials.js";

// A small form at a token: another one in its place. Where each token is asked for by the one before it, the
// question may follow the token or stay.
export function tokenEditor(part, embedding, position, style, close) {
  const token = page.run[part][position];
  const silent = [oneChange("zero", embedding, { position })];
  const asks =
    part === "tokens" &&
    position > 0 &&
    page.run.batch.includes("targets") &&
    page.info.architecture !== "encoder";
  const follow = make("input", { type: "checkbox", checked: true });
  const put = (chosen) => {
    const list = [oneChange("put", part, { example: 0, position }, chosen.id)];
    if (asks && follow.checked)
      list.push(oneChange("put", "targets", { example: 0, position: position - 1 }, chosen.id));
    tryChanges(list, {
      without: state().changes.filter((one) =>
        list.some((own) => own.name === one.name && own.where.position === one.where?.position),
      ),
    });
  };
  const box = make(
    "div.scene-pop.box.stack",
    {
      role: "dialog",
      "aria-label": `Another token at position ${position}`,
      style,
      onkeydown: (event) => {
        if (event.key === "Escape") {
          event.stopPropagation();
          close();
        }
      },
    },
    tokenPicker({
      title: `In the place of “${visible(token.label)}”, position ${position}`,
      part,
      onpick: put,
      enters: true,
    }),
    asks ? make("label.check", follow, "the loss asks for it, too") : null,
    make(
      "div.row",
      button(areMade(silent) ? "Give it its vector again" : "Zeros for its vector", () =>
        toggleChanges(silent),
      ),
      button("Close", close),
    ),
  );
  requestAnimationFrame(() => box.querySelector("input")?.focus({ preventScroll: true }));
  return box;
}

// On the card of a number: another one in its place; a neuron can be scaled at all positions.
addToCards((card, one) => {
  const where = Object.fromEntries(card.axes.map((axis, n) => [axis, card.index[n]]));
  if (kept || card.axes.length !== card.index.length || Object.keys(where).length !== card.index.length)
    return null;
  const word = one.gradient === true || card.kind === "gradient" ? "put_gradient" : "put";
  const isNeuron = word === "put" && /feed_forward\.down\.x$/.test(card.name);
  const same = (kind, place) =>
    state().changes.filter(
      (own) =>
        own.word === kind && own.name === card.name && JSON.stringify(own.where) === JSON.stringify(place),
    );
  const field = (id, title, value, kind, place, does) => {
    const box = make("input", {
      type: "number",
      step: "any",
      id,
      value: String(value),
      onkeydown: (event) => {
        if (event.key === "Enter") act();
      },
    });
    const act = () => {
      if (box.value === "" || !Number.isFinite(Number(box.value))) {
        tell("Type a number, such as 0.5.");
        box.focus();
      } else
        tryChanges([oneChange(kind, card.name, place, Number(box.value))], { without: same(kind, place) });
    };
    return make("div.row", make("label", { for: id }, title, box), button(does, act));
  };
  return make(
    "section",
    make("h3", "Change it"),
    field(
      "card-number",
      word === "put" ? "Another number in its place" : "Another gradient in its place",
      card.value,
      word,
      where,
      "Put it there",
    ),
    isNeuron
      ? field(
          "card-factor",
          `Neuron ${where.feature} at all positions, times`,
          0,
          "scale",
          { feature: where.feature },
          "Scale it",
        )
      : null,
  );
});
