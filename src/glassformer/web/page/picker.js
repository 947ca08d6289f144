// Choose a token by its text, from all that the model knows.

import { button, fill, make, visible, whole } from "./dom.js";
import { ask } from "./server.js";
import { state } from "./state.js";

let pickerCount = 0;

// settings: title, part (tokens, source or classes), onpick({id, label}), enters (Enter picks a token that is
// written as the text is)
export function tokenPicker(settings) {
  const id = `picker-${(pickerCount += 1)}`;
  const list = make("div.tokens.picked", { id: `${id}-list`, role: "group", "aria-label": "Tokens found" });
  const said = make("p.quiet", { role: "status" });
  const box = make("input", {
    type: "search",
    id,
    autocomplete: "off",
    spellcheck: false,
    placeholder: "a text, or #12",
    "aria-controls": `${id}-list`,
  });
  let asked = 0;
  let waiting = null;
  const look = async () => {
    const mine = (asked += 1);
    try {
      const found = await ask("vocabulary", { model: state().model, part: settings.part, text: box.value });
      if (mine !== asked) return;
      fill(
        list,
        found.tokens.map((token) =>
          button(visible(token.label), () => settings.onpick(token), {
            class: "token",
            title: `token ${token.id}`,
            "data-label": token.label,
          }),
        ),
      );
      fill(
        said,
        found.found > found.tokens.length
          ? `the closest ${found.tokens.length} of ${whole(found.found)}`
          : found.found
            ? `${whole(found.found)} found`
            : "No token of this model has that in it.",
      );
    } catch (error) {
      fill(said, make("span.bad", error.message));
    }
  };
  const enter = () => {
    const first = list.querySelector("button");
    const isMeant =
      settings.enters && (/^#\d+$/.test(box.value) || first?.dataset.label.trim() === box.value.trim());
    first?.[isMeant ? "click" : "focus"]();
  };
  box.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(look, 120);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      clearTimeout(waiting);
      look().then(enter);
    }
  });
  look();
  return make("div.stack.picker", make("label", { for: id }, settings.title, box), said, list);
}
