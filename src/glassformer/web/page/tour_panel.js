// The panel of a tour: where one is, what to think about, and what was right.

import { button, make, short } from "./dom.js";

// parts: title, number, count, heading, text, trouble, question {question, choices, right} or {question, number, tolerance}, given, answer(value), back, next, finish, leave, again
export function tourPanel(parts) {
  const top = make("div", { class: "row tour-top" }, make("span", { class: "quiet" }, parts.count ? `${parts.title}, step ${parts.number + 1} of ${parts.count}` : parts.title),
    make("span", { class: "grow" }), button("Leave the tour", parts.leave));
  if (!parts.count) return [top, make("p", {}, parts.text), parts.again ? button("Begin it here", parts.again, { class: "main" }) : null];
  const answered = parts.given !== undefined;
  return [
    top, make("div", { class: "tour-body" }, make("div", { class: "stack tight" }, make("h2", { tabindex: "-1" }, parts.heading), make("p", {}, parts.text), parts.trouble ? make("p", { class: "bad" }, parts.trouble) : null),
      parts.question ? tourQuestion(parts, answered) : null),
    make("div", { class: "row" }, parts.back ? button("Back", parts.back) : null,
      parts.question && !answered ? button("Show me", () => parts.answer(null)) : null,
      parts.next ? button("Next", parts.next, { class: "main", disabled: Boolean(parts.question) && !answered }) : null,
      parts.next ? null : button("Done", parts.finish, { class: "main", disabled: Boolean(parts.question) && !answered })),
  ];
}

function tourQuestion(parts, answered) {
  const { question } = parts;
  const box = make("div", { class: "tour-question", role: "group", "aria-label": question.question }, make("p", {}, make("b", {}, question.question)));
  box.append(question.choices ? tourChoices(parts, answered) : tourField(parts, answered));
  if (answered) box.append(make("p", { class: "tour-why", role: "status" }, make("b", { class: tourIsRight(question, parts.given) ? "good" : null }, tourVerdict(question, parts.given)), ` ${question.why}`));
  return box;
}

function tourChoices({ question, given, answer }, answered) {
  return make("div", { class: "row" }, question.choices.map((choice, number) => {
    const mark = answered && number === question.right ? "✓ " : answered && number === given ? "✗ " : "";
    return button(`${mark}${choice}`, () => answer(number), { disabled: answered && number !== question.right && number !== given, "aria-pressed": answered ? String(number === given) : null, class: answered && number === question.right ? "right" : null });
  }));
}

function tourField({ question, given, answer }, answered) {
  const input = make("input", { type: "number", step: "any", value: answered && given !== null ? String(given) : "", disabled: answered });
  const check = () => { if (input.value !== "" && Number.isFinite(Number(input.value))) answer(Number(input.value)); else input.focus(); };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // what gets the focus next must not take this key for its own
    check();
  });
  return make("div", { class: "row" }, make("label", {}, "Your number", input), answered ? null : button("Check", check, { class: "main" }));
}

function tourIsRight(question, given) {
  if (given === null) return false;
  if (question.choices) return given === question.right;
  return Math.abs(given - question.number) <= Math.max(question.tolerance * Math.abs(question.number), question.tolerance ? 0.005 : 0);
}

function tourVerdict(question, given) {
  const truth = question.choices ? question.choices[question.right] : short(question.number, 4);
  if (given === null) return `It is: ${truth}.`;
  return tourIsRight(question, given) ? "Right." : `Not quite: ${truth}.`;
}
