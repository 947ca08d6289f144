// One stack of the model as a picture: lanes of tokens, stations of vectors, and what is pointed at.

import { percent } from "./bars.js";
import { openCard } from "./card.js";
import { button, exact, fill, make, short, visible, whole } from "./dom.js";
import { kept } from "./kept.js";
import { answersTall, sceneAnswers } from "./scene_answers.js";
import { tokenEditor } from "./scene_edit.js";
import { drawLines, drawRibbons } from "./scene_flow.js";
import { hasTwo, lanesOf, layOut, MOST_LANES } from "./scene_layout.js";
import { loadStrip, stripAt } from "./scene_strip.js";
import { ask } from "./server.js";
import { change, look, runState, state } from "./state.js";
import { areMade, oneChange, toggleChanges } from "./trials.js";

const TITLES = { embedding: "embedding", stream: "stream", norm: "norm", query: "query", key: "key", value: "value", weights: "attention", mixture: "mixture", adds: "adds", hidden: "neurons", vectors: "vectors", pool: "pooled" };

// What the address says of the scene; a step that Back should return from is pushed.
export const setScene = (parts, push = true) => change({ look: { ...state().look, scene: { ...look("scene"), ...parts } } }, { undoable: false, push });

// What the address says of the scene when a head stands there large. kind: encoder, decoder or cross; name: of its attention.
export const headInScene = (kind, name, layer, head, shown = "values") => ({
  scene: { shown, zoom: `${name}.attend.weights`, cell: undefined, [kind === "cross" ? "decoder" : kind]: { open: layer, head, attention: kind === "cross" ? "cross_attention" : "attention" } },
});
const zoomTo = (name) => setScene({ zoom: look("scene").zoom === name ? null : name });
const openBefore = new Map(); // by stacks, the block that was open in the picture before

export class StackPicture {
  constructor(part, { page, found, whats, wide, isLast, outcome, fades }) {
    Object.assign(this, { part, page, found, whats, wide, isLast, outcome, fades, loads: [], tiles: new Map(), lengths: {}, what: "value" });
    this.words = part.words.map(visible);
    this.ahead = this.words.length - page.run[part.tokens].length; // a learned vector may stand before the tokens
    this.element = make("div", { class: "scene-stack", "data-stack": part.stack });
    this.key = part.stack;
    const own = look("scene")[part.stack] ?? {};
    const block = part.blocks[Math.max(0, Math.min(part.blocks.length - 1, own.open ?? 0))];
    this.open = part.blocks.indexOf(block);
    this.attention = own.attention ?? (block && hasTwo(block) ? "cross_attention" : "attention");
    this.head = Math.max(0, Math.min((page.run.heads?.[part.stack] ?? page.run.heads ?? 1) - 1, own.head ?? 0));
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
    this.plan = layOut(part, { words: this.words, lanes, open: this.open, attention: this.attention, wide: this.wide, hasAnswers });
    this.plan.isFirst = page.info.classes; // a class is read from one vector
    const { plan } = this;
    this.under = make("canvas", { class: "scene-under", "aria-hidden": "true" });
    this.over = make("canvas", { class: "scene-over", "aria-hidden": "true" });
    this.under.redraw = () => this.widen(this.lengths, this.what); // in the colors of another theme
    this.said = make("p", { class: "scene-said", role: "status" });
    const picture = make("div", { class: "scene-picture", style: { width: `${plan.width}px`, height: `${Math.max(plan.height, plan.answers ? plan.top + answersTall(page, this.outcome) : 0)}px` } },
      this.under, plan.frames.map((frame) => this.frame(frame)), plan.closed.map((one) => this.closed(one)), plan.stations.map((one) => this.station(one)), this.over, this.labels(),
      plan.answers ? sceneAnswers(page, this.outcome, plan.answers) : null);
    this.picture = picture;
    const traveler = this.traveler();
    if (traveler) picture.append(traveler);
    picture.addEventListener("pointerleave", () => this.light(this.pinned));
    fill(this.element, this.heading(), make("div", { class: "scene-scroll", tabindex: "0", role: "group", "aria-label": "Picture; scroll sideways" }, picture), this.cards(), this.said);
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
    const one = make("div", { class: "scene-traveler", "aria-hidden": "true", style: { left: `${frame.x}px`, top: `${plan.top + (row - 0.25) * plan.lane}px`, height: `${plan.lane * 1.5}px` } });
    one.style.setProperty("--far", `${frame.width - 50}px`);
    return one;
  }

