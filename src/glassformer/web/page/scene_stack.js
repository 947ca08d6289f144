// One stack of the model as a picture: lanes of tokens, stations of vectors, and what is pointed at.

import { openCard } from "./card.js";
import { button, exact, fill, make, visible, whole } from "./dom.js";
import { answersTall, sceneAnswers } from "./scene_answers.js";
import { headCards } from "./scene_cards.js";
import { drawLines, drawRibbons } from "./scene_flow.js";
import { hasTwo, lanesOf, layOut } from "./scene_layout.js";
import { setScene, zoomTo } from "./scene_look.js";
import { heading, hint, reads } from "./scene_said.js";
import { loadStrip, stripAt } from "./scene_strip.js";
import { tokenButtons } from "./scene_tokens.js";
import { look } from "./state.js";

const TITLES = {
  embedding: "embedding",
  stream: "stream",
  norm: "norm",
  query: "query",
  key: "key",
  value: "value",
  weights: "attention",
  mixture: "mixture",
  adds: "adds",
  hidden: "neurons",
  vectors: "vectors",
  pool: "pooled",
};

const openBefore = new Map(); // by stacks, the block that was open in the picture before

export class StackPicture {
  constructor(part, { page, found, whats, wide, isLast, outcome, fades }) {
    this.part = part;
    this.page = page;
    this.found = found;
    this.whats = whats;
    this.wide = wide;
    this.isLast = isLast;
    this.outcome = outcome;
    this.fades = fades;
    this.loads = [];
    this.tiles = new Map();
    this.lengths = {};
    this.what = "value";
    this.weights = null; // of the chosen head: {station, found, keys, from}
    this.tokens = []; // their buttons
    this.every = 1; // lanes of one button
    this.litToken = null;
    this.pop = null; // the form at a token
    this.words = part.words.map(visible);
    // A learned vector may stand before the tokens.
    this.ahead = this.words.length - page.run[part.tokens].length;
    this.element = make("div.scene-stack", { "data-stack": part.stack });
    this.key = part.stack;
    const own = look("scene")[part.stack] ?? {};
    const block = part.blocks[Math.max(0, Math.min(part.blocks.length - 1, own.open ?? 0))];
    this.open = part.blocks.indexOf(block);
    this.attention = own.attention ?? (block && hasTwo(block) ? "cross_attention" : "attention");
    this.head = Math.max(
      0,
      Math.min((page.run.heads?.[part.stack] ?? page.run.heads ?? 1) - 1, own.head ?? 0),
    );
    this.pinned = own.lane ?? null;
    this.first = own.first;
  }

  set(parts, push = true) {
    setScene({ [this.key]: { ...look("scene")[this.key], ...parts } }, push);
  }

  draw() {
    const { part, page } = this;
    const lanes = lanesOf(this.words.length, this.first);
    const hasAnswers = this.isLast && Boolean(page.run.next);
    this.plan = layOut(part, {
      words: this.words,
      lanes,
      open: this.open,
      attention: this.attention,
      wide: this.wide,
      hasAnswers,
      isFirst: page.info.classes, // a class is read from one vector
    });
    const { plan } = this;
    this.under = make("canvas.scene-under", { "aria-hidden": "true" });
    this.over = make("canvas.scene-over", { "aria-hidden": "true" });
    this.under.redraw = () => this.widen(this.lengths, this.what); // in the colors of another theme
    this.said = make("p.scene-said", { role: "status" });
    const picture = make(
      "div.scene-picture",
      {
        style: {
          width: `${plan.width}px`,
          height: `${Math.max(plan.height, plan.answers ? plan.top + answersTall(page, this.outcome) : 0)}px`,
        },
      },
      this.under,
      plan.frames.map((frame) => this.frame(frame)),
      plan.closed.map((one) => this.closed(one)),
      plan.stations.map((one) => this.station(one)),
      this.over,
      tokenButtons(this),
      plan.answers ? sceneAnswers(page, this.outcome, plan.answers) : null,
    );
    this.picture = picture;
    const traveler = this.traveler();
    if (traveler) picture.append(traveler);
    picture.addEventListener("pointerleave", () => this.light(this.pinned));
    fill(
      this.element,
      heading(this),
      make(
        "div.scene-scroll",
        { tabindex: "0", role: "group", "aria-label": "Picture; scroll sideways" },
        picture,
      ),
      headCards(this),
      this.said,
    );
    this.light(this.pinned);
  }

