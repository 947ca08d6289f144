// What the model answers: bars at the end of the scene, and one sentence above it.

import { percent } from "./bars.js";
import { make, short, visible } from "./dom.js";

const BARS = 7;

export function sceneAnswers(page, { x, y, width }) {
  const { run } = page;
  const list = run.next.slice(0, BARS);
  const top = Math.max(...list.map((one) => one.probability), ...(page.hasChanges ? run.next_before.map((one) => one.probability) : []), 1e-9);
  const rows = list.map((one) => {
    const before = page.hasChanges ? run.next_before.find((other) => other.id === one.id)?.probability ?? null : null;
    return make("div", { class: "scene-answer" }, make("span", { class: "word" }, visible(one.label)), make("span", { class: "odds" }, percent(one.probability)),
      make("span", { class: "track", "aria-hidden": "true" }, make("i", { style: { width: `${(100 * one.probability) / top}%` } }), before === null ? null : make("b", { title: `before: ${percent(before)}`, style: { left: `${(100 * before) / top}%` } })));
  });
  const title = page.info.classes ? "class" : run.source ? "next in the answer" : "next token";
  return make("div", { class: "scene-answers", style: { left: `${x}px`, top: `${y - 28}px`, width: `${width}px` } }, make("h3", {}, title), rows,
    run.loss === null ? null : make("p", { class: "quiet" }, `loss ${short(run.loss, 4)}`), page.hasChanges ? make("p", { class: "quiet" }, "▏ before the changes") : null);
}

// What the model answers, and what the changes did to it.
export function sceneStory(page) {
  const { run, info } = page;
  if (!run.next) return `The model reads ${(run.source ?? run.tokens).length} tokens and returns one vector for each.`;
  const [best] = run.next;
  if (run.source && !page.hasChanges) return ["The model reads ", make("b", {}, `“${run.source.map((token) => token.label).join("")}”`), " and writes ", make("b", {}, `“${run.tokens.slice(1).map((token) => token.label).join("")}”`), "."];
  const word = (one) => make("b", {}, `“${visible(one.label)}”`);
  const kind = info.classes ? "The likeliest class is " : run.source ? "The likeliest next token of the answer is " : "The likeliest next token is ";
  if (!page.hasChanges) return [kind, word(best), `, with ${percent(best.probability)}.`].flat();
  const [was] = run.next_before;
  const now = run.next.find((one) => one.id === was.id);
  const fell = now ? percent(now.probability) : `below ${percent(run.next.at(-1).probability)}`;
  const verb = !now || now.probability < was.probability ? "falls" : "rises";
  const after = best.id === was.id ? "." : [`. The likeliest is now `, word(best), `, with ${percent(best.probability)}.`];
  return ["With the changes, ", word(was), ` ${verb} from ${percent(was.probability)} to ${fell}`, after].flat();
}
