// What is said of a stack: its heading, and one sentence below it.

import { percent } from "./bars.js";
import { button, make, short, whole } from "./dom.js";
import { lanesOf, MOST_LANES } from "./scene_layout.js";

export function heading(stack) {
  const { part, open, words } = stack;
  const go = (layer) => stack.set({ open: layer });
  const many = words.length > MOST_LANES;
  const [first, last] = lanesOf(words.length, stack.first);
  return make(
    "div.row.scene-heading",
    stack.found.parts.length > 1 ? make("h3", part.stack) : null,
    part.blocks.length > 1
      ? make(
          "div.row",
          { role: "group", "aria-label": "Open block" },
          button("‹", () => go(open - 1), { disabled: open === 0, "aria-label": "The block before" }),
          make("span.scene-at", `block ${open} of 0 … ${part.blocks.length - 1}`),
          button("›", () => go(open + 1), {
            disabled: open === part.blocks.length - 1,
            "aria-label": "The next block",
          }),
        )
      : null,
    many
      ? make(
          "div.row",
          { role: "group", "aria-label": "Tokens shown" },
          button("earlier tokens", () => stack.set({ first: Math.max(0, first - MOST_LANES) }), {
            disabled: first === 0,
          }),
          make("span.scene-at", `tokens ${whole(first)} to ${whole(last - 1)} of ${whole(words.length)}`),
          button("later tokens", () => stack.set({ first: first + MOST_LANES }), {
            disabled: last === words.length,
          }),
        )
      : null,
    make("p.quiet", growth(stack)),
  );
}

// Where in the open block the stream changes most.
function growth(stack) {
  const adds = (stack.part.blocks[stack.open]?.stations ?? []).filter(
    (one) => one.kind === "adds" && stack.found.growth[one.name] !== undefined,
  );
  if (!adds.length) return "";
  const parts = adds
    .map((one) => [one.part.replace("_", "-"), stack.found.growth[one.name]])
    .sort((a, b) => b[1] - a[1]);
  const [[most, share], ...rest] = parts;
  const others = rest.map(([name, other]) => `${name} ${short(other, 2)}`).join(", ");
  return (
    `In block ${stack.open}, the ${most} adds ${rest.length ? "most: " : ""}${short(share, 2)} times the ` +
    `length of the stream${rest.length ? ` (${others})` : ""}.`
  );
}

export function hint(stack) {
  const of = stack.page.run.of;
  const gradients = stack.what === "gradient" && stack.lengths[stack.part.start[0].name];
  if (!gradients)
    return !stack.isLast
      ? ""
      : "Point at a token to follow it. Click a cell for its card, a name for the whole tensor, a block " +
          "to open it.";
  const most = gradients.indexOf(Math.max(...gradients));
  return (
    `The gradient of ${of?.title ?? "the loss"} is largest at “${stack.words[most]}” (position ${most}): ` +
    `length ${short(gradients[most])} in the embedding.`
  );
}

// What a token reads, in words.
export function reads(stack, lane) {
  const own = `“${stack.words[lane]}”, position ${lane}`;
  if (!stack.weights) return `${own}.`;
  const { station, found } = stack.weights;
  const columns = found.facts.size[1];
  const row = Array.from(
    found.cells.slice((lane - stack.plan.lanes[0]) * columns, (lane - stack.plan.lanes[0] + 1) * columns),
  );
  const words = stack.keyWords(station);
  if (columns !== words.length) return `${own}.`;
  const best = row
    .map((weight, n) => [weight, n])
    .sort((a, b) => b[0] - a[0])
    .filter(([weight]) => weight >= 0.01)
    .slice(0, 3);
  return [
    `${own}: in block ${stack.open}, head ${stack.head}, it looks at `,
    best.map(([weight, n], k) => [k ? ", " : "", make("b", `“${words[n]}”`), ` ${percent(weight)}`]).flat(),
    ".",
  ].flat();
}
