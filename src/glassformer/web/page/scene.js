// The scene: the whole computation as one picture. Every token is a lane; its vector goes from left to right
// through the embedding, the blocks (one of them open) and the final norm to the answers.

import { openCard } from "./card.js";
import { button, fill, make } from "./dom.js";
import { beginTour } from "./guide.js";
import { heat } from "./heat.js";
import { kept, live } from "./kept.js";
import { page } from "./page.js";
import { sceneStory } from "./scene_answers.js";
import { headPanel } from "./scene_head.js";
import { setScene } from "./scene_look.js";
import { StackPicture } from "./scene_stack.js";
import { sceneWords } from "./scene_words.js";
import { ask } from "./server.js";
import { look, runState } from "./state.js";
import { everyTensor } from "./tensors.js";
import { areMade, toggleChanges } from "./trials.js";

const SHOWN = { values: ["value"], gradients: ["gradient"], both: ["value", "gradient"], change: ["change"] };
let zoomed = null; // what stood large in the picture before
let drawn = null; // the scene on the page: it stays until the next one is painted

export function drawScene(place) {
  const box = make("section.scene", { "aria-label": "The scene" });
  const before =
    drawn?.isConnected && drawn.dataset.model === page.opened.replace(/@\d+$/, "") ? drawn : null;
  box.dataset.model = page.opened.replace(/@\d+$/, "");
  const focused = before?.contains(document.activeElement)
    ? document.activeElement.closest("[data-key]")?.getAttribute("data-key")
    : null;
  const scrolled = [...(before?.querySelectorAll(".scene-scroll") ?? [])].map((one) => one.scrollLeft);
  if (before) box.append(...before.childNodes);
  drawn = box;
  place.append(welcome(), box, everyTensor(page));
  Promise.all([
    ask("scene", { state: runState() }),
    runState().changes.length ? ask("outcome", { state: runState() }) : null,
  ])
    .then(([found, outcome]) => drawFound(box, found, outcome, before && { focused, scrolled }))
    .catch((error) => fill(box, make("p.bad", error.message)));
}

async function drawFound(box, found, outcome, before) {
  if (drawn !== box) return; // the page has gone on meanwhile
  const settings = look("scene");
  const shown =
    settings.shown in SHOWN && (settings.shown !== "change" || page.hasChanges) ? settings.shown : "values";
  const whats = SHOWN[shown];
  const wide = Math.max(320, box.clientWidth || innerWidth - 40);
  const parts = found.parts.map(
    (part, n) =>
      new StackPicture(part, {
        page,
        found,
        whats,
        wide,
        outcome,
        fades: outcome !== null && shown === "values",
        isLast: n === found.parts.length - 1,
      }),
  );
  for (const one of parts) one.draw();
  const what = whats.at(-1) === "change" ? "value" : whats.at(-1);
  const widened = ask("lengths", { state: runState(), what }).then((lengths) => {
    for (const one of parts) one.widen(lengths, what);
  });
  if (before) await Promise.all([widened, ...parts.flatMap((one) => one.loads)]);
  if (drawn !== box) return;
  const detail = make("div.scene-detail.stack");
  fill(
    box,
    make("p.scene-story", sceneStory(page, outcome)),
    page.info.classes && runState().text && !page.hasChanges && !runState().steps.length
      ? sceneWords()
      : null,
    tools(shown, outcome),
    parts.map((one) => one.element),
    detail,
  );
  box.querySelectorAll(".scene-scroll").forEach((one, n) => {
    one.scrollLeft = before?.scrolled[n] ?? 0;
  });
  const ready = drawDetail(detail, found, whats, wide);
  await Promise.all([widened, ready]);
  if (before?.focused && document.activeElement === document.body)
    [...box.querySelectorAll("[data-key]")]
      .find((one) => one.dataset.key === before.focused)
      ?.focus({ preventScroll: true });
  if (settings.zoom && settings.zoom !== zoomed) detail.scrollIntoView({ block: "nearest" });
  zoomed = settings.zoom;
}

let resized = null; // the picture is laid out for a width
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => {
    if (drawn?.isConnected) page.redraw();
  }, 200);
});

// What this page is; on the first visit with a way in for everyone.
function welcome() {
  if (isKnown()) return "";
  const weights = page.run.values.find((one) =>
    one.name.endsWith(`${page.run.source ? "decoder.blocks.0.cross_" : "blocks.0."}attention.attend.weights`),
  );
  const way = (title, act, settings) =>
    button(
      title,
      () => {
        known();
        act();
      },
      settings,
    );
  const box = make(
    "div.box.row.welcome",
    make(
      "p.quiet",
      "This is one run of the model on the text above, from the tokens on the left to its answer on the " +
        "right. Every strip of color is a vector that it computed.",
    ),
    way("I am new to this", () => beginTour("first"), { class: "main" }),
    page.run.loss === null && !page.run.next
      ? null
      : way("Show me the gradients", () => setScene({ shown: "gradients" })),
    weights ? way("I want to change something", () => setScene({ zoom: weights.name }), live) : null,
    button("Close", () => {
      known();
      box.remove();
    }),
  );
  return box;
}

