// The lens: what the model would say at each point of the residual stream, and what adds to a logit.

import { colored, onTheme } from "./color.js";
import { button, fill, make, short, visible, whole } from "./dom.js";
import { lensAttribution } from "./lens_parts.js";
import { openCard } from "./card.js";
import { kept, live } from "./kept.js";
import { work } from "./server.js";
import { look, runState } from "./state.js";

const LENS_WIDTHS = [8, 16, 32, 64];
let lensAsking = null;
let lensShown = null;
onTheme(() => {
  if (lensShown?.table.isConnected) lensTable(lensShown);
});

function lensPercent(p) {
  if (p < 0.0005) return p === 0 ? "0 %" : "< 0.1 %";
  return p === 1
    ? "100 %"
    : p >= 0.9995
      ? "> 99.9 %"
      : `${(p * 100).toFixed(p < 0.0995 || p >= 0.995 ? 1 : 0)} %`;
}

export function drawLens(place, page) {
  const title = make("h2", "Lens");
  const answer = page.info.classes ? "class" : "token";
  if (page.info.vectors) {
    fill(
      place,
      title,
      make("p", "This model has no head to read the stream with: it returns vectors, not predictions."),
      make(
        "p.quiet",
        "Open a decoder, an encoder-decoder or a classifier to use the lens. The scene shows what this " +
          "model computes.",
      ),
    );
    return;
  }
  const own = {
    page,
    set: lensSettings(page),
    table: make("div.scroll.lens-scroll", {
      tabindex: "0",
      role: "region",
      "aria-label": "What each layer would say",
    }),
    said: make("p.lens-said", { "aria-live": "polite" }),
    progress: make("div.lens-progress"),
    parts: make("section.stack.tight"),
    found: null,
  };
  own.redo = (parts) => {
    look("lens", parts);
    page.redraw();
  };
  fill(
    place,
    title,
    make(
      "p.quiet",
      "The residual stream has the same width after every block, so the head can read it anywhere: each " +
        `cell is the ${answer} that the model would predict if it stopped there.`,
    ),
    lensChoosers(own),
    own.progress,
    own.said,
    own.table,
    own.parts,
  );
  fill(
    own.said,
    (own.set.token === null
      ? ""
      : `Each cell shows the rank and the probability of the ${answer} you follow. `) +
      `Point at a cell for its likeliest ${answer === "class" ? "classes" : "tokens"}` +
      (kept ? "." : "; click it to follow the first."),
  );
  lensAsk(own);
  lensAttribution(own.parts, page, own.set);
}

function lensSettings(page) {
  const set = look("lens");
  const size = page.run.tokens.length;
  const count = LENS_WIDTHS.includes(set.count) ? set.count : LENS_WIDTHS[0];
  const first = Math.max(0, Math.min(set.first ?? size - count, size - count));
  return {
    size,
    count,
    first,
    token: set.token ?? null,
    between: set.between === true,
    against: set.against ?? null,
    position: set.position ?? null,
  };
}

function lensChoosers(own) {
  const { set, page } = own;
  const classes = page.info.classes;
  const token = make("input", {
    type: "text",
    value: set.token ?? "",
    placeholder: "any",
    list: "lens-tokens",
    autocomplete: "off",
    spellcheck: false,
    ...live,
    onchange: () => own.redo({ token: token.value === "" ? null : token.value }),
  });
  const between = make("input", {
    type: "checkbox",
    checked: set.between,
    ...live,
    onchange: () => own.redo({ between: between.checked }),
  });
  return make(
    "div.row",
    make("label", classes ? "Follow a class" : "Follow a token (its text, or #id)", token),
    set.token === null ? null : button("Follow none", () => own.redo({ token: null }), live),
    make(
      "datalist",
      { id: "lens-tokens" },
      (page.run.next ?? []).map((one) => make("option", { value: `#${one.id}` }, one.label)),
    ),
    make("label.lens-check", between, "also between attention and feed-forward"),
    classes || set.size <= LENS_WIDTHS[0] ? null : lensWindow(own),
  );
}

