// A walk: attention.

import { tourAmong, tourHas, tourHead, tourKind, tourLargest, tourNumber, tourQuoted, tourRun, tourShare, tourShort } from "./tour_facts.js";
import { headInScene } from "./scene_stack.js";

const headInSight = (facts, head = facts.head, layer = facts.layer) => ({ view: "scene", look: headInScene(facts.kind.kind, facts.kind.layers[layer], layer, head) });
const nothingInSight = () => ({ view: "tours" });
const withoutHead = (facts) => [{ word: "zero", name: `${facts.late.name}.output.x`, where: { head: facts.late.head } }];

export const TOUR_ATTENTION = {
  id: "attention", title: "Attention", about: "A query meets keys, a mask forbids, a head is switched off.",
  needs: (page) => (page.run.tokens.length < 3 ? { why: "This walk needs a text of at least three tokens: write more above." } : null),
  async prepare() {
    const kind = await tourKind();
    const last = kind.queries.length - 1;
    const first = await tourHead(kind, 0, last);
    const late = await tourHead(kind, kind.layers.length - 1, last);
    const key = first.allowed[tourLargest(first.allowed.map((one) => first.scores[one]))];
    const product = await tourNumber(first.name, [0, first.head, last, key], { what: "products" });
    const mayLook = await tourNumber(`${first.name}.attend.mask`, [0, first.head, 0, kind.keys.length - 1]);
    return { kind, ...first, key, product, mayLook, late };
  },
  steps: [
    {
      title: "A query meets a key", go: nothingInSight,
      say: (page, f) => `Every token makes a query: what it looks for. And a key: what it offers. In layer 0, head ${f.head}, the query of ${tourQuoted(f.kind.queries[f.query])} and the key of ${tourQuoted(f.kind.keys[f.key], f.key)} have the product q · k = ${tourShort(f.product)}. The score is the product times ${tourShort(f.kind.scales[0])}${tourHas(page, `${f.name}.attend.bias`) ? ", before a bias is added" : ""}.`,
      ask: (page, f) => ({ question: "What is the score, about?", number: f.product * f.kind.scales[0], tolerance: 0.03,
        why: f.kind.scales[0] === 1 ? "This model takes the products as they are. Most divide by √C, for C channels in a head, so that scores have the same size whatever C is." : "A long vector has large products. The factor, 1/√C for C channels in a head, keeps scores of the same size whatever C is." }),
      then: (page, f) => ({ ...headInSight(f), card: { name: `${f.name}.attend.scores`, index: [0, f.head, f.query, f.key] } }),
    },
    {
      title: "Who may look", go: nothingInSight,
      say: (page, f) => `The model reads ${f.kind.keys.length} tokens at once.`,
      ask: (page, f) => ({ question: "May the first token look at the last one?", choices: ["yes", "no"], right: f.mayLook ? 0 : 1,
        why: f.mayLook ? "This stack reads all of its text at once and predicts none of it, so every token may look at every other." : "It would see the tokens that it is to predict. Hatched cells are masked, and their weights are exactly 0." }),
      then: (page, f) => headInSight(f),
    },
    {
      title: "Where does it look?", go: nothingInSight,
      say: (page, f) => `Now the last layer, head ${f.late.head}, again from the last token, ${tourQuoted(f.kind.queries[f.query])}. Take a guess: heads are not told what to look for; they learn it.`,
      ask: (page, f) => {
        const right = f.late.allowed[tourLargest(f.late.allowed.map((key) => f.late.weights[key]))];
        const keys = tourAmong(right, f.late.allowed);
        return { question: "Which token gets most of its attention?",
          choices: keys.map((key) => tourQuoted(f.kind.keys[key], key)),
          right: keys.indexOf(right),
          why: `It gets the weight ${tourShort(f.late.weights[right])}. Point at tokens in the picture to see the others.` };
      },
      then: (page, f) => headInSight(f, f.late.head, f.late.layer),
    },
    {
      title: "Without it", when: (page) => Boolean(page.run.next?.length), go: (page, f) => headInSight(f, f.late.head, f.late.layer),
      say: () => "What a head found goes to the stream through one matrix. We put zeros in its place, and let everything after it run again.",
      ask: async (page, f) => {
        const [before, after] = await Promise.all([tourRun([]), tourRun(withoutHead(f))]);
        const [was, now] = [before.next[0], after.next[0]];
        return { question: `Now ${tourQuoted(was.label)} is the likeliest, with ${tourShare(was.probability)}. Will it still be, without this head?`,
          choices: ["yes", "no"],
          right: was.id === now.id ? 0 : 1,
          why: `Without the head the likeliest is ${tourQuoted(now.label)}, with ${tourShare(now.probability)}. ${was.id === now.id ? "Other heads and layers carry this prediction as well." : "On this text, the prediction hangs on this head."}` };
      },
      then: (page, f) => ({ ...headInSight(f, f.late.head, f.late.layer), changes: withoutHead(f) }),
    },
  ],
};