  heading() {
    const { part, open, words } = this;
    const go = (layer) => this.set({ open: layer });
    const many = words.length > MOST_LANES;
    const [first, last] = lanesOf(words.length, this.first);
    return make("div", { class: "row scene-heading" }, this.found.parts.length > 1 ? make("h3", {}, part.stack) : null,
      part.blocks.length > 1 ? make("div", { class: "row", role: "group", "aria-label": "Open block" },
        button("‹", () => go(open - 1), { disabled: open === 0, "aria-label": "The block before" }), make("span", { class: "scene-at" }, `block ${open} of 0 … ${part.blocks.length - 1}`),
        button("›", () => go(open + 1), { disabled: open === part.blocks.length - 1, "aria-label": "The next block" })) : null,
      many ? make("div", { class: "row", role: "group", "aria-label": "Tokens shown" },
        button("earlier tokens", () => this.set({ first: Math.max(0, first - MOST_LANES) }), { disabled: first === 0 }), make("span", { class: "scene-at" }, `tokens ${whole(first)} to ${whole(last - 1)} of ${whole(words.length)}`),
        button("later tokens", () => this.set({ first: first + MOST_LANES }), { disabled: last === words.length })) : null,
      make("p", { class: "quiet" }, this.growth()));
  }

  // Where in the open block the stream changes most.
  growth() {
    const adds = (this.part.blocks[this.open]?.stations ?? []).filter((one) => one.kind === "adds" && this.found.growth[one.name] !== undefined);
    if (!adds.length) return "";
    const parts = adds.map((one) => [one.part.replace("_", "-"), this.found.growth[one.name]]).sort((a, b) => b[1] - a[1]);
    const [[most, share], ...rest] = parts;
    return `In block ${this.open}, the ${most} adds ${rest.length ? "most: " : ""}${short(share, 2)} times the length of the stream${rest.length ? ` (${rest.map(([name, other]) => `${name} ${short(other, 2)}`).join(", ")})` : ""}.`;
  }

  frame({ kind, title, x, width, part }) {
    const isClosed = part && hasTwo(this.part.blocks[this.open]) && part !== "feed_forward" && part !== this.attention;
    const label = isClosed ? button(title, () => this.set({ attention: part, head: 0 }), { class: "scene-frame-title", "aria-label": `Open ${title}` }) : make("span", { class: "scene-frame-title" }, title);
    return make("div", { class: `scene-frame ${kind} ${part ?? ""}`, style: { left: `${x}px`, width: `${width}px`, height: `${this.plan.height - 6 - (kind === "part" ? 26 : 0)}px`, top: kind === "part" ? "22px" : "0" } }, label);
  }

  closed(one) {
    const canvas = make("canvas", { "aria-hidden": "true" });
    const place = { ...one, kind: "stream", isLane: true };
    this.loads.push(this.load(canvas, place));
    const every = Math.ceil(this.part.blocks.length / 12);
    return make("button", { type: "button", class: "scene-closed", title: `open block ${one.layer}`, "aria-label": `Open block ${one.layer}`, onclick: () => this.set({ open: one.layer }),
      style: { left: `${one.x}px`, top: `${one.y - 22}px`, width: `${one.width}px`, height: `${one.height + 22}px` } }, make("span", {}, one.layer % every === 0 ? String(one.layer) : ""), canvas);
  }

