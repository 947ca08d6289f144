// Texts without writing: what a tokenizer cuts them into, classes, masks, and how similar they are.

import { button, fill, make, short, visible, whole } from "./dom.js";
import { ask } from "./server.js";
import { look, state } from "./state.js";
import { colored, onTheme } from "./color.js";
import { barTrack, percent } from "./bars.js";

export function piecesBox(page) {
  const field = make("textarea", {
    rows: 2,
    spellcheck: false,
    placeholder: "type any text",
    value: look("writing").pieces ?? "",
  });
  const found = make("div.stack");
  const cut = async () => {
    const asked = field.value;
    look("writing", { pieces: asked || undefined });
    if (!asked) {
      fill(found, piecesRead(page));
      return;
    }
    try {
      const answer = await ask("pieces", { model: state().model, text: asked });
      if (asked === field.value) fill(found, piecesFound(answer));
    } catch (error) {
      fill(found, make("p.bad", error.message));
    }
  };
  field.addEventListener("input", cut);
  cut();
  return make(
    "section.box.stack",
    make("h2", "Tokens of a text"),
    make("label.broad", "Any text", field),
    found,
  );
}

// Without a text of its own: what the model has read just now.
function piecesRead(page) {
  const row = (tokens, title) =>
    tokens
      ? [make("p.quiet", title), piecesRow(tokens.map((token) => ({ text: token.label, id: token.id })))]
      : [];
  return page.run.source
    ? [...row(page.run.source, "the source, as it was read"), ...row(page.run.tokens, "the target")]
    : row(
        page.run.tokens,
        page.info.answers ? "the question with its answer, as they were read" : "the text, as it was read",
      );
}

function piecesRow(pieces) {
  return make(
    "div.pieces",
    pieces.map((piece) =>
      make(
        "span",
        { class: piece.special ? "piece special" : "piece" },
        make("span.token", visible(piece.text)),
        make("small", String(piece.id)),
      ),
    ),
  );
}

function piecesFound(answer) {
  const over = answer.count > answer.context;
  const said =
    `${whole(answer.count)} ${answer.count === 1 ? "token" : "tokens"} of a vocabulary of ` +
    `${whole(answer.size)}; the model reads at most ${whole(answer.context)}`;
  const more =
    answer.count > answer.pieces.length
      ? make("p.quiet", `and ${whole(answer.count - answer.pieces.length)} more`)
      : null;
  return [
    make("p", { class: over ? "bad" : "quiet" }, over ? `${said}: this is too long for it.` : `${said}.`),
    piecesRow(answer.pieces),
    more,
  ];
}

export function classesBox(page) {
  const before = new Map(page.run.next_before.map((one) => [one.id, one.probability]));
  const rows = page.run.next.map((one) =>
    make(
      "li.choice",
      make("span.token", visible(one.label)),
      barTrack(before.get(one.id) ?? 0, one.probability),
      make("span.odds.mono", percent(one.probability)),
      make("span.why", page.hasChanges && before.has(one.id) ? `before ${percent(before.get(one.id))}` : ""),
    ),
  );
  return make(
    "section.box.stack",
    make("h2", "Classes"),
    make(
      "div.tokens",
      page.run.tokens.map((token) => make("span.token", visible(token.label))),
    ),
    make("p.quiet", "This model does not write: it tells which class the text above belongs to."),
    make("ul.bars.plain", rows),
    rows.length === 10 ? make("p.quiet", "The ten likeliest are shown.") : null,
  );
}

export function masksBox() {
  const found = make("div.stack");
  const field = make("textarea", { rows: 2, spellcheck: false, value: look("writing").masked ?? "" });
  const fillIn = async () => {
    look("writing", { masked: field.value });
    try {
      const answer = await ask("masks", { model: state().model, text: field.value });
      fill(
        found,
        make("p", answer.answer),
        answer.places.map((place) =>
          make(
            "ul.bars.plain",
            place.map((one) =>
              make(
                "li.choice",
                make("span.token", visible(one.text)),
                barTrack(one.probability, one.probability),
                make("span.odds.mono", percent(one.probability)),
              ),
            ),
          ),
        ),
      );
    } catch (error) {
      fill(found, make("p.bad", error.message));
    }
  };
  return make(
    "section.box.stack",
    make("h2", "Masks"),
    make("label.broad", "a text with [MASK] in the place of words", field),
    make("div.row", button("Fill in", fillIn, { class: "main" })),
    found,
  );
}

let similarityAgain = null;
onTheme(() => similarityAgain?.());

export function similarityBox() {
  const texts = look("writing").texts ?? [
    state().text,
    "Paris is the capital of France",
    "My cat sleeps all day",
  ];
  const found = make("div.scroll", { tabindex: "0", role: "region", "aria-label": "Cosines" });
  const fields = make("div.stack");
  const read = () => [...fields.querySelectorAll("textarea")].map((field) => field.value);
  const compare = async () => {
    look("writing", { texts: read() });
    try {
      const answer = await ask("similarity", { model: state().model, texts: read() });
      fill(found, similarityTable(answer));
    } catch (error) {
      fill(found, make("p.bad", error.message));
    }
  };
  const draw = (list) =>
    fill(
      fields,
      list.map((text, number) => {
        const field = make("textarea", { rows: 1, value: text });
        field.addEventListener("change", compare);
        const remove =
          list.length > 2
            ? button(
                "×",
                () => {
                  draw(read().filter((_, n) => n !== number));
                  compare();
                },
                { "aria-label": `Leave out text ${number + 1}` },
              )
            : null;
        return make("div.row", make("label.broad", `text ${number + 1}`, field), remove);
      }),
    );
  draw(texts);
  compare();
  similarityAgain = () => found.isConnected && compare();
  return make(
    "section.box.stack",
    make("h2", "Similarity of texts"),
    make(
      "p.quiet",
      "The cosine of the angle between the vectors of every two texts: 1 for the same direction, 0 for " +
        "nothing in common.",
    ),
    fields,
    make(
      "div.row",
      button("Compare", compare, { class: "main" }),
      button("One more text", () => draw([...read(), ""])),
    ),
    found,
  );
}

function similarityTable(answer) {
  const cell = (value) => make("td.number.mono", { style: colored(value, 1) }, short(value, 3));
  const names = answer.cosine.map((_, number) => `text ${number + 1}`);
  return make(
    "table",
    make("caption.quiet", `cosines of vectors with ${whole(answer.width)} entries`),
    make(
      "thead",
      make(
        "tr",
        make("td"),
        names.map((name) => make("th", { scope: "col" }, name)),
      ),
    ),
    make(
      "tbody",
      answer.cosine.map((row, number) =>
        make("tr", make("th", { scope: "row" }, names[number]), row.map(cell)),
      ),
    ),
  );
}
