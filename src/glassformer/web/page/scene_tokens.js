// The tokens of a stack as buttons beside its lanes: one is followed, and another can be put in its place.

import { button, make } from "./dom.js";
import { kept } from "./kept.js";
import { tokenEditor } from "./scene_edit.js";
import { look, state } from "./state.js";

export function tokenButtons(stack) {
  const { plan, words } = stack;
  const every = (stack.every = Math.max(1, Math.ceil(11 / plan.lane)));
  const rows = words.slice(...plan.lanes).map((word, n) => {
    const lane = plan.lanes[0] + n;
    if (n % every) return null;
    const size = `${Math.min(14, Math.max(9, plan.lane - 2))}px`;
    const one = button(word, () => pin(stack, lane, one), {
      class: isPut(stack, lane) ? "scene-token put" : "scene-token",
      "data-lane": lane,
      "data-key": `${stack.key} ${lane}`,
      "aria-pressed": String(stack.pinned === lane),
      title: `position ${lane}: follow this token, or put another in its place`,
      style: {
        top: `${plan.top + n * plan.lane}px`,
        height: `${plan.lane * every}px`,
        lineHeight: `${plan.lane * every - 2}px`,
        fontSize: size,
      },
    });
    one.addEventListener("pointerenter", () => stack.light(lane));
    one.addEventListener("focus", () => stack.light(lane));
    one.addEventListener("blur", () => stack.light(stack.pinned));
    return one;
  });
  stack.tokens = rows.filter(Boolean);
  return make(
    "div.scene-tokens",
    { role: "group", "aria-label": `Tokens of the ${stack.part.stack}`, style: { width: `${plan.label}px` } },
    stack.tokens,
  );
}

function isPut(stack, lane) {
  return state().changes.some(
    (one) => one.name === stack.part.tokens && one.where?.position === lane - stack.ahead,
  );
}

// A token that was clicked is followed, and another one can be put in its place; a second click lets it go.
function pin(stack, lane, token) {
  const isOn = stack.pinned !== lane;
  stack.pinned = isOn ? lane : null;
  look("scene", { [stack.key]: { ...look("scene")[stack.key], lane: stack.pinned } });
  for (const one of stack.tokens) one.setAttribute("aria-pressed", String(one === token && isOn));
  stack.light(stack.pinned);
  stack.pop?.remove();
  if (!isOn || kept || stack.page.info.reads === false || lane < stack.ahead) return;
  const row = lane - stack.plan.lanes[0];
  const close = () => {
    stack.pop?.remove();
    token.focus();
  };
  stack.pop = tokenEditor(
    stack.part.tokens,
    stack.part.start[0].name,
    lane - stack.ahead,
    { left: `${stack.plan.label + 4}px`, top: `${stack.plan.top + (row + 1) * stack.plan.lane + 4}px` },
    close,
  );
  stack.pop.dataset.key = token.dataset.key; // the focus returns to the token
  stack.picture.append(stack.pop);
}
