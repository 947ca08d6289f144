// What adds to a logit: heads, feed-forward layers, embeddings and biases as bars that sum to it.

import { button, fill, make, short, visible } from "./dom.js";
import { live } from "./kept.js";
import { work } from "./server.js";
import { headInScene } from "./scene_look.js";
import { change, look, runState, state } from "./state.js";

const BARS = 16; // parts with a bar of their own; the others are one bar together
const PART_KINDS = { embedding: "embeddings", head: "heads", feed_forward: "feed-forward", bias: "biases" };
let partsAsking = null;

// set: {token, against, position} as the lens has them
export function lensAttribution(place, page, set) {
  const title = make("h3", "What adds to a logit");
  const body = make("div.stack.tight");
  const redo = (parts) => {
    look("lens", parts);
    page.redraw();
  };
  fill(place, title, partsChoosers(page, set, redo), body);
  const question = {
    state: runState(),
    token: set.token,
    against: set.against,
    position: set.position ?? -1,
  };
  partsAsking?.abort();
  // A small model answers at once; a large one when it is asked, since it must run back for it.
  const start = () => askParts(body, question, page);
  if (page.info.parameters < 5e6 || look("lens").parts === true) start();
  else
    fill(
      body,
      button(
        "Take it apart",
        () => {
          look("lens", { parts: true });
          start();
        },
        { class: "main" },
      ),
    );
}

function partsChoosers(page, set, redo) {
  const field = (title, name, value, hint) => {
    const input = make("input", {
      type: "text",
      value: value ?? "",
      placeholder: hint,
      list: "lens-tokens",
      autocomplete: "off",
      spellcheck: false,
      ...live,
      onchange: () => redo({ [name]: input.value === "" ? null : input.value }),
    });
    return make("label", title, input);
  };
  const position = make("input", {
    type: "number",
    min: "0",
    max: String(page.run.tokens.length - 1),
    value: String(set.position ?? page.run.tokens.length - 1),
    ...live,
    onchange: () => redo({ position: Number(position.value) || 0 }),
  });
  const which = page.info.classes ? "class" : "token";
  return make(
    "div.row",
    make(
      "p.quiet.lens-why",
      set.token === null
        ? `The logit of the likeliest ${which}; follow another one above.`
        : `The logit of the ${which} that is followed above.`,
    ),
    field("minus the logit of", "against", set.against, "nothing"),
    page.info.classes ? null : make("label", "at position", position),
  );
}

async function askParts(body, question, page) {
  const asking = new AbortController();
  partsAsking = asking;
  fill(
    body,
    make(
      "div.row",
      make("progress", { "aria-label": "taking the logit apart" }),
      make("span.quiet", "running the logit back along the direct path"),
    ),
  );
  try {
    const found = await work("attribution", question, null, asking.signal);
    if (!asking.signal.aborted) fill(body, partsShown(found, page));
  } catch (error) {
    if (!asking.signal.aborted) fill(body, make("p.bad", error.message));
  }
}

function partsShown(found, page) {
  const name = `“${visible(found.token.label)}”`;
  const what = found.against
    ? `the logit of ${name} minus that of “${visible(found.against.label)}”`
    : `the logit of ${name}`;
  const kinds = Object.entries(found.by_kind).map(([kind, value]) => ({
    label: PART_KINDS[kind] ?? kind,
    value,
  }));
  const order = [...found.parts].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const all = look("lens").all === true;
  const shown = order
    .slice(0, all ? order.length : BARS)
    .map((part) => ({ label: partName(part), value: part.value, act: partLink(part, page), quiet: false }));
  const rest = order.slice(shown.length);
  if (rest.length)
    shown.push({
      label: `${rest.length} others together`,
      value: rest.reduce((sum, part) => sum + part.value, 0),
      act: null,
      quiet: true,
    });
  return [
    make(
      "p",
      `All parts sum to ${what}${found.position === null ? "" : ` at position ${found.position}`}: `,
      make("b.mono", short(found.value, 6)),
      ". Each part counts by its direct path to the logit; the scale of every norm is held fixed.",
    ),
    make(
      "div.lens-bars",
      partBars("By kind", kinds),
      partBars(all ? "All parts" : "The largest parts", shown),
    ),
    order.length > BARS
      ? make(
          "div.row",
          button(all ? "Show the largest" : `Show all ${order.length} parts`, () => {
            look("lens", { all: !all });
            page.redraw();
          }),
        )
      : null,
  ];
}

function partBars(title, bars) {
  const largest = Math.max(...bars.map((bar) => Math.abs(bar.value)), 1e-30);
  const rows = bars.map((bar) => {
    const length = `${(Math.abs(bar.value) / largest) * 50}%`;
    const strip = make("span", { class: bar.value < 0 ? "strip below" : "strip above" });
    Object.assign(strip.style, { width: length, left: bar.value < 0 ? `calc(50% - ${length})` : "50%" });
    const label = bar.act
      ? button(bar.label, bar.act, { class: "link" })
      : make("span", { class: bar.quiet ? "quiet" : null }, bar.label);
    return make(
      "tr",
      make("th", { scope: "row" }, label),
      make("td.lens-bar", make("span.axis"), strip),
      make("td.number.mono", `${bar.value < 0 ? "" : "+"}${short(bar.value, 4)}`),
    );
  });
  const total = bars.reduce((sum, bar) => sum + bar.value, 0);
  return make(
    "table.lens-parts",
    make("caption", title),
    make("tbody", rows),
    make(
      "tfoot",
      make("tr", make("th", { scope: "row" }, "sum"), make("td"), make("td.number.mono", short(total, 6))),
    ),
  );
}

function partName(part) {
  const crosses = part.name.includes("cross") ? "cross-attention " : "";
  if (part.kind === "head") return `layer ${part.layer} ${crosses}head ${part.head}`;
  if (part.kind === "feed_forward") return `layer ${part.layer} feed-forward`;
  const [, layer, of, bias] = /^(?:\w+\.)?blocks\.(\d+)\.(\w+)\.\w+\.(b)$/.exec(part.name) ?? [];
  return bias ? `layer ${layer} ${of.replace("_", "-")} bias` : part.name;
}

// A head can be looked at in the scene.
function partLink(part, page) {
  if (part.kind !== "head") return null;
  const kind = part.name.includes("cross")
    ? "cross"
    : page.info.architecture === "encoder"
      ? "encoder"
      : "decoder";
  return () =>
    change(
      {
        view: "scene",
        look: {
          ...state().look,
          ...headInScene(kind, part.name.replace(/\.output.*$/, ""), part.layer, part.head),
        },
      },
      { undoable: false },
    );
}
