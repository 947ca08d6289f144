// Writing: one token after the other, with everything else that could have come; any of them can be gone on
// from.

import { button, fill, make, tell, visible, whole } from "./dom.js";
import { live } from "./kept.js";
import { ask, work } from "./server.js";
import { change, look, state, wantedRun } from "./state.js";
import { writingBars, writingCut } from "./bars.js";
import { chatAnswer, chatBox, chatMessages, chatOn } from "./chat.js";
import { changeInWords } from "./trials.js";
import {
  SETTINGS,
  writing,
  writingAdd,
  writingKey,
  writingPath,
  writingQuestion,
  writingRoot,
} from "./writing_tree.js";
import { classesBox, masksBox, piecesBox, similarityBox } from "./texts.js";

export function drawWriting(view, page) {
  writing.stop?.();
  // A file shows what was written, and writes no more.
  const place = make("fieldset.stack", { ...live });
  view.append(place);
  if (page.info.reads === false) {
    place.append(
      make("p.quiet", "This model was given a batch of ids, and no tokenizer to read and write texts with."),
    );
    return;
  }
  if (page.info.vectors) {
    place.append(similarityBox(), piecesBox(page));
    return;
  }
  if (page.info.classes) {
    place.append(classesBox(page), piecesBox(page));
    return;
  }
  if (!page.info.writes) {
    place.append(masksBox(), piecesBox(page));
    return;
  }
  writing.parts = writingParts(page);
  place.append(page.info.chats ? chatBox(page, writingChat) : "", writing.parts.root, piecesBox(page));
  const key = writingKey();
  // It was written behind another text.
  if (writing.key !== null && writing.key !== key) look("writing", { path: [] });
  Object.assign(writing, { key, node: writingRoot(), found: null });
  writingRestore(look("writing").path ?? []).catch((error) => writingRefused(error));
}

// Go to the end of what the address remembers, where it fits this text.
async function writingRestore(ids) {
  if (!ids.length) {
    await writingShow();
    return;
  }
  const mine = (writing.turn += 1);
  try {
    const found = await ask("next", writingQuestion(ids));
    if (mine !== writing.turn) return;
    found.written.forEach((token) => {
      writing.node = writingAdd(writing.node, token);
    });
  } catch {
    look("writing", { path: [] }); // of another text
  }
  await writingShow();
}

function writingGo(node) {
  writing.node = node;
  look("writing", { path: writingPath().map((one) => one.id) });
  return writingShow();
}

// --- what is drawn -----------------------------------------------------------------------------------------

function writingParts(page) {
  const parts = {
    path: make("div.tokens", { "aria-label": "What was read and written" }),
    note: make("p.quiet"),
    bars: make("div.bars"),
    cut: make("p.quiet"),
    tree: make("section.box.stack"),
    actions: make("div.row"),
    progress: make("span.quiet", { role: "status" }),
    wrong: make("p.bad"),
    limits: make("div"),
  };
  const source = page.run.source
    ? [
        make("h2", "Source"),
        make(
          "div.tokens",
          page.run.source.map((token) => make("span.token", visible(token.label))),
        ),
      ]
    : null;
  parts.root = make(
    "div.stack",
    make(
      "section.box.stack",
      source ?? [],
      make("h2", page.run.source ? "Target" : chatOn() ? "The prompt and the answer" : "Text"),
      parts.path,
      parts.note,
      parts.wrong,
      parts.actions,
      parts.progress,
      parts.limits,
    ),
    make(
      "div.beside",
      make("section.box.stack", make("h2", "The next token"), writingSettings(), parts.bars, parts.cut),
      parts.tree,
    ),
  );
  writingActions(parts);
  return parts;
}

function writingSettings() {
  const now = look("writing");
  return make(
    "div.row",
    { role: "group", "aria-label": "How the next token is drawn" },
    Object.entries(SETTINGS).map(([name, one]) => {
      const { title, usual, ...limits } = one;
      const value = now[name] ?? usual;
      const field = make("input", {
        type: "number",
        ...limits,
        value: value === null ? "" : String(value),
        id: `writing-${name}`,
        onchange: () => {
          look("writing", { [name]: field.value === "" ? null : Number(field.value) });
          writingShow();
        },
      });
      return make("label", title, field);
    }),
  );
}

function writingActions(parts) {
  const count = make("input", {
    type: "number",
    min: "1",
    max: "400",
    value: String(look("writing").count ?? 20),
    "aria-label": "Tokens at once",
    onchange: () => look("writing", { count: Number(count.value) || 20 }),
  });
  parts.one = button("Next token", () => writingStep(), { class: "main" });
  parts.many = button("Write on", () => writingMany(Number(count.value)));
  parts.halt = button("Stop", () => writing.stop?.(), { hidden: true });
  parts.back = button("Back", () => writing.node.parent && writingGo(writing.node.parent));
  parts.again = button("Start again", () => writingGo(writingRoot()));
  fill(
    parts.actions,
    parts.one,
    parts.many,
    count,
    make("span.quiet", "tokens at once"),
    parts.halt,
    parts.back,
    parts.again,
    button("Look at this text", writingLook),
  );
}

