// What stands at the top of the page: the model, its text, the number whose gradient is shown, the changes.

import { closeCard } from "./card.js";
import { button, fill, make, short, visible } from "./dom.js";
import { live } from "./kept.js";
import { page } from "./page.js";
import { canRedo, canUndo, change, redo, state, undo } from "./state.js";
import { changeInWords } from "./trials.js";

/** @returns {any} */
const $ = (id) => document.getElementById(id);

export function drawTop() {
  const now = state();
  for (const field of ["text", "answer"]) clearWrong(field);
  if ($("top").contains(document.activeElement) && $("top").dataset.model === now.model) {
    fillTop(now);
    return;
  }
  $("top").dataset.model = now.model;
  const models = make(
    "select",
    {
      id: "model",
      onchange: (event) => {
        closeCard();
        change({
          model: event.target.value,
          text: "",
          answer: null,
          changes: [],
          steps: [],
          of: { kind: "loss" },
        });
      },
    },
    listed(now).map((offer) =>
      make("option", { value: offer.key, selected: offer.key === now.model }, offer.title),
    ),
  );
  const text =
    page.info?.reads === false
      ? null
      : field("text", page.info?.architecture === "encoder-decoder" ? "Source" : "Text", now.text, (value) =>
          change({ text: value, answer: null }),
        );
  const answer = page.info?.answers
    ? field(
        "answer",
        "Answer",
        now.answer ?? "",
        (value) => change({ answer: value === "" ? null : value }),
        "the model's own",
      )
    : null;
  fill($("top"), make("h1", "Glassformer"), make("label", "Model", models), text, answer, target(now));
}

// The models at hand, and the one that is open where it is not among them: a step of a training, or none.
function listed(now) {
  if (page.offers.some((offer) => offer.key === now.model)) return page.offers;
  return [
    {
      key: now.model,
      title: now.model ? (page.info?.title ?? now.model) : page.offers.length ? "choose one" : "none yet",
    },
    ...page.offers,
  ];
}

// A field with the focus keeps what is being typed, unless the page goes to another address.
export function fillTop(now, all = false) {
  for (const id of ["text", "answer"])
    if ($(id) && (all || $(id) !== document.activeElement)) $(id).value = now[id] ?? "";
  $("target")?.replaceWith(target(now));
}

function field(id, title, value, act, placeholder = null) {
  const onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      submit();
    }
  };
  const box = make("textarea", {
    id,
    rows: 1,
    placeholder,
    spellcheck: false,
    autocomplete: "off",
    ...live,
    value,
    onkeydown,
    onchange: () => submit(),
  });
  const submit = () => {
    if (box.dataset.refused === box.value) return; // it stays as it is until it is edited
    clearWrong(id);
    if (box.value !== (state()[id] ?? "")) act(box.value);
  };
  return make("label.text", title, box);
}

// The number whose gradient is shown.
function target(now) {
  const of = page.run?.of;
  const choices = [];
  if (page.run?.loss !== null && page.run) choices.push(["loss", "the loss", { kind: "loss" }]);
  for (const one of page.run?.next ?? [])
    choices.push([
      `logit ${one.id}`,
      `the logit of “${visible(one.label)}”`,
      { kind: "logit", token: one.id, position: -1 },
    ]);
  const own =
    now.of.kind === "loss" && of?.kind !== "loss"
      ? `${of?.kind} ${of?.token}`
      : now.of.kind === "logit"
        ? `logit ${now.of.token}`
        : now.of.kind;
  if (!choices.some(([key]) => key === own) && of) choices.push([own, of.title, now.of]);
  const select = make(
    "select",
    { ...live, onchange: (event) => change({ of: choices.find(([key]) => key === event.target.value)[2] }) },
    choices.map(([key, title]) =>
      make(
        "option",
        { value: key, selected: key === own },
        key === own ? `${title} = ${short(of?.value, 5)}` : title,
      ),
    ),
  );
  return make("label", { id: "target" }, "Gradient of", select);
}

export function sayWrong(field, typed, message) {
  const box = $(field);
  box.value = box.dataset.refused = typed;
  box.setAttribute("aria-invalid", "true");
  box.setAttribute("aria-describedby", `${field}-wrong`);
  box.after(make("span.bad.wrong", { id: `${field}-wrong`, role: "alert" }, message));
}

function clearWrong(field) {
  $(`${field}-wrong`)?.remove();
  for (const name of ["aria-invalid", "data-refused"]) $(field)?.removeAttribute(name);
}

// --- the list of changes -----------------------------------------------------------------------------------

export function drawStrip() {
  const { changes, steps } = state();
  if (!changes.length && !steps.length && !canRedo() && !canUndo()) {
    fill($("strip"));
    return;
  }
  const chips = changes.map((one, number) =>
    chip(changeInWords(one), page.run?.idle?.includes(number), () =>
      change({ changes: changes.filter((_, n) => n !== number) }),
    ),
  );
  const moves = steps.map((one, number) =>
    chip(`one step of ${one.optimizer}, rate ${one.lr}`, false, () =>
      change({ steps: steps.slice(0, number) }),
    ),
  );
  fill(
    $("strip"),
    changes.length + steps.length ? make("b", "Changed:") : null,
    moves,
    chips,
    button("Undo", undo, { disabled: !canUndo() }),
    button("Redo", redo, { disabled: !canRedo() }),
    changes.length + steps.length
      ? button("Take all back", () => change({ changes: [], steps: [] }), live)
      : null,
  );
}

function chip(text, idle, remove) {
  return make(
    "span.token",
    text,
    idle ? make("span.bad", " (altered nothing)") : null,
    " ",
    button("×", remove, { class: "link", "aria-label": `Take back: ${text}`, ...live }),
  );
}
