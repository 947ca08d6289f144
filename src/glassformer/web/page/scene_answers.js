// What the model answers: bars at the end of the scene, and one sentence above it. With changes, both show
// before and after.

import { percent } from "./bars.js";
import { make, short, spoken, visible } from "./dom.js";
import { state } from "./state.js";
import { changesInWords } from "./trials.js";

const BARS = 7;

// How many pixels the bars need below the top of the lanes.
export const answersTall = (page, outcome) =>
  Math.min(BARS, outcome?.rows.length || page.run.next.length) * (outcome ? 58 : 36) + (outcome ? 70 : 30);

// outcome: how likely tokens are before and after the changes; null without changes.
export function sceneAnswers(page, outcome, { x, y, width }) {
  const { run } = page;
  const list = outcome?.rows.length
    ? outcome.rows
    : run.next.map((one) => ({ ...one, after: one.probability }));
  const was = mostOf(list, "before");
  const shown = list.slice(0, BARS).includes(was) ? list.slice(0, BARS) : [...list.slice(0, BARS - 1), was];
  const top = Math.max(1e-9, ...shown.flatMap((one) => [one.after, one.before ?? 0]));
  const bar = (kind, share) => make("i", { class: kind, style: { width: `${(100 * share) / top}%` } });
  const rows = shown.map((one) =>
    make(
      "div.scene-answer",
      make("span.word", visible(one.label)),
      make(
        "span.odds",
        one.before === undefined || percent(one.before) === percent(one.after)
          ? ""
          : `${percent(one.before)} → `,
        make("b", percent(one.after)),
      ),
      make(
        "span",
        { class: one.before === undefined ? "track" : "track both", "aria-hidden": "true" },
        one.before === undefined ? null : bar("before", one.before),
        bar("after", one.after),
      ),
    ),
  );
  const title = page.info.classes
    ? "class"
    : outcome && run.source
      ? whereIn(run, outcome).trim()
      : run.source
        ? "next in the answer"
        : "next token";
  return make(
    "div.scene-answers",
    { style: { left: `${x}px`, top: `${y - 28}px`, width: `${width}px` } },
    make("h3", title),
    rows,
    run.loss === null
      ? null
      : make(
          "p.quiet",
          outcome
            ? `loss ${short(run.loss_before, 4)} → ${short(run.loss, 4)}`
            : `loss ${short(run.loss, 4)}`,
        ),
    outcome ? make("p.quiet", "hatched: before the changes") : null,
  );
}

const mostOf = (rows, when) => rows.reduce((most, one) => (one[when] > most[when] ? one : most), rows[0]);
const quoted = (one, other) => make("b", `“${spoken(one.label, other?.label)}”`);

// Where in the answer a token is asked for.
const whereIn = (run, { position }) =>
  position === 0
    ? " at the start of the answer"
    : ` after “${run.tokens
        .slice(1, position + 1)
        .map((token) => token.label)
        .join("")}”`;

// What the model answers, and what the changes did to it.
export function sceneStory(page, outcome) {
  const { run, info } = page;
  if (outcome) return [`${changesInWords(state().changes)}, `, ...changedStory(page, outcome)];
  if (!run.next)
    return `The model reads ${(run.source ?? run.tokens).length} tokens and returns one vector for each.`;
  const [best] = run.next;
  if (run.source)
    return [
      "The model reads ",
      make("b", `“${run.source.map((token) => token.label).join("")}”`),
      " and writes ",
      make(
        "b",
        `“${run.tokens
          .slice(1)
          .map((token) => token.label)
          .join("")}”`,
      ),
      ".",
    ];
  return [
    info.classes ? "The likeliest class is " : "The likeliest next token is ",
    quoted(best),
    `, with ${percent(best.probability)}.`,
  ];
}

function changedStory({ run }, { rows, moved, position }) {
  if (!rows.length) return [`what the model returns moves by ${percent(moved)} of its length.`];
  const [was, now] = [mostOf(rows, "before"), mostOf(rows, "after")];
  const [from, to] = [percent(was.before), percent(was.after)];
  const move =
    from === to
      ? [` stays at ${to}`]
      : [` ${was.after < was.before ? "falls" : "rises"} from ${from} to ${to}`];
  return [
    quoted(was, now === was ? null : now),
    run.source ? whereIn(run, { position }) : "",
    ...move,
    ...(now === was ? ["."] : [". The likeliest is now ", quoted(now, was), `, with ${percent(now.after)}.`]),
  ];
}