  // When a block was opened, a token's vector travels through it once.
  traveler() {
    const { plan, key, open } = this;
    const frame = plan.frames.find((one) => one.kind === "block");
    const before = openBefore.get(key);
    openBefore.set(key, open);
    if (!frame || before === undefined || before === open) return null;
    const row = (this.pinned ?? plan.lanes[1] - 1) - plan.lanes[0];
    const one = make("div.scene-traveler", {
      "aria-hidden": "true",
      style: {
        left: `${frame.x}px`,
        top: `${plan.top + (row - 0.25) * plan.lane}px`,
        height: `${plan.lane * 1.5}px`,
      },
    });
    one.style.setProperty("--far", `${frame.width - 50}px`);
    return one;
  }

  frame({ kind, title, x, width, part }) {
    const isClosed =
      part && hasTwo(this.part.blocks[this.open]) && part !== "feed_forward" && part !== this.attention;
    const label = isClosed
      ? button(title, () => this.set({ attention: part, head: 0 }), {
          class: "scene-frame-title",
          "aria-label": `Open ${title}`,
        })
      : make("span.scene-frame-title", title);
    return make(
      "div",
      {
        class: `scene-frame ${kind} ${part ?? ""}`,
        style: {
          left: `${x}px`,
          width: `${width}px`,
          height: `${this.plan.height - 6 - (kind === "part" ? 26 : 0)}px`,
          top: kind === "part" ? "22px" : "0",
        },
      },
      label,
    );
  }

  closed(one) {
    const canvas = make("canvas", { "aria-hidden": "true" });
    const place = { ...one, kind: "stream", isLane: true };
    this.loads.push(this.load(canvas, place));
    const every = Math.ceil(this.part.blocks.length / 12);
    return make(
      "button",
      {
        type: "button",
        class: "scene-closed",
        title: `open block ${one.layer}`,
        "aria-label": `Open block ${one.layer}`,
        onclick: () => this.set({ open: one.layer }),
        style: {
          left: `${one.x}px`,
          top: `${one.y - 22}px`,
          width: `${one.width}px`,
          height: `${one.height + 22}px`,
        },
      },
      make("span", one.layer % every === 0 ? String(one.layer) : ""),
      canvas,
    );
  }

  station(one) {
    // Then keys and values show all tokens, as the lines need them.
    const isCut = this.plan.lanes[1] - this.plan.lanes[0] < this.plan.count;
    const place = {
      ...one,
      isLane: one.rows === this.part.tokens && !(isCut && ["key", "value"].includes(one.kind)),
    };
    const canvas = make("canvas", {
      "data-name": one.name,
      style: { width: `${one.width}px`, height: `${one.height}px` },
    });
    const says = this.found.says[one.kind];
    const title = make(
      "button",
      {
        type: "button",
        class: "scene-title",
        title: `${says}. Click to see ${one.name} large.`,
        onclick: () => zoomTo(one.name),
        "data-key": one.name,
        "aria-pressed": String(look("scene").zoom === one.name),
      },
      one.kind === "weights"
        ? `head ${this.head}`
        : one.kind === "stream" && this.part.sums
          ? one.width < 44
            ? "⊕"
            : "⊕ stream"
          : one.kind === "adds" && !this.part.sums
            ? "result"
            : TITLES[one.kind],
    );
    this.loads.push(this.load(canvas, place));
    canvas.addEventListener("pointermove", (event) => this.point(event, place, canvas));
    canvas.addEventListener("click", (event) => this.pick(event, place, canvas));
    const figure = make(
      "figure",
      {
        class: `scene-station ${one.kind}`,
        style: { left: `${one.x}px`, top: "0", width: `${one.width}px`, height: `${one.y + one.height}px` },
      },
      title,
      one.kind === "weights" ? this.columnWords(place) : null,
      canvas,
    );
    if (one.words) figure.append(this.sideWords(one));
    return figure;
  }

  keyWords(place) {
    return place.part === "cross_attention" ? this.found.parts[0].words.map(visible) : this.words;
  }

