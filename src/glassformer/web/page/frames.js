// One frame of a training: who looks at whom, what the model says, how large weights and gradients are, what
// each head does.

import { axisNames, cellAt, fill, make, short, visible, whole } from "./dom.js";
import { ask } from "./server.js";
import { colored, isDark, onTheme, paintCells } from "./color.js";
import { look } from "./state.js";
import { curve } from "./curve.js";

const LINES = 6; // parameters whose norms are drawn
let frameThemed = null;
onTheme(() => frameThemed?.());

// What may be wider than the screen, and is scrolled by the keyboard as well.
function frameScroll(label, ...inside) {
  return make("div.scroll", { tabindex: "0", role: "region", "aria-label": label }, ...inside);
}

// The parts stay, their contents are drawn again with redraw(course, step); onpick(step) is told of a click
// on a curve.
export function framePanels(onpick) {
  const attention = make("section.box.stack");
  const samples = make("section.box.stack");
  const weights = make("section.box.stack");
  const gradients = make("section.box.stack");
  const heads = make("section.box.stack.full");
  const root = make("div.panels", attention, samples, weights, gradients, heads);
  const map = frameMap(attention);
  root.redraw = (course, step) => {
    frameThemed = () => root.isConnected && root.redraw(course, step);
    const frame = course.frames.find((one) => one.step === step);
    if (!frame) return;
    map(course.key, step);
    frameSamples(samples, frame);
    frameNorms(weights, course, frame, "weights", "Norms of the weights", onpick);
    frameNorms(gradients, course, frame, "gradients", "Norms of the gradients, on the first batch", onpick);
    frameHeads(heads, frame);
  };
  return root;
}

// --- attention ---------------------------------------------------------------------------------------------

function frameMap(place) {
  const canvas = make("canvas", { role: "img", width: 1, height: 1, class: "grid" });
  const rows = make("div");
  const columns = make("div");
  const grid = make("div.named", make("span"), columns, rows, canvas);
  const choosers = make("div.row");
  const under = make("p.quiet.mono");
  const said = make("p.quiet");
  fill(
    place,
    make("h3", "Attention on one example"),
    choosers,
    frameScroll("Map of attention", grid),
    under,
    said,
  );
  let asked = "";
  let found = null;
  canvas.addEventListener("pointermove", (event) => {
    if (found) fill(under, frameCell(canvas, found, event));
  });
  canvas.addEventListener("pointerleave", () => fill(under));
  const redraw = async (key, step) => {
    const { kind, layer = 0, head = 0 } = look("training");
    const question = { model: key, step, layer, head, ...(kind ? { kind } : {}) };
    asked = JSON.stringify(question);
    try {
      const answer = await ask("course_map", question);
      if (asked !== JSON.stringify(question)) return;
      found = answer;
      frameGrid(canvas, found, rows, columns);
      frameChoosers(choosers, found, () => redraw(key, step));
      canvas.setAttribute(
        "aria-label",
        `attention of the ${found.kind}, layer ${layer}, head ${head}, after step ${step}: ` +
          `${found.rows.length} queries by ${found.columns.length} keys`,
      );
      fill(
        said,
        found.cut ? `the first ${found.rows.length} tokens: ` : "",
        found.rows.map(visible).join(" "),
      );
    } catch (error) {
      if (look("training").layer || look("training").head || look("training").kind) {
        look("training", { kind: null, layer: 0, head: 0 }); // of another model
        redraw(key, step);
      } else fill(said, error.message);
    }
  };
  return redraw;
}

function frameGrid(canvas, found, rows, columns) {
  const [height, width] = [found.rows.length, found.columns.length];
  paintCells(canvas, found.weights.flat(), [height, width], 1, false);
  const cell = Math.max(6, Math.min(28, 320 / Math.max(height, width)));
  Object.assign(canvas.style, { width: `${width * cell}px`, height: `${height * cell}px` });
  canvas.dataset.dark = isDark();
  axisNames(rows, found.rows, cell, false, "query");
  axisNames(columns, found.columns, cell, true, "key");
}

function frameCell(canvas, found, event) {
  const [row, column] = cellAt(canvas, event, [found.rows.length, found.columns.length]);
  return (
    `${visible(found.rows[row])} → ${visible(found.columns[column])} = ` +
    `${short(found.weights[row][column], 4)}`
  );
}

