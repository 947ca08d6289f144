// Backward: the number whose gradient is shown, the gradient from the logits back to the tokens, and a step
// of an optimizer.

import { button, exact, fill, make, section, short, visible } from "./dom.js";
import { colored } from "./color.js";
import { heat } from "./heat.js";
import { live } from "./kept.js";
import { ask, work } from "./server.js";
import { change, look, runState, state } from "./state.js";
import { addToCards, openCard } from "./card.js";
import { keepSteady } from "./steady.js";
import { stepBox } from "./step.js";
import { targetBox } from "./target.js";

export function drawBackward(place, page) {
  const way = make("div.stack", make("p.quiet", "…"));
  const flow = make("div.scroll.high", {
    tabindex: "0",
    role: "group",
    "aria-label": "Flow at every residual connection",
  });
  const tokens = make("div.stack");
  const step = stepBox(page);
  const asked = runState(); // the page may have gone on when the answer comes, to a model with other names
  const ready = ask("backward", { state: asked })
    .then((found) => {
      if (!way.isConnected) return;
      fill(way, walkBox(found, asked, page));
      fill(flow, found.flow ? flowTable(found.flow) : make("p.quiet", found.no_flow));
      fill(
        tokens,
        found.tokens.map((part) => saliencyBox(part, page)),
      );
    })
    .catch((error) => fill(way, make("p.bad", error.message)));
  place.append(
    section("Gradient of", null, targetBox(page)),
    section(
      "Along the stream",
      "How long the gradient is at each point of the residual stream, from the output back to the input; " +
        "the bars are logarithmic. Click a point for its entries.",
      way,
    ),
    section(
      "Flow",
      "At each residual connection the gradient takes two paths: along the stream unchanged, and through " +
        "the sublayer. Which one carries more?",
      flow,
    ),
    section(
      "Tokens",
      "Gradient × input: what each token would add if the model were linear. Integrated gradients add up " +
        "to the whole difference from an input in which every token has the mean vector.",
      tokens,
    ),
    section(
      "Take one step",
      "What an optimizer would do with the gradient of this text's loss, and the loss afterwards.",
      step,
    ),
  );
  keepSteady(place, [ready, step.ready]);
}

// --- along the stream --------------------------------------------------------------------------------------

function walkBox(found, asked, page) {
  const { points } = found;
  const share = lengthShare(points.map((point) => point.norm));
  const seen = make("div.seen");
  const items = points.map((point, n) => {
    const bar = make("span.bar", { "aria-hidden": "true", style: { width: `${share(point.norm) * 100}%` } });
    return button(
      [make("span", point.title), make("span", bar), make("span.mono", short(point.norm))],
      () => goTo(n),
      { class: "stop", title: `${point.name}: length ${exact(point.norm)}` },
    );
  });
  const goTo = (n) => {
    look("backward", { point: n });
    items.forEach((item, k) => {
      if (k === n) item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
    });
    fill(seen, pointMap(points[n], asked, page));
  };
  goTo(points[look("backward").point] ? look("backward").point : points.length - 1);
  return make(
    "div.walk",
    make(
      "ol",
      { tabindex: "0", "aria-label": "Points of the stream, from the end" },
      items.map((item) => make("li", item)),
    ),
    seen,
  );
}

// Gradients differ by orders of magnitude: bars have the logarithm of a length, over a decade at least.
function lengthShare(numbers) {
  const sizes = numbers.filter((number) => number > 0).map(Math.log10);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const decades = Math.max(1, most - least);
  return (number) => (number > 0 ? 0.05 + 0.95 * (1 - (most - Math.log10(number)) / decades) : 0);
}

function pointMap(point, asked, page) {
  const tensor = page.run.values.find((one) => one.name === point.name);
  return heat({
    ...tensor,
    state: asked,
    what: "gradient",
    ...page.labelsFor(tensor),
    title: `∂ ${page.run.of.title} / ∂ ${point.name}`,
    size: 340,
    onpick: (index) => openCard({ name: point.name, index, gradient: true }),
  });
}

// --- flow --------------------------------------------------------------------------------------------------

function flowTable(flow) {
  const share = lengthShare(flow.flatMap((one) => [one.arriving, one.leaving, one.through]));
  const cell = (number, part = share(number)) => {
    const bar = make("span.bar", { "aria-hidden": "true", style: { width: `${part * 4}rem` } });
    return make("td", { title: exact(number) }, make("span.barred", bar, make("span.mono", short(number))));
  };
  const head = ["sublayer", "arriving", "leaving", "through it", "its share", "cosine"].map((word) =>
    make("th", { scope: "col" }, word),
  );
  const rows = flow.map((one) =>
    make(
      "tr",
      make("th", { scope: "row", class: "mono" }, one.name),
      cell(one.arriving),
      cell(one.leaving),
      cell(one.through),
      cell(one.share, one.share),
      make("td.number.mono", short(one.cosine)),
    ),
  );
  return make("table.flowed", make("thead", make("tr", head)), make("tbody", rows));
}

// --- tokens ------------------------------------------------------------------------------------------------

function saliencyBox(part, page) {
  const integrated = make("div.stack");
  return make(
    "div.stack",
    part.part === "source" ? make("h3", "Source") : null,
    saliencyRow(part, part.values, "gradient × input"),
    make(
      "div.row",
      button("Integrate the gradients", () => integrate(part, integrated, page), live),
    ),
    integrated,
  );
}

function saliencyRow(part, values, what) {
  const top = Math.max(...values.map((number) => Math.abs(number ?? 0)));
  return make(
    "div.tokens",
    { role: "group", "aria-label": `${what} of each token` },
    part.tokens.map((label, n) => {
      const token = make("span.token", { style: colored(values[n] ?? 0, top) }, visible(label));
      return make(
        "span.told",
        { title: `position ${n}: ${exact(values[n])}` },
        token,
        make("small", short(values[n], 2)),
      );
    }),
  );
}

async function integrate(part, place, page) {
  const stop = new AbortController();
  const bar = make("progress", { max: 1, value: 0, "aria-label": "How far the integral is" });
  fill(
    place,
    bar,
    make(
      "div.row",
      button("Stop", () => stop.abort()),
    ),
  );
  try {
    const found = await work(
      "integrated",
      { state: runState(), name: part.name },
      (job) => {
        bar.value = job.total ? job.done / job.total : 0;
      },
      stop.signal,
    );
    fill(
      place,
      saliencyRow(part, found.values, "integrated gradient"),
      make(
        "p.quiet",
        `They add up to ${short(found.difference, 5)}: how far ${page.run.of.title} is from its value for ` +
          `mean vectors. Error ${short(found.missing, 2)}, after ${found.gradients} gradients.`,
      ),
    );
  } catch (error) {
    fill(place, make("p", { class: error.fact === "stopped" ? "quiet" : "bad" }, error.message));
  }
}

// --- on the card of a number -------------------------------------------------------------------------------

addToCards((card) => {
  const { of } = state();
  const isValue = card.kind !== "gradient" && card.kind !== "parameter";
  const isIt =
    of.kind === "entry" && of.name === card.name && JSON.stringify(of.index) === JSON.stringify(card.index);
  if (!isValue || isIt) return null;
  return make(
    "section",
    button(
      "Show the gradient of this number",
      () => change({ of: { kind: "entry", name: card.name, index: card.index } }),
      live,
    ),
  );
});