  columnWords(place) {
    const words = this.keyWords(place);
    const each = place.width / words.length;
    if (each < 9)
      return make("div.scene-columns.many", { "aria-hidden": "true" }, `${whole(words.length)} keys →`);
    return make(
      "div.scene-columns",
      { "aria-hidden": "true" },
      words.map((word, n) => make("span", { style: { left: `${(n + 0.5) * each}px` } }, cutWord(word))),
    );
  }

  // Tokens of the source beside the keys of cross-attention.
  sideWords(place) {
    const words = this.found.parts[0].words.map(visible);
    const each = place.height / words.length;
    return make(
      "div.scene-side",
      {
        "aria-hidden": "true",
        style: { width: `${place.words}px`, left: `${-place.words}px`, height: `${place.height}px` },
      },
      words.map((word) =>
        make(
          "span",
          { style: { height: `${each}px`, lineHeight: `${each}px`, fontSize: `${Math.min(12, each)}px` } },
          each < 8 ? "" : cutWord(word),
        ),
      ),
    );
  }

  async load(canvas, place, { head = this.head, fades = this.fades } = {}) {
    try {
      const whats = place.kind === "weights" && this.whats.length > 1 ? this.whats.slice(0, 1) : this.whats;
      const found = await loadStrip(canvas, place, this.plan, whats, { head, fades });
      if (!canvas.dataset.name) return;
      this.tiles.set(place.name, found);
      if (place.kind === "weights") await this.lines(place, head);
    } catch (error) {
      canvas.title = error.message;
      canvas.dataset.painted = "no";
    }
  }

  // Lines show attention itself, whatever the picture shows.
  async lines(place, head) {
    const [found] =
      this.whats[0] === "value"
        ? this.tiles.get(place.name)
        : await loadStrip(make("canvas"), place, this.plan, ["value"], { head });
    const from =
      this.plan.stations.find((one) => one.part === place.part && one.kind === "value") ??
      this.plan.stations.find((one) => one.part === place.part);
    this.weights = { station: place, found, keys: place.shape.at(-1), from };
    this.light(this.pinned);
  }

  widen(lengths, what) {
    this.lengths = lengths;
    this.what = what;
    drawRibbons(this.under, this.plan, lengths, what);
    this.light(this.pinned);
  }

  light(lane) {
    const isShown = lane !== null && lane >= this.plan.lanes[0] && lane < this.plan.lanes[1];
    drawLines(this.over, this.plan, this.weights, isShown ? lane : null);
    if (this.litToken) this.litToken.classList.remove("lit");
    this.litToken = isShown ? this.tokens[Math.floor((lane - this.plan.lanes[0]) / this.every)] : null;
    this.litToken?.classList.add("lit");
    if (isShown) fill(this.said, reads(this, lane));
    else fill(this.said, hint(this));
  }

  at(event, place, canvas) {
    const found = this.tiles.get(place.name);
    return found ? { ...stripAt(canvas, event, found[0]), what: this.whats[0] } : null;
  }

  point(event, place, canvas) {
    const here = this.at(event, place, canvas);
    if (!here) return;
    const lane = place.isLane ? here.at[0] + place.skip : this.pinned;
    if (lane !== this.lit) {
      this.lit = lane;
      this.light(lane);
    }
    const index =
      place.kind === "weights"
        ? [0, this.head, ...here.at]
        : place.shape.length < 3
          ? here.at
          : [0, ...here.at];
    const key =
      place.kind === "weights" ? ` “${this.words[here.at[0]]}” → “${this.keyWords(place)[here.at[1]]}”` : "";
    canvas.title =
      `${here.what === "value" ? "" : `${here.what} of `}${place.name}[${index.join(", ")}]${key} = ` +
      `${exact(here.number)}`;
  }

  pick(event, place, canvas) {
    const here = this.at(event, place, canvas);
    if (here)
      openCard({
        name: place.name,
        index:
          place.kind === "weights"
            ? [0, this.head, ...here.at]
            : place.shape.length < 3
              ? here.at
              : [0, ...here.at],
        gradient: here.what === "gradient",
      });
  }
}

const cutWord = (word) => (word.length > 9 ? `${word.slice(0, 8)}…` : word);