  station(one) {
    const isCut = this.plan.lanes[1] - this.plan.lanes[0] < this.plan.count; // then keys and values show all tokens, as the lines need them
    const place = { ...one, isLane: one.rows === this.part.tokens && !(isCut && ["key", "value"].includes(one.kind)) };
    const canvas = make("canvas", { "data-name": one.name, style: { width: `${one.width}px`, height: `${one.height}px` } });
    const says = this.found.says[one.kind];
    const title = make("button", { type: "button", class: "scene-title", title: `${says}. Click to see ${one.name} large.`, onclick: () => zoomTo(one.name), "data-key": one.name,
      "aria-pressed": String(look("scene").zoom === one.name) }, one.kind === "weights" ? `head ${this.head}` : one.kind === "stream" && this.part.sums ? (one.width < 44 ? "⊕" : "⊕ stream") : one.kind === "adds" && !this.part.sums ? "result" : TITLES[one.kind]);
    this.loads.push(this.load(canvas, place));
    canvas.addEventListener("pointermove", (event) => this.point(event, place, canvas));
    canvas.addEventListener("click", (event) => this.pick(event, place, canvas));
    const figure = make("figure", { class: `scene-station ${one.kind}`, style: { left: `${one.x}px`, top: "0", width: `${one.width}px`, height: `${one.y + one.height}px` } }, title, one.kind === "weights" ? this.columnWords(place) : null, canvas);
    if (one.words) figure.append(this.sideWords(one));
    return figure;
  }

  keyWords(place) {
    return place.part === "cross_attention" ? this.found.parts[0].words.map(visible) : this.words;
  }

  columnWords(place) {
    const words = this.keyWords(place);
    const each = place.width / words.length;
    if (each < 9) return make("div", { class: "scene-columns many", "aria-hidden": "true" }, `${whole(words.length)} keys →`);
    return make("div", { class: "scene-columns", "aria-hidden": "true" }, words.map((word, n) => make("span", { style: { left: `${(n + 0.5) * each}px` } }, cutWord(word))));
  }

  // Tokens of the source beside the keys of cross-attention.
  sideWords(place) {
    const words = this.found.parts[0].words.map(visible);
    const each = place.height / words.length;
    return make("div", { class: "scene-side", "aria-hidden": "true", style: { width: `${place.words}px`, left: `${-place.words}px`, height: `${place.height}px` } },
      words.map((word) => make("span", { style: { height: `${each}px`, lineHeight: `${each}px`, fontSize: `${Math.min(12, each)}px` } }, each < 8 ? "" : cutWord(word))));
  }

  labels() {
    const { plan, words } = this;
    const every = (this.every = Math.max(1, Math.ceil(11 / plan.lane)));
    const rows = words.slice(...plan.lanes).map((word, n) => {
      const lane = plan.lanes[0] + n;
      if (n % every) return null;
      const size = `${Math.min(14, Math.max(9, plan.lane - 2))}px`;
      const one = button(word, () => this.pin(lane, one), { class: this.isPut(lane) ? "scene-token put" : "scene-token", "data-lane": lane, "data-key": `${this.key} ${lane}`, "aria-pressed": String(this.pinned === lane), title: `position ${lane}: follow this token, or put another in its place`,
        style: { top: `${plan.top + n * plan.lane}px`, height: `${plan.lane * every}px`, lineHeight: `${plan.lane * every - 2}px`, fontSize: size } });
      one.addEventListener("pointerenter", () => this.light(lane));
      one.addEventListener("focus", () => this.light(lane));
      one.addEventListener("blur", () => this.light(this.pinned));
      return one;
    });
    this.tokens = rows.filter(Boolean);
    return make("div", { class: "scene-tokens", role: "group", "aria-label": `Tokens of the ${this.part.stack}`, style: { width: `${plan.label}px` } }, this.tokens);
  }

  isPut(lane) {
    return state().changes.some((one) => one.name === this.part.tokens && one.where?.position === lane - this.ahead);
  }

