// A conversation: who said what, and the prompt that it becomes.

import { button, fill, make, tell, whole } from "./dom.js";
import { ask } from "./server.js";
import { look, state } from "./state.js";
import { page } from "./page.js";

export function chatOn() {
  return !!look("writing").chatting && !!page.info?.chats;
}

export function chatMessages() {
  const { system = "", chat = [] } = look("writing");
  return chat.length ? [...(system ? [{ role: "system", content: system }] : []), ...chat] : [];
}

// writer: {answer(), begin(page)}
export function chatBox(page, writer) {
  const modes = [
    ["Continue the text", false],
    ["Chat", true],
  ].map(([title, on]) =>
    button(
      title,
      () => {
        look("writing", { chatting: on, path: [] });
        page.redraw();
      },
      { "aria-pressed": String(chatOn() === on) },
    ),
  );
  const switcher = make("div.row", { role: "group", "aria-label": "How it writes" }, modes);
  if (!chatOn()) return switcher;
  return make(
    "div.stack",
    switcher,
    make(
      "section.box.stack",
      make("h2", "Conversation"),
      chatSystem(page),
      chatTurns(),
      chatInput(page, writer),
      chatPrompt(),
    ),
  );
}

function chatSystem(page) {
  const field = make("textarea", {
    rows: 1,
    spellcheck: false,
    value: look("writing").system ?? "",
    onchange: () => {
      look("writing", { system: field.value.trim(), path: [] });
      page.redraw();
    },
  });
  return make("label.broad", "system (empty: what the template says)", field);
}

function chatTurns() {
  const turns = chatMessages().filter((message) => message.role !== "system");
  if (!turns.length) return null;
  return make(
    "ol.turns",
    turns.map((message) =>
      make("li", { class: message.role }, make("b", message.role), make("p", message.content)),
    ),
    make("li.assistant", make("b", "assistant"), make("p", { id: "chat-answer" })),
  );
}

// The answer as far as it was written.
export function chatAnswer(text) {
  const place = document.getElementById("chat-answer");
  if (place) fill(place, text || "…");
}

function chatInput(page, writer) {
  const field = make("textarea", { rows: 2 });
  const send = async () => {
    const said = field.value.trim();
    if (!said) {
      tell("Say something first.");
      return;
    }
    const { chat = [] } = look("writing");
    const answer = chat.length ? writer.answer().trim() : "";
    const before = chat.length
      ? answer
        ? [...chat, { role: "assistant", content: answer }]
        : chat.slice(0, -1)
      : [];
    look("writing", { chat: [...before, { role: "user", content: said }] });
    await writer.begin(page);
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send();
    }
  });
  return make(
    "div.row",
    make("label.broad", "user", field),
    button("Send", send, { class: "main" }),
    button(
      "Clear the conversation",
      () => {
        look("writing", { chat: [], path: [] });
        page.redraw();
      },
      { disabled: !chatMessages().length },
    ),
  );
}

function chatPrompt() {
  const inside = make("pre", { tabindex: "0" });
  const said = make("p.quiet");
  const details = make("details", make("summary", "The prompt, as the model reads it"), said, inside);
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    if (!chatMessages().length) {
      fill(said, "Say something first.");
      return;
    }
    try {
      const found = await ask("prompt", { model: state().model, chat: chatMessages() });
      fill(inside, found.text);
      fill(said, `${whole(found.count)} of ${whole(found.context)} tokens`);
    } catch (error) {
      fill(said, error.message);
    }
  });
  return details;
}
