// Sweeps: one change at a time for all of a kind, as a heat map whose cells make that change.

import { button, exact, fill, make, short, visible, whole } from "./dom.js";
import { colored } from "./color.js";
import { ask, work } from "./server.js";
import { look, runState } from "./state.js";
import { oneChange, tryChanges } from "./trials.js";
import { secondText } from "./change_form.js";

const SWEEP_TITLES = {
  heads: "Switch every head off",
  stream: "Take every vector of the stream from a second text",
};
let sweepLast = null; // {key, found}: the last result, while the run is the same
let sweepStop = null;

export function sweepBox(page) {
  const settings = look("sweep");
  const kind = settings.kind ?? "heads";
  const stacks = Object.keys(page.run.stacks);
  const stack = stacks.includes(settings.stack) ? settings.stack : stacks.at(-1);
  const again = (parts) => {
    look("sweep", parts);
    page.redraw();
  };
  const result = make("div.stack");
  const cost = make("span.quiet");
  const question = { state: runState(), kind, ...(kind === "stream" ? { stack } : {}) };
  ask("sweep_cost", question)
    .then((found) =>
      fill(cost, `${whole(found.runs)} runs, about ${sweepBytes(found.bytes)} of memory at once`),
    )
    .catch((error) => fill(cost, error.message));
  const key = JSON.stringify(question);
  if (sweepLast?.key === key) fill(result, sweepMap(sweepLast.found));
  return make(
    "div.stack",
    make(
      "div.row",
      { role: "group", "aria-label": "Which sweep" },
      Object.entries(SWEEP_TITLES).map(([word, title]) =>
        button(title, () => again({ kind: word }), { "aria-pressed": String(word === kind) }),
      ),
    ),
    kind === "stream" && stacks.length > 1
      ? make(
          "label.narrow",
          "Stream of the",
          make(
            "select",
            { onchange: (event) => again({ stack: event.target.value }) },
            stacks.map((one) => make("option", { value: one, selected: one === stack }, one)),
          ),
        )
      : null,
    kind === "stream"
      ? secondText("Second text, of as many tokens", settings.other ?? "", (text) =>
          look("sweep", { other: text }),
        )
      : null,
    make("p", "Measured: ", make("b", page.run.of.title)),
    make(
      "div.row",
      button("Start", () => startSweep(question, key, result), { class: "main" }),
      cost,
    ),
    result,
  );
}

function sweepBytes(count) {
  const units = [
    { size: 1 << 30, name: "GB" },
    { size: 1 << 20, name: "MB" },
    { size: 1 << 10, name: "KB" },
  ];
  const unit = units.find(({ size }) => count >= size) ?? { size: 1, name: "bytes" };
  return `${short(count / unit.size)} ${unit.name}`;
}

async function startSweep(question, key, result) {
  sweepStop?.abort();
  const own = new AbortController();
  sweepStop = own;
  const bar = make("progress", { max: 1, value: 0, "aria-label": "How far the sweep is" });
  const said = make("span.quiet");
  fill(
    result,
    bar,
    make(
      "div.row",
      button("Stop", () => own.abort()),
      said,
    ),
  );
  const show = (job) => {
    bar.value = job.total ? job.done / job.total : 0;
    fill(said, job.total ? `${whole(job.done)} of ${whole(job.total)}` : "starting");
  };
  try {
    const asked = question.kind === "stream" ? { ...question, other: look("sweep").other ?? "" } : question;
    const found = await work("sweep", asked, show, own.signal);
    sweepLast = { key, found };
    fill(result, sweepMap(found));
  } catch (error) {
    fill(result, make("p", { class: error.fact === "stopped" ? "quiet" : "bad" }, error.message));
  }
}

function sweepMap(found) {
  const top = Math.max(...found.effect.flat().map((number) => Math.abs(number ?? 0)));
  const head = make(
    "tr",
    make("th", { scope: "col" }, found.axis === "head" ? "head" : "position"),
    found.columns.map((word) => make("th", { scope: "col", class: "mono" }, visible(word))),
  );
  const rows = found.effect.map((row, n) =>
    make(
      "tr",
      make("th", { scope: "row" }, found.rows[n]),
      row.map((number, column) => make("td", sweepCell(found, number, n, column, top))),
    ),
  );
  const there = found.there === undefined ? "" : `; with the second text it is ${short(found.there, 5)}`;
  const words =
    found.word === "zero"
      ? "By how much it grows without each head."
      : "By how much it grows with each vector of the second text.";
  return [
    make(
      "p.quiet",
      `${words} As it is: ${found.of} ${short(found.before, 5)}${there}. Click a cell to make that change.`,
    ),
    make(
      "div.scroll",
      { tabindex: "0", role: "group", "aria-label": `Effect on ${found.of}` },
      make("table.sweep", make("thead", head), make("tbody", rows)),
    ),
  ];
}

function sweepCell(found, number, row, column, top) {
  const title = `${found.rows[row]}, ${found.axis} ${column}: ${exact(number)}`;
  return button(
    short(number, 2),
    () =>
      tryChanges([oneChange(found.word, found.names[row], { [found.axis]: column }, 0, found.other ?? "")]),
    { class: "cell", title, "aria-label": title, style: colored(number ?? 0, top) },
  );
}