function isKnown() {
  try {
    return kept !== null || localStorage.getItem("glassformer") === "known";
  } catch {
    return true;
  } // a page inside a notebook keeps nothing
}

function known() {
  localStorage.setItem("glassformer", "known");
}

function tools(shown, outcome) {
  const choose = (title, id, says) =>
    button(title, () => setScene({ shown: id }), {
      "aria-pressed": String(id === shown),
      title: says,
      "data-key": id,
    });
  return make(
    "div.row.scene-tools",
    make(
      "div.row",
      { role: "group", "aria-label": "What is shown" },
      choose("Forward", "values", "the values, from the tokens to the answer"),
      page.whats?.includes("gradient") === false
        ? null
        : [
            choose("Backward", "gradients", "the gradients, from the loss to the tokens"),
            choose("Both", "both", "each strip: the value above, its gradient below"),
          ],
      page.hasChanges ? choose("What changed", "change", "the values minus those before the changes") : null,
    ),
    make(
      "span.scene-legend",
      { "aria-hidden": "true" },
      legend(shown),
      outcome && shown === "values"
        ? " · pale: as before the changes"
        : shown === "change"
          ? " · blank: unchanged"
          : "",
    ),
  );
}

function legend(shown) {
  const swatch = (kind, low, high) =>
    make("span", make("i", { class: `swatch-bar ${kind}` }), ` ${low} to ${high}`);
  const change = shown === "change";
  return [
    shown === "gradients"
      ? null
      : swatch("values", change ? "less" : "negative", change ? "more than before" : "positive value"),
    shown === "gradients" || shown === "both" ? swatch("gradients", "negative", "positive gradient") : null,
    change ? null : swatch("weights", "no", "most attention"),
  ].filter(Boolean);
}

// The station that was chosen, large: a head, or a tensor with the weights that made it. Every cell opens its
// card.
function drawDetail(place, found, whats, wide) {
  const { zoom } = look("scene");
  const all = found.parts.flatMap((part) =>
    [...part.start, ...part.blocks.flatMap((block) => block.stations), ...part.end].map((one) => ({
      ...one,
      stack: part.stack,
    })),
  );
  const station = all.find((one) => one.name === zoom);
  const tensor = station && page.run.values.find((one) => one.name === zoom);
  if (!tensor) return null;
  const head = Math.min(look("scene")[station.stack]?.head ?? 0, (tensor.shape[1] || 1) - 1);
  const where = zoom
    .split(".")
    .map((word) => (/^\d+$/.test(word) ? `block ${word}` : word.replaceAll("_", " ")));
  const crumbs = make(
    "nav.scene-crumbs",
    { "aria-label": "Where you are" },
    button("Scene", () => setScene({ zoom: null }), { class: "link", "data-key": "crumbs" }),
    ` › ${where.join(" › ")}${station.kind === "weights" ? ` › head ${head}` : ""}`,
  );
  fill(
    place,
    crumbs,
    make("p.quiet", `${found.says[station.kind][0].toUpperCase()}${found.says[station.kind].slice(1)}.`),
  );
  if (station.kind === "weights") {
    place.append(headPanel({ station, head, layer: Number(/\.(\d+)\./.exec(zoom)[1]), whats, wide }));
    return place.lastChild.ready;
  }
  const large = (one, what, title) =>
    heat({
      ...one,
      what,
      at: one.shape.slice(0, -2).map(() => 0),
      ...page.labelsFor(one),
      large: true,
      most: 40,
      size: Math.min(900, wide - 40),
      title,
      onpick: (index) => openCard({ name: one.name, index, gradient: what === "gradient" }),
    });
  const made = page.run.parameters.filter((one) =>
    station.layers.some((layer) => one.name.startsWith(`${layer}.`)),
  );
  if (station.off.length && !kept)
    place.append(
      make(
        "div.row",
        station.off.map(({ title, changes }) =>
          button(
            areMade(changes) ? `Switch ${title} on again` : `What happens without ${title}?`,
            () => toggleChanges(changes),
            { "aria-pressed": String(areMade(changes)), "data-key": title },
          ),
        ),
      ),
    );
  place.append(
    make(
      "div.pair",
      whats.map((what) => large(tensor, what, `${what === "value" ? "" : `${what} of `}${zoom}`)),
    ),
  );
  if (made.length)
    place.append(
      make(
        "details",
        {
          open: look("scene").made === true,
          ontoggle: (event) => {
            look("scene", { made: event.target.open });
            if (event.target.open && event.target.childElementCount === 1)
              event.target.append(
                make(
                  "div.pair",
                  made
                    .map((one) =>
                      whats.map((what) =>
                        large(one, what, `${what === "value" ? "" : `${what} of `}${one.name}`),
                      ),
                    )
                    .flat(),
                ),
              );
          },
        },
        make("summary", `The weights that made it: ${made.map((one) => one.name).join(", ")}`),
      ),
    );
  return place.querySelector("figure").ready;
}
