// A walk: cross-attention.

import { tile } from "./server.js";
import { tourAmong, tourKind, tourLargest, tourOf, tourPlain, tourQuoted, tourRow, tourRun, tourShort } from "./tour_facts.js";
import { headInScene } from "./scene_stack.js";

const crossInSight = (facts) => ({ view: "scene", look: headInScene("cross", facts.name, facts.layer, facts.head) });
const bareMap = () => ({ view: "tours" });
const crossOf = (facts) => (facts.plain.loss === null ? tourOf(facts) : { kind: "loss" });
const cutOff = (facts) => facts.kind.layers.map((name) => ({ word: "zero", name: `${name}.output.x`, where: {} }));

export const TOUR_CROSS = {
  id: "cross", title: "Cross-attention", about: "How a decoder reads a source that it did not write.",
  needs: (page) => (page.info.architecture === "encoder-decoder" ? null : { why: "This walk needs an encoder-decoder: a model that reads a source and writes an answer.",
    train: "glassformer train dates", match: /dates|pairs|encoder-decoder/i }),
  async prepare() {
    const kind = await tourKind("cross");
    const layer = kind.layers.length - 1;
    const query = Math.min(1, kind.queries.length - 1);
    const rows = await Promise.all(Array.from({ length: kind.heads }, (_, head) => tourRow(`${kind.layers[layer]}.attend.weights`, [0, head], query)));
    const head = tourLargest(rows.map((row) => Math.max(...row)));
    return { kind, layer, head, query, weights: rows[head], name: kind.layers[layer] };
  },
  steps: [
    {
      title: "Two texts", go: () => bareMap(),
      say: (page) => `The encoder reads the source, ${page.run.source.length} tokens. The decoder writes ${page.run.tokens.length} tokens, counting the one it starts from. In cross-attention one text asks and the other one answers.`,
      ask: () => ({ question: "Who makes the queries, who the keys and values?",
        choices: ["queries from the source, keys and values from the answer", "queries from the answer, keys and values from the source", "all three from the answer"],
        right: 1,
        why: "What is being written asks; the source, as the encoder left it, offers keys and values. So maps of cross-attention have the answer down and the source across." }),
      then: (page, f) => crossInSight(f),
    },
    {
      title: "What may be seen", go: () => bareMap(),
      say: () => "In its own text, a decoder may not look at what comes later.",
      ask: () => ({ question: "May its first token look at the last token of the source?",
        choices: ["yes", "no"],
        right: 0,
        why: "The whole source is there before the first word is written. No cell of the map is hatched, unless a token is padding." }),
      then: (page, f) => crossInSight(f),
    },
    {
      title: "Where it looks", go: () => bareMap(),
      say: (page, f) => `Layer ${f.layer}, head ${f.head}, from the token ${tourQuoted(f.kind.queries[f.query], f.query)} of the answer. The model is about to write what follows it${page.run.tokens[f.query + 1] ? `: ${tourQuoted(page.run.tokens[f.query + 1].label)}` : ""}.`,
      ask: (page, f) => {
        const right = tourLargest(f.weights);
        const keys = tourAmong(right, f.weights.map((_, key) => key));
        return { question: "Which token of the source gets most of its attention?",
          choices: keys.map((key) => tourQuoted(f.kind.keys[key], key)),
          right: keys.indexOf(right),
          why: `It gets ${tourShort(f.weights[right])}. This is one head of ${f.kind.heads * f.kind.layers.length}; what the model writes comes from all of them. Choose others above to see where they look.` };
      },
      then: (page, f) => crossInSight(f),
    },
    {
      title: "Without the source", go: (page, f) => crossInSight(f),
      say: () => "We put zeros in the place of what cross-attention found, in all layers. The decoder then has its own text alone.",
      ask: async (page, f) => {
        const [before, after] = await Promise.all([tourRun([]), tourRun(cutOff(f))]);
        return { question: "What can it still know about the source?",
          choices: ["nothing but what its own text says of it", "a little: the encoder still runs", "as much as before"],
          right: 0,
          why: `The encoder still runs, but its result is not used. The loss of this answer was ${tourShort(before.loss)}, and is ${tourShort(after.loss)}.` };
      },
      then: (page, f) => ({ ...crossInSight(f), changes: cutOff(f) }),
    },
    {
      title: "The way back", go: () => bareMap(),
      say: (page, f) => (f.plain.loss === null ? "A logit is about the answer alone. Now we take its gradient." : "The loss is about the answer alone. Now we take its gradient."),
      ask: async (page, f) => {
        const found = await tile({ state: tourPlain({ of: crossOf(f) }), what: "gradient", name: "source_embedding", height: 1, width: 1 });
        return { question: "Does a gradient reach the embedding of the source?",
          choices: ["yes, through the keys and values of cross-attention", "no, the encoder must be trained separately"],
          right: 0,
          why: `It has the length ${tourShort(found.facts.all.norm)} there. That is how one loss trains both halves.` };
      },
      then: (page, f) => ({ view: "scene", look: { tensors: { open: ["source_embedding"] }, scene: { shown: "both" } }, of: crossOf(f) }),
    },
  ],
};
