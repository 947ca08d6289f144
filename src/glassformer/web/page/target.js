// The number whose gradient is shown: the loss, a logit, how far one is above another, or any entry of a
// value.

import { button, exact, fill, make, tell, visible } from "./dom.js";
import { kept, live } from "./kept.js";
import { ask } from "./server.js";
import { change, look, state, wantedRun } from "./state.js";
import { tokenPicker } from "./picker.js";

const TARGET_TITLES = {
  loss: "the loss",
  logit: "a logit",
  difference: "one logit minus another",
  entry: "any entry",
};

export function targetBox(page) {
  const { of } = page.run;
  const kind =
    look("backward").target ??
    (of.kind === "logit" && of.against !== null && of.against !== undefined ? "difference" : of.kind);
  const kinds = Object.keys(TARGET_TITLES).filter((word) => page.run.next !== null || word === "entry");
  const choose = (word) => {
    look("backward", { target: word });
    if (word === "loss" && page.run.loss !== null) tryTarget({ kind: "loss" });
    else page.redraw();
  };
  return make(
    "div.stack",
    make("p", make("b", of.title), " = ", make("code", exact(of.value))),
    make(
      "div.row",
      { role: "group", "aria-label": "Gradient of" },
      kinds.map((word) =>
        button(TARGET_TITLES[word], () => choose(word), { "aria-pressed": String(word === kind), ...live }),
      ),
    ),
    kept ? null : targetParts(page, kind),
  );
}

function targetParts(page, kind) {
  if (kind === "loss")
    return page.info.classes
      ? classChooser()
      : page.run.loss === null
        ? make("p.quiet", "This run has no loss.")
        : null;
  if (kind === "entry") return entryFields(page);
  return logitFields(page, kind === "difference");
}

// The class that a classifier should have said: with it there is a loss.
function classChooser() {
  const select = make("select", {
    onchange: (event) => change({ answer: event.target.value || null, of: { kind: "loss" } }),
  });
  ask("vocabulary", { model: state().model, part: "classes", text: "" })
    .then((found) =>
      fill(
        select,
        make("option", { value: "", selected: state().answer === null }, "not said"),
        found.tokens.map((one) =>
          make("option", { value: one.label, selected: state().answer === one.label }, one.label),
        ),
      ),
    )
    .catch((error) => tell(error.message));
  return make("label.narrow", "The right class", select);
}

function logitFields(page, both) {
  const now =
    page.run.of.kind === "logit" ? page.run.of : { token: page.run.next[0].id, against: null, position: -1 };
  const chosen = {
    token: now.token,
    against: both ? (now.against ?? page.run.next[1]?.id ?? 0) : null,
    position: now.position ?? -1,
  };
  const act = (parts) => tryTarget({ kind: "logit", ...chosen, ...parts });
  const part = page.info.classes ? "classes" : "tokens";
  const count = page.run.tokens.length;
  const select = make(
    "select",
    { onchange: (event) => act({ position: Number(event.target.value) }) },
    page.run.tokens.map((token, n) =>
      make(
        "option",
        { value: String(n), selected: n === (chosen.position + count) % count },
        `${n}: ${visible(token.label)}`,
      ),
    ),
  );
  return make(
    "div.stack",
    page.info.classes ? null : make("label.narrow", "After the token at position", select),
    make(
      "div.row.top",
      tokenPicker({ title: "The logit of", part, onpick: (token) => act({ token: token.id }) }),
      both
        ? tokenPicker({ title: "minus the logit of", part, onpick: (token) => act({ against: token.id }) })
        : null,
    ),
  );
}

function entryFields(page) {
  const now = page.run.of.kind === "entry" ? page.run.of : { name: "", index: [] };
  const name = make("input", {
    id: "entry-name",
    class: "mono wide",
    list: "entry-names",
    autocomplete: "off",
    spellcheck: false,
    value: now.name,
  });
  const index = make("input", {
    id: "entry-index",
    class: "mono",
    autocomplete: "off",
    placeholder: "0, 3, 5",
    value: now.index.join(", "),
  });
  const act = (event) => {
    event.preventDefault();
    const numbers = index.value
      .split(/[\s,]+/)
      .filter((word) => word !== "")
      .map(Number);
    if (!numbers.every(Number.isInteger)) {
      tell("an index is a list of whole numbers, such as 0, 3, 5");
      return;
    }
    tryTarget({ kind: "entry", name: name.value, index: numbers });
  };
  const shape = page.run.values.find((one) => one.name === now.name)?.shape;
  return make(
    "form.row",
    { onsubmit: act },
    make(
      "label",
      { for: "entry-name" },
      "Value",
      name,
      make(
        "datalist",
        { id: "entry-names" },
        page.run.values.map((one) => make("option", { value: one.name })),
      ),
    ),
    make("label", { for: "entry-index" }, shape ? `Index in ${shape.join(" × ")}` : "Index", index),
    make("button.main", "Show its gradient"),
  );
}

// A number that has no gradient does not enter the state.
async function tryTarget(of) {
  try {
    await ask("run", { state: wantedRun({ of }) });
    change({ of });
  } catch (error) {
    tell(error.message);
  }
}