function lensWindow(own) {
  const { first, count, size } = own.set;
  const from = make("input", {
    type: "number",
    min: "0",
    max: String(size - 1),
    value: String(first),
    ...live,
    onchange: () => own.redo({ first: Number(from.value) || 0 }),
  });
  const many = make(
    "select",
    { ...live, onchange: () => own.redo({ count: Number(many.value), first: undefined }) },
    LENS_WIDTHS.map((n) => make("option", { value: String(n), selected: n === count }, String(n))),
  );
  return make(
    "div.row",
    make("label", `Positions of ${whole(size)}, from`, from),
    make("label", "at once", many),
    button("◀ earlier", () => own.redo({ first: Math.max(0, first - count) }), {
      ...live,
      disabled: Boolean(kept) || first === 0,
    }),
    button("later ▶", () => own.redo({ first: first + count }), {
      ...live,
      disabled: Boolean(kept) || first + count >= size,
    }),
  );
}

async function lensAsk(own) {
  lensAsking?.abort();
  const { set } = own;
  const question = { state: runState(), token: set.token, between: set.between };
  if (!own.page.info.classes) Object.assign(question, { first: set.first, count: set.count });
  const asking = new AbortController();
  lensAsking = asking;
  const show = (job) => {
    if (asking.signal.aborted) return;
    fill(
      own.progress,
      make(
        "div.row",
        make("progress", { max: job.total || 1, value: job.done, "aria-label": "reading the stream" }),
        button("Stop", () => asking.abort()),
      ),
    );
    if (job.partial?.columns.length) lensTable(Object.assign(own, { found: job.partial }));
  };
  try {
    const found = await work("lens", question, show, asking.signal);
    if (asking.signal.aborted) return;
    fill(own.progress);
    lensTable(Object.assign(own, { found }));
  } catch (error) {
    const stopped = asking.signal.aborted;
    fill(
      own.progress,
      make("p", { class: stopped ? "quiet" : "bad" }, stopped ? "Stopped." : error.message),
      stopped ? button("Go on", () => lensAsk(own)) : null,
    );
  }
}

function lensTable(own) {
  lensShown = own;
  const { found, page } = own;
  const classes = page.info.classes;
  const head = make(
    "tr",
    make("th", { scope: "col" }, "after"),
    found.columns.map((column) =>
      make(
        "th",
        { scope: "col", class: "mono" },
        classes
          ? "the whole text"
          : [
              visible(page.run.tokens[column.position]?.label ?? "?"),
              make("small", ` at ${column.position}`),
            ],
      ),
    ),
  );
  const rows = found.points.map((point, row) =>
    make(
      "tr",
      make("th", { scope: "row" }, point.label),
      found.columns.map((column) => lensCell(own, row, column)),
    ),
  );
  const scrolled = own.table.firstChild ? own.table.scrollLeft : null;
  fill(own.table, make("table.lens-table", make("thead", head), make("tbody", rows)));
  own.table.scrollLeft = scrolled ?? own.table.scrollWidth;
}

function lensCell(own, row, column) {
  const { found } = own;
  const cell = column.cells[row];
  const followed = cell.chance !== null;
  const p = followed ? cell.chance : cell.p[0];
  const label = (id) => visible(found.labels[id] ?? `#${id}`);
  const inside =
    own.page.info.classes && !followed
      ? cell.ids.map((id, n) => make("span.lens-class", `${label(id)} ${lensPercent(cell.p[n])}`))
      : [
          make("span.word", followed ? `rank ${whole(cell.rank)}` : label(cell.ids[0])),
          make("span.share", lensPercent(p)),
        ];
  const title =
    `${found.points[row].label}: ` +
    `${cell.ids.map((id, n) => `${label(id)} ${lensPercent(cell.p[n])}`).join(", ")}`;
  const say = () =>
    fill(
      own.said,
      make(
        "b",
        `After ${found.points[row].label}` +
          `${column.position === null ? "" : `, position ${column.position}`}: `,
      ),
      cell.ids.map((id, n) => make("span.token", `${label(id)} ${lensPercent(cell.p[n])}`)),
      followed ? ` ${visible(found.token.label)}: ${short(cell.chance, 3)}, rank ${whole(cell.rank)}` : "",
    );
  const pick = () => {
    if (!kept) own.redo({ token: `#${cell.ids[0]}`, position: column.position, against: null });
    if (row === found.points.length - 1)
      openCard({
        name: "logits",
        index: column.position === null ? [0, cell.ids[0]] : [0, column.position, cell.ids[0]],
      });
  };
  return make(
    "td",
    button(inside, pick, {
      class: "lens-cell",
      title,
      onpointerenter: say,
      onfocus: say,
      style: colored(p, 1, false),
    }),
  );
}