  // A token that was clicked is followed, and another one can be put in its place; a second click lets it go.
  pin(lane, token) {
    const isOn = this.pinned !== lane;
    this.pinned = isOn ? lane : null;
    look("scene", { [this.key]: { ...look("scene")[this.key], lane: this.pinned } });
    for (const one of this.tokens) one.setAttribute("aria-pressed", String(one === token && isOn));
    this.light(this.pinned);
    this.pop?.remove();
    if (!isOn || kept || this.page.info.reads === false || lane < this.ahead) return;
    const row = lane - this.plan.lanes[0];
    const close = () => { this.pop?.remove(); token.focus(); };
    this.pop = tokenEditor(this.part.tokens, this.part.start[0].name, lane - this.ahead, { left: `${this.plan.label + 4}px`, top: `${this.plan.top + (row + 1) * this.plan.lane + 4}px` }, close);
    this.pop.dataset.key = token.dataset.key; // the focus returns to the token
    this.picture.append(this.pop);
  }

  // All heads of the open attention, small.
  cards() {
    const station = this.plan.stations.find((one) => one.kind === "weights");
    if (!station) return null;
    const heads = station.shape[1];
    const off = oneChange("zero", `${station.name.replace(/\.attend\.weights$/, "")}.output.x`, { head: this.head });
    const isOff = areMade([off]);
    const small = Array.from({ length: heads }, (_, head) => this.card(station, this.open, head));
    const kind = station.part === "cross_attention" ? "cross" : this.key;
    ask("heads", { state: runState(), kind, layer: this.open }).then(({ words }) => small.forEach((one, head) => { one.lastChild.textContent = words[head]; one.title = `head ${head}: ${words[head]}`; })).catch(() => {});
    return make("div", { class: "scene-cards" }, make("div", { class: "scene-hand", role: "group", "aria-label": `Heads of block ${this.open}` }, small),
      make("div", { class: "row" }, kept ? null : button(isOff ? `Switch head ${this.head} on again` : `What happens without head ${this.head}?`, () => toggleChanges([off]), { "aria-pressed": String(isOff), "data-key": `off ${this.key}` }),
        button(`Head ${this.head} in full`, () => zoomTo(station.name), { "aria-pressed": String(look("scene").zoom === station.name), "data-key": `zoom ${this.key}` })),
      this.part.blocks.length > 1 ? this.allHeads(station) : null);
  }

  card(station, layer, head) {
    const canvas = make("canvas", { "aria-hidden": "true" });
    const card = make("button", { type: "button", class: "scene-card", "aria-pressed": String(layer === this.open && head === this.head), "aria-label": layer === this.open ? `head ${head}` : `block ${layer}, head ${head}`, "data-key": `${this.key} head ${layer} ${head}`,
      onclick: () => this.set({ open: layer, head }) }, canvas, make("span", {}, `head ${head}`), make("small", {}, ""));
    card.load = () => this.load(canvas, { ...station, width: 52, height: 52, isLane: true }, { head, fades: false });
    if (layer === this.open) this.loads.push(card.load());
    return card;
  }

