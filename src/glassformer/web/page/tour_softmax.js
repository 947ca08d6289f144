// A walk: softmax.

import { tourAmong, tourHead, tourKind, tourLargest, tourOf, tourQuoted, tourRow, tourShort, tourSum, tourPlain } from "./tour_facts.js";
import { headInScene } from "./scene_stack.js";

const onWeights = (facts, what = "value") => ({ view: "scene", look: headInScene(facts.kind.kind, facts.name, facts.layer, facts.head, `${what}s`) });
const onScores = (facts, word, value) => [{ word, name: `${facts.name}.attend.scores`, where: { head: facts.head, position: facts.query }, value }];

async function weightsWith(facts, changes) {
  return tourRow(`${facts.name}.attend.weights`, [0, facts.head], facts.query, { state: tourPlain({ changes }) });
}

export const TOUR_SOFTMAX = {
  id: "softmax", title: "Softmax", about: "How scores become weights: what counts, what does not, and what comes back.",
  needs: (page) => (page.run.tokens.length < 3 ? { why: "This walk needs a text of at least three tokens: write more above." } : null),
  async prepare() {
    const kind = await tourKind();
    return { kind, ...(await tourHead(kind, 0, kind.queries.length - 1)) };
  },
  steps: [
    {
      title: "From scores to weights", go: () => ({ view: "tours" }),
      say: (page, f) => `Head ${f.head} of layer 0 looks from the last token, ${tourQuoted(f.kind.queries[f.query])}. It has a score for every token that it may look at. Softmax makes weights of scores: weight = exp(score) / sum of all exp(score).`,
      ask: (page, f) => {
        const right = f.allowed[tourLargest(f.allowed.map((key) => f.scores[key]))];
        const keys = tourAmong(right, f.allowed);
        return { question: "Which of these tokens gets the largest weight?",
          choices: keys.map((key) => `${tourQuoted(f.kind.keys[key], key)}, score ${tourShort(f.scores[key])}`),
          right: keys.indexOf(right),
          why: `exp grows with its argument, so a larger score always gives a larger weight. This one has ${tourShort(f.weights[right])}.` };
      },
      then: (page, f) => onWeights(f),
    },
    {
      title: "They sum to one", go: (page, f) => onWeights(f),
      say: () => "Every weight is divided by the same sum.",
      ask: (page, f) => ({ question: "What do all weights of one row sum to?",
        number: 1, tolerance: 0,
        why: `This row sums to ${tourShort(tourSum(f.weights))}: a weight is a share. None is negative, since exp never is.` }),
    },
    {
      title: "Only differences count", go: () => ({ view: "tours" }),
      say: () => "Let us add 5 to every score of this row.",
      ask: async (page, f) => {
        const after = await weightsWith(f, onScores(f, "add", 5));
        const most = Math.max(...after.map((weight, key) => Math.abs(weight - f.weights[key])));
        return { question: "What happens to the weights of the row?", choices: ["they all grow", "nothing", "only the largest grows"], right: 1,
          why: `exp(5) stands above and below the line and cancels. It was done: no weight moved by more than ${tourShort(most)}.` };
      },
      then: (page, f) => ({ ...onWeights(f), changes: onScores(f, "add", 5) }),
    },
    {
      title: "Sharper", when: (page, f) => f.allowed.length > 1, go: () => ({ view: "tours" }),
      say: () => "Now we double every score of the row instead.",
      ask: async (page, f) => {
        const after = await weightsWith(f, onScores(f, "scale", 2));
        const [before, now] = [Math.max(...f.weights), Math.max(...after)];
        return { question: "What happens to the largest weight?", choices: ["it grows", "it stays as it is", "it shrinks"], right: now > before ? 0 : 1,
          why: `Differences are twice as large, so the best one wins by more: from ${tourShort(before)} to ${tourShort(now)}. A temperature does the same to the last logits.` };
      },
      then: (page, f) => ({ ...onWeights(f), changes: onScores(f, "scale", 2) }),
    },
    {
      title: "Backward", go: (page, f) => ({ ...onWeights(f), of: tourOf(f) }),
      say: () => "A change that is the same for all scores of a row does nothing, as we saw. The gradient of a score says how much the result would move with it.",
      ask: async (page, f) => {
        const row = await tourRow(`${f.name}.attend.scores`, [0, f.head], f.query, { what: "gradient", state: tourPlain({ of: tourOf(f) }) });
        return { question: "What do the gradients of all scores in a row sum to?", number: 0, tolerance: 1e-3,
          why: `Moving all of them together must change nothing, so the sum is 0; here ${tourShort(tourSum(row))}, up to rounding. In the formula dx = y · (dy − Σ dy · y) the subtracted sum sees to it.` };
      },
      then: (page, f) => ({ ...onWeights(f, "gradient"), of: tourOf(f) }),
    },
  ],
};
