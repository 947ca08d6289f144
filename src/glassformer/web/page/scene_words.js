// Which words decided the class: the text twice, each word in the color of what it did.

import { percent } from "./bars.js";
import { colored } from "./color.js";
import { button, fill, make, short } from "./dom.js";
import { live } from "./kept.js";
import { work } from "./server.js";
import { runState } from "./state.js";

const MEASURES = {
  left_out: "When a word is left out, the probability falls by",
  integrated: "Integrated gradients: what a word adds to the logit",
};

export function sceneWords() {
  const box = make("div.scene-words.stack.tight");
  const said = make("span.quiet", { role: "status" });
  const start = async () => {
    try {
      const found = await work("words", { state: runState() }, ({ done, total }) =>
        fill(said, `${done} of ${total} texts without a word`),
      );
      fill(box, drawnWords(found));
    } catch (error) {
      fill(said, make("span.bad", error.message));
    }
  };
  fill(box, make("div.row", button("Which words decided?", start, { ...live, "data-key": "words" }), said));
  return box;
}

function drawnWords(found) {
  const sums = `They sum to ${short(found.difference)}, the logit above that of average tokens`;
  return [
    ...Object.entries(MEASURES).map(([measure, title]) =>
      make("div", make("h3", title), make("p.mono", textOf(found, measure))),
    ),
    make(
      "p.quiet",
      `${sums}, within ${short(Math.abs(found.missing), 1)}. Orange speaks for “${found.label}” ` +
        `(${percent(found.probability)}), blue against it.`,
    ),
  ];
}

// Words on the color of their numbers, and what stands between them as it is.
function textOf({ text, words }, measure) {
  const letters = [...text]; // places count characters, not halves of them
  const top = Math.max(...words.map((word) => Math.abs(word[measure] ?? 0)));
  let at = 0;
  const parts = words.flatMap((word) => {
    const before = letters.slice(at, word.start).join("");
    at = word.end;
    const number = word[measure];
    const title = `${word.word}: ${number === null ? "nothing would be left" : short(number)}`;
    return [before, make("span", { style: colored(number ?? 0, top), title }, word.word)];
  });
  return [...parts, letters.slice(at).join("")];
}
