// The heads of the open attention of a stack as small pictures, and those of all blocks.

import { button, make } from "./dom.js";
import { kept } from "./kept.js";
import { zoomTo } from "./scene_look.js";
import { ask } from "./server.js";
import { look, runState } from "./state.js";
import { areMade, oneChange, toggleChanges } from "./trials.js";

// All heads of the open attention, small.
export function headCards(stack) {
  const station = stack.plan.stations.find((one) => one.kind === "weights");
  if (!station) return null;
  const heads = station.shape[1];
  const off = oneChange("zero", `${station.name.replace(/\.attend\.weights$/, "")}.output.x`, {
    head: stack.head,
  });
  const isOff = areMade([off]);
  const small = Array.from({ length: heads }, (_, head) => headCard(stack, station, stack.open, head));
  const kind = station.part === "cross_attention" ? "cross" : stack.key;
  ask("heads", { state: runState(), kind, layer: stack.open })
    .then(({ words }) =>
      small.forEach((one, head) => {
        one.lastChild.textContent = words[head];
        one.title = `head ${head}: ${words[head]}`;
      }),
    )
    .catch(() => {});
  return make(
    "div.scene-cards",
    make("div.scene-hand", { role: "group", "aria-label": `Heads of block ${stack.open}` }, small),
    make(
      "div.row",
      kept
        ? null
        : button(
            isOff ? `Switch head ${stack.head} on again` : `What happens without head ${stack.head}?`,
            () => toggleChanges([off]),
            { "aria-pressed": String(isOff), "data-key": `off ${stack.key}` },
          ),
      button(`Head ${stack.head} in full`, () => zoomTo(station.name), {
        "aria-pressed": String(look("scene").zoom === station.name),
        "data-key": `zoom ${stack.key}`,
      }),
    ),
    stack.part.blocks.length > 1 ? allHeads(stack, station) : null,
  );
}

function headCard(stack, station, layer, head) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const card = make(
    "button",
    {
      type: "button",
      class: "scene-card",
      "aria-pressed": String(layer === stack.open && head === stack.head),
      "aria-label": layer === stack.open ? `head ${head}` : `block ${layer}, head ${head}`,
      "data-key": `${stack.key} head ${layer} ${head}`,
      onclick: () => stack.set({ open: layer, head }),
    },
    canvas,
    make("span", `head ${head}`),
    make("small", ""),
  );
  card.load = () =>
    stack.load(canvas, { ...station, width: 52, height: 52, isLane: true }, { head, fades: false });
  if (layer === stack.open) stack.loads.push(card.load());
  return card;
}

// The heads of all blocks, a row for each; a row is asked for when it comes into sight.
function allHeads(stack, station) {
  const rows = make("div.scene-all");
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries)
      if (isIntersecting) {
        seen.unobserve(target);
        for (const card of target.querySelectorAll("button")) card.load();
      }
  });
  const box = make(
    "details",
    {
      open: look("scene").all === true,
      ontoggle: () => {
        look("scene", { all: box.open });
        if (!box.open || rows.firstChild) return;
        stack.part.blocks.forEach((block, layer) => {
          const own = block.stations.find((one) => one.kind === "weights" && one.part === station.part);
          if (!own) return;
          const row = make(
            "div.row",
            make("span.scene-at", `block ${layer}`),
            Array.from({ length: own.shape[1] }, (_, head) => headCard(stack, own, layer, head)),
          );
          rows.append(row);
          seen.observe(row);
        });
      },
    },
    make("summary", "The heads of all blocks"),
    rows,
  );
  return box;
}
