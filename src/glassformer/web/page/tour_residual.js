// A walk: the residual stream.

import { tile } from "./server.js";
import { tourHas, tourNumber, tourPlain, tourQuoted, tourShare, tourShort, tourWork } from "./tour_facts.js";

const startOfStream = () => ({ view: "tours" });
const KINDS_OF_PARTS = { head: "heads of attention", feed_forward: "feed-forward layers", embedding: "embeddings", bias: "biases" };

// Where the stream stands before and after what attention adds, with norms before or behind.
async function firstSum(page, block, position) {
  const names = [["attention_norm.x", "cross_attention_norm.x"], ["attention_norm.x", "feed_forward_norm.x"], ["attention.query.x", "attention_norm.x"], ["attention.query.x", "feed_forward.up.x"]];
  for (const [before, after] of names) {
    if (![before, after, "attention"].every((name) => tourHas(page, `${block}.${name}`))) continue;
    const [x, added, sum] = await Promise.all([before, "attention", after].map((name) => tourNumber(`${block}.${name}`, [0, position, 0])));
    if (Math.abs(x + added - sum) < 1e-5 * (1 + Math.abs(sum))) return { x, added, sum, name: `${block}.${after}`, normedAfter: after === "attention_norm.x" };
  }
  return null;
}

async function streamSize(name) {
  return (await tile({ state: tourPlain(), what: "value", name, height: 1, width: 1 })).facts.all.norm;
}

export const TOUR_RESIDUAL = {
  id: "residual", title: "The residual stream", about: "Blocks only add: what that means for reading, for size, and for who said it.",
  needs: () => null,
  async prepare(page) {
    const block = Object.values(page.run.stacks).at(-1);
    const layers = page.run.values.filter((value) => new RegExp(`^${block.replaceAll(".", "\\.")}\\.\\d+$`).test(value.name)).length;
    const last = page.run.values.find((value) => value.name === "embedding").shape.at(-2) - 1; // a learned vector may stand before the tokens
    const [sum, start, end] = await Promise.all([firstSum(page, `${block}.0`, last), streamSize("embedding"), streamSize(`${block}.${layers - 1}`)]);
    return { block, layers, last, sum, start, end };
  },
  steps: [
    {
      title: "A sum", when: (page, f) => f.sum !== null, go: startOfStream,
      say: (page, f) => `Each token has a vector, and every part of the model adds to it. Take the last token and the first number of its vector. Before the attention of block 0 it is ${tourShort(f.sum.x)}; attention adds ${tourShort(f.sum.added)}.`,
      ask: (page, f) => ({ question: "What is the number afterwards?",
        number: f.sum.sum, tolerance: 0.02,
        why: `That is all that happens: x + attention. Nothing is overwritten, and on the way back the gradient passes through the sum unchanged.${f.sum.normedAfter ? " In this model a norm follows each sum." : ""}` }),
      then: (page, f) => ({ ...startOfStream(), look: { tensors: { open: [`${f.block}.0`, `${f.block}.0.${f.sum.name.split(".").at(-2)}`] } }, card: { name: f.sum.name, index: [0, f.last, 0] } }),
    },
    {
      title: "Its size", go: startOfStream,
      say: (page, f) => `The embedding of all tokens together is ${tourShort(f.start)} long: the root of the sum of all squares. Then ${f.layers === 1 ? "comes one block" : `come ${f.layers} blocks`}.`,
      ask: (page, f) => ({ question: "How long is the stream after the last block?", choices: ["longer", "shorter"], right: f.end > f.start ? 0 : 1,
        why: `It is ${tourShort(f.end)} long. ${f.end > f.start ? `Blocks write more than they take back, so the stream grows.${f.sum && !f.sum.normedAfter ? " That is why a norm stands before whoever reads it." : ""}` : "Here a norm, or what blocks take back, keeps it short."}` }),
    },
    {
      title: "Read it early", when: (page) => !page.info.vectors, go: startOfStream,
      say: (page, f) => `In the end the model says ${tourQuoted(f.plain.next[0].label)}, with ${tourShare(f.plain.next[0].probability)}. The head can read the stream after every block, since it always has the same width.`,
      ask: async (page, f) => {
        const where = page.info.classes ? {} : { first: f.last, count: 1 };
        const found = await tourWork("lens", { token: null, between: false, ...where });
        const tops = found.columns[0].cells.map((cell) => cell.ids[0]);
        let right = tops.length - 1;
        while (right > 0 && tops[right - 1] === tops.at(-1)) right -= 1;
        const points = [...new Set([0, Math.floor(tops.length / 2), tops.length - 1, right])].sort((a, b) => a - b);
        return { question: "From where on would it have said the same?", choices: points.map((point) => `after ${found.points[point].label}`), right: points.indexOf(right),
          why: right === 0 ? "It says so from the beginning, and no block changes its mind." : `Before, the head would have said ${[...new Set(tops.slice(0, right))].slice(0, 4).map((id) => tourQuoted(found.labels[id] ?? `#${id}`)).join(", ")}.` };
      },
      then: () => ({ view: "lens", look: { lens: { token: null, first: undefined, between: false } } }),
    },
    {
      title: "Who said it", when: (page) => !page.info.vectors, go: () => ({ view: "lens", look: { lens: { token: null } } }),
      say: () => "Since the stream is a sum and the head is linear, the logit is a sum, too: every part has a share in it.",
      ask: async () => {
        const found = await tourWork("attribution", { token: null, against: null, position: -1 });
        const kinds = Object.entries(found.by_kind).sort(([, a], [, b]) => b - a);
        return { question: `Who adds most to the logit of ${tourQuoted(found.token.label)}?`,
          choices: Object.keys(found.by_kind).map((kind) => KINDS_OF_PARTS[kind] ?? kind),
          right: Object.keys(found.by_kind).indexOf(kinds[0][0]),
          why: `${kinds.map(([kind, value]) => `${KINDS_OF_PARTS[kind] ?? kind} ${tourShort(value)}`).join(", ")}: together ${tourShort(found.value)}. Counted is the direct way; what a part did by way of later ones is theirs.` };
      },
      then: () => ({ view: "lens", look: { lens: { token: null, against: null, position: null, parts: true } } }),
    },
  ],
};
