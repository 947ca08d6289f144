// A walk: a norm, backward.

import { tourHas, tourNumber, tourOf, tourPlain, tourRow, tourRun, tourShare, tourShort, tourSum } from "./tour_facts.js";

const normInSight = (facts, shown = "values") => ({ view: "scene", look: { tensors: { open: [...facts.base.split(".").map((_, n, words) => words.slice(0, n + 1).join("."))], shown } } });
const allClosed = () => ({ view: "tours" });
const doubled = (facts) => [{ word: "scale", name: `${facts.base}.x`, where: {}, value: 2 }];

// A norm that alone reads its vector: the last one, one behind a sum, or that of the embedding.
function loneNorm(page) {
  const bases = page.run.values.map((value) => value.name).filter((name) => /\.(rstd|rrms)$/.test(name)).map((name) => name.replace(/\.\w+$/, ""));
  const isBehind = bases.some((base) => base.endsWith(".attention_norm") && tourHas(page, `${base.replace("_norm", "")}.query.x`) && page.run.values.findIndex((v) => v.name === `${base}.x`) > page.run.values.findIndex((v) => v.name === `${base.replace("_norm", "")}.query.x`));
  return bases.findLast((base) => base.endsWith("final_norm") && !(page.run.source && base.startsWith("encoder."))) ?? (isBehind ? bases.findLast((base) => base.endsWith("_norm")) : bases.find((base) => base === "embedding.norm")) ?? null;
}

export const TOUR_NORM = {
  id: "norm", title: "A norm, backward", about: "What a norm does not notice, and what its gradient therefore cannot contain.",
  needs: (page) => (loneNorm(page) === null ? { why: "This model has no norm that alone reads its vector. Models with a norm at the end have one, such as those of most tasks.",
    train: "glassformer train majority", match: /majority|text|smollm2/i } : null),
  async prepare(page) {
    const base = loneNorm(page);
    const isLayer = tourHas(page, `${base}.rstd`);
    const row = page.info.architecture === "encoder" ? 0 : page.run.tokens.length - 1;
    const [x, root, mean] = await Promise.all([tourRow(`${base}.x`, [0], row), tourNumber(`${base}.${isLayer ? "rstd" : "rrms"}`, [0, row, 0]), isLayer ? tourNumber(`${base}.mean`, [0, row, 0]) : 0]);
    return { base, isLayer, row, x, root, mean };
  },
  steps: [
    {
      title: "Forward", go: allClosed,
      say: (page, f) => (f.isLayer
        ? `${f.base} is a layer norm. It takes the mean from a vector and divides by the spread: x̂ = (x − mean) · rstd. The vector at position ${f.row} has mean ${tourShort(f.mean)} and rstd ${tourShort(f.root)}; its first number is ${tourShort(f.x[0])}.`
        : `${f.base} is an RMS norm. It divides a vector by the root of its mean square: x̂ = x · rrms. At position ${f.row}, rrms is ${tourShort(f.root)}; the first number of the vector is ${tourShort(f.x[0])}.`),
      ask: (page, f) => ({ question: "What does it become?",
        number: (f.x[0] - f.mean) * f.root, tolerance: 0.03,
        why: "Afterwards gamma scales it, and where there is a beta it shifts it: two learned vectors." }),
      then: (page, f) => normInSight(f),
    },
    {
      title: "What it does not notice", go: allClosed,
      say: () => "We double every number of the vectors before this norm, and run everything behind it again.",
      ask: async (page, f) => {
        const [before, after] = await Promise.all([tourRun([]), tourRun(doubled(f))]);
        const seen = before.next?.length ? `The likeliest had ${tourShare(before.next[0].probability)}, and has ${tourShare(after.next[0].probability)}.` : "See for yourself: the change is made.";
        return { question: "What comes out of the norm?",
          choices: ["twice as much", "the same", "half as much"],
          right: 1,
          why: `${f.isLayer ? "Mean and spread double as well, and cancel it" : "The root of the mean square doubles as well, and cancels it"}; only eps under the root makes a trace of a difference. ${seen}` };
      },
      then: (page, f) => ({ ...normInSight(f), changes: doubled(f) }),
    },
    {
      title: "What comes back", go: (page, f) => ({ ...normInSight(f), of: tourOf(f) }),
      say: (page, f) => (f.isLayer ? "A layer norm does not notice either if the same number is added to the whole vector: the mean goes away. A gradient says what the result does when a number moves." : "The gradient of the vector says what the result does when a number moves. To grow along itself does nothing to the result, as we saw."),
      ask: async (page, f) => {
        const gradient = await tourRow(`${f.base}.x`, [0], f.row, { what: "gradient", state: tourPlain({ of: tourOf(f) }) });
        const size = tourSum(gradient.map(Math.abs));
        if (f.isLayer) return { question: "What does the gradient of the vector sum to?",
          number: 0, tolerance: 1e-3,
          why: `To move all numbers together changes nothing, so the sum is 0: here ${tourShort(tourSum(gradient))}, of numbers whose sizes sum to ${tourShort(size)}.` };
        return { question: "What is the product of the vector and its gradient, x · dx?",
          number: 0, tolerance: 1e-3,
          why: `0, but for eps: here ${tourShort(tourSum(gradient.map((g, n) => g * f.x[n])))}. The gradient stands at a right angle to the vector.` };
      },
      then: (page, f) => ({ ...normInSight(f, "both"), of: tourOf(f) }),
    },
    {
      title: "Term by term", go: (page, f) => ({ ...normInSight(f, "both"), of: tourOf(f) }),
      say: (page, f) => (f.isLayer ? "dx = (dx̂ − average dx̂ − x̂ · average(dx̂ · x̂)) · rstd, where dx̂ is the gradient of x̂." : "dx = (dx̂ − x̂ · average(dx̂ · x̂)) · rrms, where dx̂ is the gradient of x̂."),
      ask: (page, f) => (f.isLayer
        ? { question: "Which part makes the sum of dx zero?",
          choices: ["− average dx̂", "− x̂ · average(dx̂ · x̂)", "· rstd"],
          right: 0,
          why: "Taking the average away leaves a sum of 0. The other term takes away what would only stretch the vector; x̂ sums to 0 already, so it does not disturb the sum." }
        : { question: "Which part makes dx stand at a right angle to x?",
          choices: ["dx̂ itself", "− x̂ · average(dx̂ · x̂)", "· rrms"],
          right: 1,
          why: "It takes away exactly the part of dx̂ that lies along x̂. An RMS norm has no mean, and no term for it." }),
      then: (page, f) => ({ ...normInSight(f, "both"), of: tourOf(f), card: { name: `${f.base}.x`, index: [0, f.row, 0], gradient: true } }),
    },
  ],
};
