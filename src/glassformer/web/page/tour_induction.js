// A walk: induction.

import { ask } from "./server.js";
import { state } from "./state.js";
import { tourAmong, tourKind, tourLargest, tourPlain, tourQuoted, tourRow, tourShare, tourShort, tourWork } from "./tour_facts.js";
import { headInScene } from "./scene_stack.js";

const inductionMap = () => ({ view: "tours" });
const inductionHead = (facts) => ({ view: "scene", look: headInScene("decoder", `blocks.${facts.best.layer}.attention`, facts.best.layer, facts.best.head) });
const withoutInduction = (facts) => [{ word: "zero", name: `${facts.kind.layers[facts.best.layer]}.output.x`, where: { head: facts.best.head } }];
const INDUCTION_NEEDS = { train: "glassformer train induction", match: /induction|smollm2/i };

// The last token of a text, an earlier place of it, and what followed there.
function repetition(tokens) {
  const last = tokens.length - 1;
  for (let place = last - 2; place >= 0; place -= 1) if (tokens[place].id === tokens[last].id) return { last, place };
  return null;
}

export const TOUR_INDUCTION = {
  id: "induction", title: "Induction", about: "How a model continues what it has seen once: … A B … A, and then?",
  needs: (page) => (page.info.architecture === "decoder" && page.info.facts.layers >= 2 ? null : { why: "This walk needs a decoder with at least two layers.", ...INDUCTION_NEEDS }),
  // A text that repeats itself: the one that is there, or twice the beginning of it.
  async text(page) {
    if (repetition(page.run.tokens)) return null;
    const once = state().text.trim().slice(0, 80);
    for (const twice of once.includes(" ") ? [`${once} ${once}`] : [once + once, `${once} ${once}`]) {
      try {
        const run = await ask("run", { state: tourPlain({ text: twice }) });
        if (repetition(run.tokens)) return twice;
      } catch { /* it cannot read that one */ }
    }
    return undefined;
  },
  refusal: { why: "This model cannot read its text twice. Write one above that repeats itself, or open another model.", ...INDUCTION_NEEDS },
  async prepare(page) {
    const kind = await tourKind("decoder");
    const { last, place } = repetition(page.run.tokens);
    const layers = await Promise.all(kind.layers.map((_, layer) => ask("heads", { state: tourPlain(), kind: "decoder", layer })));
    const all = layers.flatMap((say, layer) => say.scores.map((scores, head) => ({ layer, head, score: scores.induction ?? 0, before: scores["previous token"] ?? 0 })));
    const best = all.filter((one) => one.layer > 0).reduce((a, b) => (b.score > a.score ? b : a));
    const previous = all.filter((one) => one.layer < best.layer).reduce((a, b) => (b.before > a.before ? b : a));
    const weights = await tourRow(`${kind.layers[best.layer]}.attend.weights`, [0, best.head], last);
    return { kind, last, place, best, previous, weights, chance: layers[best.layer].chance.induction ?? 0 };
  },
  steps: [
    {
      title: "What comes next?", go: inductionMap,
      say: (page, f) => `The text ends with ${tourQuoted(page.run.tokens[f.last].label)}, and that token stood there before, at position ${f.place}.`,
      ask: (page, f) => {
        const right = f.place + 1;
        const said = f.plain.next[0];
        // Each answer is another token: the same one at two places would be right twice.
        const places = [right, ...page.run.tokens.keys()].filter((at, n, all) => all.findIndex((one) => page.run.tokens[one].id === page.run.tokens[at].id) === n);
        const choices = tourAmong(right, places);
        return { question: "What would you say comes next, knowing nothing but this text?",
          choices: choices.map((at) => `${tourQuoted(page.run.tokens[at].label)}, as at position ${at}`),
          right: choices.indexOf(right),
          why: `What followed it before. The model says ${tourQuoted(said.label)}, with ${tourShare(said.probability)}${said.id === page.run.tokens[right].id ? "" : ": it knows more than this text, or has not learned this"}.` };
      },
    },
    {
      title: "It takes two", go: inductionMap,
      say: () => "To look at what followed an earlier A, a head must find a token whose predecessor is A. But a key is made of the token's own vector. So an earlier head must have written there: before me stood A.",
      ask: (page, f) => ({ question: "Which is the first layer that can hold an induction head?", choices: ["layer 0, the first", "layer 1, the second"], right: 1,
        why: `Layer 0 sees tokens alone. In this model, layer ${f.previous.layer} head ${f.previous.head} looks most at the token before (${tourShort(f.previous.before)}), and layer ${f.best.layer} head ${f.best.head} most at what followed (${tourShort(f.best.score)}; by chance ${tourShort(f.chance)}). ${f.best.score > f.chance ? "" : "That is no more than chance: on this text, no head of this model is an induction head."}` }),
      then: (page, f) => ({ view: "scene", look: headInScene("decoder", `blocks.${f.previous.layer}.attention`, f.previous.layer, f.previous.head) }),
    },
    {
      title: "Where it looks", go: inductionMap,
      say: (page, f) => `Layer ${f.best.layer}, head ${f.best.head}, from the last token, ${tourQuoted(page.run.tokens[f.last].label)}.`,
      ask: (page, f) => {
        const right = tourLargest(f.weights);
        const keys = tourAmong(right, [...new Set([right, 0, f.place, f.place + 1, f.last])]);
        return { question: "Which token does it look at most?", choices: keys.map((key) => tourQuoted(page.run.tokens[key].label, key)), right: keys.indexOf(right),
          why: right === f.place + 1 ? `The one right after the earlier ${tourQuoted(page.run.tokens[f.last].label)}, with ${tourShort(f.weights[right])}.` : `This one, with ${tourShort(f.weights[right])}; the token after the earlier ${tourQuoted(page.run.tokens[f.last].label)} gets ${tourShort(f.weights[f.place + 1])}. Its score is a mean over the text; from this token it looks elsewhere.` };
      },
      then: (page, f) => inductionHead(f),
    },
    {
      title: "Without it", go: (page, f) => inductionHead(f),
      say: () => "We switch this head off and run everything behind it again.",
      ask: async (page, f) => {
        const token = page.run.tokens[f.place + 1];
        const odds = async (changes) => {
          const found = await tourWork("lens", { state: tourPlain({ changes }), token: `#${token.id}`, between: false, first: f.last, count: 1 });
          return found.columns[0].cells.at(-1).chance;
        };
        const [before, after] = await Promise.all([odds([]), odds(withoutInduction(f))]);
        return { question: `What happens to the probability of ${tourQuoted(token.label)}?`,
          choices: ["it grows", "it falls", "it stays within a tenth of a percent"],
          right: Math.abs(after - before) < 0.001 ? 2 : after > before ? 0 : 1,
          why: `It was ${tourShare(before)}, and is ${tourShare(after)}. ${after < before - 0.001 ? "The head helped to repeat what followed before." : after > before + 0.001 ? "So on this text the head did not help: without it the repetition is likelier." : "The model does not need this head here: others may do the same."}` };
      },
      then: (page, f) => ({ ...inductionHead(f), changes: withoutInduction(f) }),
    },
  ],
};