  // The heads of all blocks, a row for each; a row is asked for when it comes into sight.
  allHeads(station) {
    const rows = make("div", { class: "scene-all" });
    const seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) { seen.unobserve(target); for (const card of target.querySelectorAll("button")) card.load(); }
    });
    const box = make("details", { open: look("scene").all === true, ontoggle: () => {
      look("scene", { all: box.open });
      if (!box.open || rows.firstChild) return;
      this.part.blocks.forEach((block, layer) => {
        const own = block.stations.find((one) => one.kind === "weights" && one.part === station.part);
        if (!own) return;
        const row = make("div", { class: "row" }, make("span", { class: "scene-at" }, `block ${layer}`), Array.from({ length: own.shape[1] }, (_, head) => this.card(own, layer, head)));
        rows.append(row);
        seen.observe(row);
      });
    } }, make("summary", {}, "The heads of all blocks"), rows);
    return box;
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
    const [found] = this.whats[0] === "value" ? this.tiles.get(place.name) : await loadStrip(make("canvas"), place, this.plan, ["value"], { head });
    const from = this.plan.stations.find((one) => one.part === place.part && one.kind === "value") ?? this.plan.stations.find((one) => one.part === place.part);
    this.weights = { station: place, found, keys: place.shape.at(-1), from };
    this.light(this.pinned);
  }

  widen(lengths, what) {
    Object.assign(this, { lengths, what });
    drawRibbons(this.under, this.plan, lengths, what);
    this.light(this.pinned);
  }

  light(lane) {
    const isShown = lane !== null && lane >= this.plan.lanes[0] && lane < this.plan.lanes[1];
    drawLines(this.over, this.plan, this.weights ?? null, isShown ? lane : null);
    if (this.litToken) this.litToken.classList.remove("lit");
    this.litToken = isShown ? this.tokens[Math.floor((lane - this.plan.lanes[0]) / this.every)] : null;
    this.litToken?.classList.add("lit");
    if (isShown) fill(this.said, this.reads(lane));
    else fill(this.said, this.hint());
  }

  hint() {
    const of = this.page.run.of;
    const gradients = this.what === "gradient" && this.lengths[this.part.start[0].name];
    if (!gradients) return !this.isLast ? "" : "Point at a token to follow it. Click a cell for its card, a name for the whole tensor, a block to open it.";
    const most = gradients.indexOf(Math.max(...gradients));
    return `The gradient of ${of?.title ?? "the loss"} is largest at “${this.words[most]}” (position ${most}): length ${short(gradients[most])} in the embedding.`;
  }

  // What a token reads, in words.
  reads(lane) {
    const own = `“${this.words[lane]}”, position ${lane}`;
    if (!this.weights) return `${own}.`;
    const { station, found } = this.weights;
    const columns = found.facts.size[1];
    const row = Array.from(found.cells.slice((lane - this.plan.lanes[0]) * columns, (lane - this.plan.lanes[0] + 1) * columns));
    const words = this.keyWords(station);
    if (columns !== words.length) return `${own}.`;
    const best = row.map((weight, n) => [weight, n]).sort((a, b) => b[0] - a[0]).filter(([weight]) => weight >= 0.01).slice(0, 3);
    return [`${own}: in block ${this.open}, head ${this.head}, it looks at `, best.map(([weight, n], k) => [k ? ", " : "", make("b", {}, `“${words[n]}”`), ` ${percent(weight)}`]).flat(), "."].flat();
  }

  at(event, place, canvas) {
    const found = this.tiles.get(place.name);
    return found ? { ...stripAt(canvas, event, found[0]), what: this.whats[0] } : null;
  }

  point(event, place, canvas) {
    const here = this.at(event, place, canvas);
    if (!here) return;
    const lane = place.isLane ? here.at[0] + place.skip : this.pinned;
    if (lane !== this.lit) { this.lit = lane; this.light(lane); }
    const index = place.kind === "weights" ? [0, this.head, ...here.at] : place.shape.length < 3 ? here.at : [0, ...here.at];
    const key = place.kind === "weights" ? ` “${this.words[here.at[0]]}” → “${this.keyWords(place)[here.at[1]]}”` : "";
    canvas.title = `${here.what === "value" ? "" : `${here.what} of `}${place.name}[${index.join(", ")}]${key} = ${exact(here.number)}`;
  }

  pick(event, place, canvas) {
    const here = this.at(event, place, canvas);
    if (here) openCard({ name: place.name, index: place.kind === "weights" ? [0, this.head, ...here.at] : place.shape.length < 3 ? here.at : [0, ...here.at], gradient: here.what === "gradient" });
  }
}

const cutWord = (word) => (word.length > 9 ? `${word.slice(0, 8)}…` : word);
