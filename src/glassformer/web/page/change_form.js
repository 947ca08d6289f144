// A form for every change that there is: what is done, to which value, at which of its entries.

import { fill, make, visible } from "./dom.js";
import { ask } from "./server.js";
import { look, runState } from "./state.js";
import { tryChanges } from "./trials.js";

const CHANGE_WORDS = {
  put: "put a number there",
  zero: "put zeros there",
  scale: "multiply",
  add: "add a number",
  take: "take it from a second text",
  steer: "steer toward a second text",
  mean: "put the mean of a second text there",
  freeze: "freeze as it was",
  stop: "stop its gradient",
  put_gradient: "put a gradient there",
  scale_gradient: "multiply its gradient",
};
const NUMBERS = { steer: "Share of the way", scale: "Factor", scale_gradient: "Factor" };

export function changeForm(page) {
  const { words } = page.info;
  const names = [
    ...page.run.values,
    ...page.run.parameters,
    ...page.run.batch.map((name) => ({ name, axes: ["example", "position"], shape: null })),
  ];
  const form = { word: "scale", where: {}, value: 0.5, other: "", ...look("change").form };
  if (!names.some((one) => one.name === form.name))
    Object.assign(form, { name: page.run.values[0].name, where: {} });
  const set = (parts) => look("change", { form: Object.assign(form, parts) });
  const number = (title, value, step, act) =>
    make(
      "label.narrow",
      title,
      make("input", {
        type: "number",
        step,
        placeholder: "all",
        value: String(value),
        onchange: (event) => act(event.target.value),
      }),
    );
  const at = (axis, size) =>
    number(size ? `${axis} of ${size}` : axis, form.where[axis] ?? "", "1", (text) => {
      const { [axis]: before, ...where } = form.where;
      set({ where: text === "" ? where : { ...where, [axis]: Math.round(Number(text)) } });
    });
  const submit = (event) => {
    event.preventDefault();
    tryChanges([
      {
        ...form,
        value: words.number.includes(form.word) ? form.value : 0,
        other: words.other.includes(form.word) ? form.other : "",
      },
    ]);
  };
  const place = make("form.stack", { onsubmit: submit });
  const draw = () => {
    const known = names.find((one) => one.name === form.name);
    const fields = (known?.axes ?? []).map((axis, n) => at(axis, known.shape?.[n]));
    // The heads stand side by side in what the last matrix of attention reads: one of them by its number.
    if (form.name.endsWith("attention.output.x")) fields.push(at("head", page.run.heads));
    fill(
      place,
      make(
        "div.row",
        make(
          "label",
          "What to do",
          make(
            "select",
            {
              id: "form-word",
              onchange: (event) => {
                set({ word: event.target.value });
                draw();
                document.getElementById("form-word")?.focus();
              },
            },
            words.all.map((word) =>
              make("option", { value: word, selected: word === form.word }, CHANGE_WORDS[word]),
            ),
          ),
        ),
        make(
          "label",
          { for: "form-name" },
          "Value",
          make("input", {
            id: "form-name",
            list: "form-names",
            class: "mono wide",
            autocomplete: "off",
            spellcheck: false,
            value: form.name,
            onchange: (event) => {
              set({ name: event.target.value, where: {} });
              draw();
            },
          }),
          make(
            "datalist",
            { id: "form-names" },
            names.map((one) => make("option", { value: one.name })),
          ),
        ),
      ),
      make("div.row", { role: "group", "aria-label": "Where" }, fields),
      make(
        "div.row",
        words.number.includes(form.word)
          ? number(NUMBERS[form.word] ?? "Number", form.value, "any", (text) =>
              set({ value: Number(text) || 0 }),
            )
          : null,
        words.other.includes(form.word)
          ? secondText("Second text", form.other, (text) => set({ other: text }))
          : null,
        make("button.main", "Do it"),
      ),
    );
  };
  draw();
  return place;
}

// A field for another text; how the model reads it is said below.
export function secondText(title, value, act) {
  const said = make("span.quiet", { role: "status" });
  const say = async (text) => {
    if (!text) {
      fill(said);
      return;
    }
    try {
      const found = await ask("second", { state: runState(), other: text });
      fill(
        said,
        make(
          "span.tokens",
          (found.source ?? found.tokens).map((token) => make("span.token", visible(token.label))),
        ),
        found.fits ? "as many tokens" : make("span.bad", "not as many tokens: places do not line up"),
      );
    } catch (error) {
      fill(said, make("span.bad", error.message));
    }
  };
  say(value);
  return make(
    "label",
    title,
    make("input", {
      type: "text",
      class: "wide",
      autocomplete: "off",
      spellcheck: false,
      value,
      onchange: (event) => {
        act(event.target.value);
        say(event.target.value);
      },
    }),
    said,
  );
}