async function writingShow() {
  const mine = (writing.turn += 1);
  const { parts } = writing;
  writingTokens();
  writingTree();
  if (chatOn() && !chatMessages().length) {
    writingIdle("Say something first.");
    return;
  }
  try {
    const found = await ask("next", writingQuestion());
    if (mine !== writing.turn) return;
    writing.found = found;
    fill(parts.wrong);
    writingLimits(found.limits);
    writingTokens();
    chatAnswer(found.text);
    const ended = !!writing.node.ends;
    fill(
      parts.note,
      `${whole(found.read + found.written.length)} of ${whole(found.context)} tokens of the context`,
      found.full
        ? ": it is full, and nothing more can be written here. Go back, or begin with a shorter text."
        : ended
          ? ": the last token ends the text."
          : "",
    );
    for (const one of [parts.one, parts.many]) one.disabled = found.full || ended;
    const held = parts.bars.contains(document.activeElement);
    fill(
      parts.bars,
      found.full || ended ? null : writingBars(found, (token) => writingGo(writingAdd(writing.node, token))),
    );
    if (held) parts.bars.querySelector("button")?.focus();
    fill(parts.cut, found.full || ended ? null : writingCut(found));
  } catch (error) {
    if (mine === writing.turn) writingRefused(error);
  }
}

// Changes that are not made while it writes, or not at every token, each with the reason.
function writingLimits(limits) {
  const { changes, steps } = state();
  if (!changes.length && !steps.length) return;
  fill(
    writing.parts.limits,
    make(
      "p.quiet",
      limits.length
        ? "The model writes with the changes above, but for these:"
        : "The model writes with the changes above.",
    ),
    limits.length
      ? make(
          "ul.quiet",
          limits.map((one) => make("li", make("b", changeInWords(changes[one.change])), `: ${one.why}.`)),
        )
      : null,
  );
}

function writingIdle(said) {
  const { parts } = writing;
  writing.found = null;
  fill(parts.note, said);
  for (const place of [parts.bars, parts.cut, parts.wrong]) fill(place);
  for (const one of [parts.one, parts.many]) one.disabled = true;
}

function writingRefused(error) {
  writingIdle("");
  fill(writing.parts.wrong, error.message);
}

function writingTokens() {
  const { parts, found } = writing;
  const path = writingPath();
  const before = (found?.before ?? []).map((token) => make("span.token.given", visible(token.label)));
  const written = path.map((node) =>
    button(visible(node.label), () => writingGo(node), {
      class: "token",
      "aria-current": node === writing.node ? "true" : null,
      title: `id ${node.id}: go back to here`,
    }),
  );
  fill(parts.path, before, written);
  parts.back.disabled = parts.again.disabled = !path.length;
}

// The tree: what follows without a choice stands on one line, branches below it.
function writingTree() {
  const root = writingRoot();
  const { tree } = writing.parts;
  const here = new Set(writingPath());
  fill(
    tree,
    make("h2", "What was written so far"),
    root.children.length
      ? writingBranches(root, here)
      : make(
          "p.quiet",
          "Nothing yet. Take the next token, or click another one: every way that you went stays here.",
        ),
  );
}

function writingBranches(node, here) {
  return make(
    "ul.branches",
    node.children.map((child) => {
      const chain = [child];
      while (chain.at(-1).children.length === 1) chain.push(chain.at(-1).children[0]);
      const line = chain.map((one) =>
        button(visible(one.label), () => writingGo(one), {
          class: here.has(one) ? "token here" : "token",
          "aria-current": one === writing.node ? "true" : null,
        }),
      );
      return make(
        "li",
        make("div.tokens", line),
        chain.at(-1).children.length ? writingBranches(chain.at(-1), here) : null,
      );
    }),
  );
}

// --- going on ----------------------------------------------------------------------------------------------

function writingStep() {
  if (writing.found?.drawn) writingGo(writingAdd(writing.node, writing.found.drawn));
}

async function writingMany(count) {
  const control = new AbortController();
  const { parts } = writing;
  const begun = writing.node;
  const take = (tokens) => {
    writing.node = tokens.reduce((node, token) => writingAdd(node, token), begun);
    writingTokens();
  };
  writing.stop = () => control.abort();
  for (const one of [parts.one, parts.many]) one.disabled = true;
  parts.halt.hidden = false;
  try {
    const found = await work(
      "write",
      { ...writingQuestion(), count },
      (job) => {
        fill(parts.progress, job.note);
        if (job.partial) {
          take(job.partial.tokens);
          chatAnswer(job.partial.text);
        }
      },
      control.signal,
    );
    take(found.tokens);
  } catch (error) {
    if (error.fact !== "stopped") tell(error.message);
  }
  writing.stop = null;
  parts.halt.hidden = true;
  fill(parts.progress);
  if (parts === writing.parts && parts.root.isConnected) await writingGo(writing.node);
}

async function writingLook() {
  try {
    const question = writingQuestion();
    const found = await ask("written_text", {
      state: question.state,
      written: question.written,
      ...(question.chat ? { chat: question.chat } : {}),
    });
    await ask("run", { state: wantedRun({ text: found.text, answer: found.answer }) });
    look("writing", { path: [], chatting: false });
    change({ text: found.text, answer: found.answer, view: "scene" });
    if (!found.same)
      tell(
        `Read as text, it is ${whole(found.now)} tokens instead of ${whole(found.then)}: pieces that were ` +
          "written apart are read together, and names of special tokens as letters.",
      );
  } catch (error) {
    tell(error.message);
  }
}

// What the conversation asks for: a new turn, and the answer to it; the answer so far is a turn of the
// assistant.
const writingChat = {
  answer: () => writing.found?.text ?? "",
  begin: async (page) => {
    look("writing", { path: [] });
    page.redraw();
    await writingShow();
    if (chatMessages().length) await writingMany(look("writing").count ?? 60);
  },
};
