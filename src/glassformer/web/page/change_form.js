// A form for every change that there is: what is done, to which value, at which of its entries.

import { button, fill, make, visible } from "./dom.js";
import { ask } from "./server.js";
import { look, runState } from "./state.js";
import { tryChanges } from "./trials.js";

const CHANGE_WORDS = {
  put: "put a number there", zero: "put zeros there", scale: "multiply", add: "add a number", take: "take it from a second text", steer: "steer toward a second text",
  mean: "put the mean of a second text there", freeze: "freeze as it was", stop: "stop its gradient", put_gradient: "put a gradient there", scale_gradient: "multiply its gradient",
};
const BATCH_AXES = ["example", "position"];

export function changeForm(page) {
  const names = [...page.run.values, ...page.run.parameters, ...page.run.batch.map((name) => ({ name, axes: BATCH_AXES, shape: null }))];
  const saved = look("change").form ?? {};
  const form = { word: saved.word ?? "scale", name: names.some((one) => one.name === saved.name) ? saved.name : page.run.values[0].name, where: saved.where ?? {}, value: saved.value ?? 0.5, other: saved.other ?? "" };
  const place = make("form", { class: "stack" });
  place.addEventListener("submit", (event) => { event.preventDefault(); submitForm(page, form); });
  const draw = () => { look("change", { form: { ...form } }); fill(place, formFields(page, form, names, draw)); };
  draw();
  return place;
}

function formFields(page, form, names, draw) {
  const known = names.find((one) => one.name === form.name);
  const words = page.info.words;
  const select = make("select", { id: "form-word", onchange: (event) => { form.word = event.target.value; draw(); document.getElementById("form-word")?.focus(); } },
    words.all.map((word) => make("option", { value: word, selected: word === form.word }, CHANGE_WORDS[word] ?? word)));
  const name = make("input", { id: "form-name", list: "form-names", class: "mono wide", autocomplete: "off", spellcheck: false, value: form.name, onchange: () => { form.name = name.value; form.where = {}; draw(); } });
  const fields = (known?.axes ?? []).map((axis, n) => placeField(form, axis, known.shape?.[n]));
  // The heads stand side by side in what the last matrix of attention reads: one of them by its number.
  if (form.name.endsWith("attention.output.x")) fields.push(placeField(form, "head", page.run.heads));
  return [make("div", { class: "row" }, make("label", {}, "What to do", select),
    make("label", { for: "form-name" }, "Value", name, make("datalist", { id: "form-names" }, names.map((one) => make("option", { value: one.name }))))),
  make("div", { class: "row", role: "group", "aria-label": "Where" }, fields),
  make("div", { class: "row" }, words.number.includes(form.word) ? numberField(form) : null, words.other.includes(form.word) ? otherField(form) : null, make("button", { class: "main" }, "Do it"))];
}

function placeField(form, axis, size) {
  const box = make("input", { type: "number", step: "1", placeholder: "all", value: form.where[axis] ?? "" });
  box.addEventListener("change", () => {
    const where = { ...form.where };
    if (box.value === "") delete where[axis]; else where[axis] = Math.round(Number(box.value));
    form.where = where;
    look("change", { form: { ...form } });
  });
  return make("label", { class: "narrow" }, size ? `${axis} of ${size}` : axis, box);
}

function numberField(form) {
  const titles = { steer: "Share of the way", scale: "Factor", scale_gradient: "Factor" };
  const box = make("input", { type: "number", step: "any", value: String(form.value), onchange: () => { form.value = Number(box.value) || 0; look("change", { form: { ...form } }); } });
  return make("label", { class: "narrow" }, titles[form.word] ?? "Number", box);
}

function otherField(form) {
  return secondText("Second text", form.other, (text) => { form.other = text; look("change", { form: { ...form } }); });
}

// A field for another text; how the model reads it is said below.
export function secondText(title, value, act) {
  const box = make("input", { type: "text", class: "wide", autocomplete: "off", spellcheck: false });
  const said = make("span", { class: "quiet", role: "status" });
  const say = async () => {
    if (!box.value) { fill(said); return; }
    try {
      const found = await ask("second", { state: runState(), other: box.value });
      const read = (found.source ?? found.tokens).map((token) => make("span", { class: "token" }, visible(token.label)));
      fill(said, make("span", { class: "tokens" }, read), found.fits ? "as many tokens" : make("span", { class: "bad" }, "not as many tokens: places do not line up"));
    } catch (error) {
      fill(said, make("span", { class: "bad" }, error.message));
    }
  };
  box.value = value;
  box.addEventListener("change", () => { act(box.value); say(); });
  say();
  return make("label", {}, title, box, said);
}

function submitForm(page, form) {
  const { words } = page.info;
  const where = Object.fromEntries(Object.entries(form.where).filter(([, number]) => Number.isInteger(number)));
  tryChanges([{ word: form.word, name: form.name, where, value: words.number.includes(form.word) ? form.value : 0, other: words.other.includes(form.word) ? form.other : "" }]);
}