function frameChoosers(place, found, redraw) {
  const key = JSON.stringify([found.kind, found.kinds]);
  if (place.dataset.key === key) return; // the reader may be at one of them
  place.dataset.key = key;
  const set = (parts) => {
    look("training", parts);
    redraw();
  };
  const [layers, heads] = found.kinds[found.kind];
  const { layer = 0, head = 0 } = look("training");
  const numbers = (count) => Array.from({ length: count }, (_, n) => [String(n), String(n)]);
  const kinds = Object.keys(found.kinds);
  fill(
    place,
    kinds.length > 1
      ? frameSelect(
          "attention of",
          kinds.map((kind) => [kind, kind]),
          found.kind,
          (kind) => set({ kind, layer: 0, head: 0 }),
        )
      : null,
    frameSelect("layer", numbers(layers), String(layer), (value) => set({ layer: Number(value) })),
    frameSelect("head", numbers(heads), String(head), (value) => set({ head: Number(value) })),
  );
}

function frameSelect(title, choices, chosen, act) {
  return make(
    "label",
    title,
    make(
      "select",
      { onchange: (event) => act(event.target.value) },
      choices.map(([value, text]) => make("option", { value, selected: value === chosen }, text)),
    ),
  );
}

// --- what it says ------------------------------------------------------------------------------------------

function frameSamples(place, frame) {
  const rows = frame.samples.map(([asked, answer]) =>
    make("tr", make("td.mono", asked), make("td.mono", answer || "∅")),
  );
  fill(
    place,
    make("h3", "What it answers"),
    frameScroll(
      "Answers",
      make(
        "table",
        make(
          "thead",
          make("tr", make("th", { scope: "col" }, "asked"), make("th", { scope: "col" }, "answer")),
        ),
        make("tbody", rows),
      ),
    ),
  );
}

// --- norms -------------------------------------------------------------------------------------------------

function frameNorms(place, course, frame, part, title, onpick) {
  const names = Object.entries(course.frames.at(-1)[part])
    .sort((a, b) => b[1] - a[1])
    .map(([name]) => name);
  const drawn = names.slice(0, LINES);
  const series = drawn.map((name, n) => ({
    name,
    mark: n,
    points: course.frames.map((one) => [one.step, one[part][name]]),
  }));
  const values = names.map((name, n) =>
    make(
      "tr",
      make("td", n < LINES ? make("i", { class: `swatch mark${n}` }) : null),
      make("td.mono", name),
      make("td.number.mono", short(frame[part][name], 4)),
    ),
  );
  const open = place.querySelector("details")?.open ?? false;
  fill(
    place,
    make("h3", title),
    curve({ label: title, series, cursor: frame.step, last: course.frames.at(-1).step, onpick }),
    make(
      "details",
      { open },
      make("summary", `All ${names.length} after step ${whole(frame.step)}`),
      frameScroll(title, make("table", make("tbody", values))),
    ),
  );
}

// --- heads -------------------------------------------------------------------------------------------------

function frameHeads(place, frame) {
  const stacks = Object.entries(frame.heads);
  const said =
    "Share of the attention that goes where each kind of head looks, on random tokens that come twice.";
  if (!stacks.length) {
    fill(place, make("h3", "What each head does"), make("p.quiet", "The context is too short to tell."));
    return;
  }
  fill(
    place,
    make("h3", "What each head does"),
    make("p.quiet", said),
    make(
      "div.pair",
      stacks.map(([stack, found]) => frameScores(stack, found)),
    ),
  );
}

function frameScores(stack, found) {
  const kinds = Object.keys(found.scores);
  const cell = (score) => make("td.number.mono", { style: colored(score, 1, false) }, score.toFixed(2));
  const rows = found.scores[kinds[0]].flatMap((heads, layer) =>
    heads.map((_, head) =>
      make(
        "tr",
        make("th", { scope: "row" }, `${layer}.${head}`),
        kinds.map((kind) => cell(found.scores[kind][layer][head])),
      ),
    ),
  );
  const chance = make(
    "tr",
    make("th", { scope: "row" }, "chance"),
    kinds.map((kind) => make("td.number.mono.quiet", found.chance[kind].toFixed(2))),
  );
  return frameScroll(
    `Heads of the ${stack}`,
    make(
      "table.scores",
      make("caption", `${stack}: layer.head`),
      make(
        "thead",
        make(
          "tr",
          make("td"),
          kinds.map((kind) => make("th", { scope: "col" }, kind)),
        ),
      ),
      make("tbody", rows, chance),
    ),
  );
}
