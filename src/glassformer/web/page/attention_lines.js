// Who looks at whom as lines: queries on the left, keys on the right, a line as strong as the weight between them.

import { cellText, make, visible } from "./dom.js";

const LINE_ROW = 22; // pixels from one word to the next
const FAINT = 0.02; // weights below are not drawn

// settings: weights (a tile), rows, columns (words), onpoint({query} or {key} or null), onpick({query})
export function attentionLines(settings) {
  const [height, width] = settings.weights.facts.size;
  const tall = Math.max(height, width) * LINE_ROW;
  const picture = make("svg", { viewBox: `0 0 100 ${tall}`, preserveAspectRatio: "none", role: "img", "aria-label": "lines from queries to keys, as strong as the weights" });
  picture.style.height = `${tall}px`;
  const weight = (query, key) => settings.weights.cells[query * width + key];
  const place = { now: null };
  const left = lineWords(settings.rows, "query", place, settings);
  const right = lineWords(settings.columns, "key", place, settings);
  const figure = make("div", { class: "attention-lines" }, left.column, picture, right.column);
  figure.point = (now) => {
    place.now = now;
    drawLines(picture, weight, height, width, now);
    left.say((query) => (now?.key !== undefined && now.query === undefined ? weight(query, now.key) : null), now?.query);
    right.say((key) => (now?.query !== undefined ? weight(now.query, key) : null), now?.key);
  };
  figure.addEventListener("pointerleave", () => settings.onpoint(null));
  figure.point(null);
  return figure;
}

function drawLines(picture, weight, height, width, now) {
  const lines = [];
  for (let query = 0; query < height; query += 1) {
    if (now?.query !== undefined && now.query !== query) continue;
    for (let key = 0; key < width; key += 1) {
      if (now?.key !== undefined && now.query === undefined && now.key !== key) continue;
      const strength = Math.abs(weight(query, key));
      if (!(strength >= FAINT)) continue;
      const line = make("line", { x1: "0", y1: String((query + 0.5) * LINE_ROW), x2: "100", y2: String((key + 0.5) * LINE_ROW), "vector-effect": "non-scaling-stroke" });
      line.style.strokeOpacity = String(Math.min(1, strength) * (now ? 1 : 0.6));
      line.style.strokeWidth = String(1 + 3 * Math.min(1, strength));
      lines.push(line);
    }
  }
  picture.replaceChildren(...lines);
}

function lineWords(words, side, place, settings) {
  const point = (number) => settings.onpoint({ [side]: number });
  const spans = words.map((word, number) => make("button", {
    type: "button", tabindex: number === 0 ? "0" : "-1", style: { height: `${LINE_ROW}px` }, title: `position ${settings.first[side] + number}`,
    onpointerenter: () => point(number), onfocus: () => point(number), onclick: () => settings.onpick?.({ [side]: number }),
    onkeydown: (event) => {
      const next = { ArrowDown: number + 1, ArrowUp: number - 1, Home: 0, End: words.length - 1 }[event.key];
      if (next === undefined || !spans[next]) return;
      event.preventDefault();
      spans.forEach((one, n) => one.setAttribute("tabindex", n === next ? "0" : "-1"));
      spans[next].focus();
    },
  }, make("span", { class: "word" }, visible(word)), make("span", { class: "weight" })));
  const title = side === "query" ? "looks" : "is looked at";
  const column = make("div", { class: `words ${side}`, role: "group", "aria-label": title }, spans);
  const say = (strength, chosen) => spans.forEach((span, number) => {
    const value = strength(number);
    span.classList.toggle("on", chosen === number);
    span.lastChild.textContent = value === null ? "" : cellText(value);
    span.classList.toggle("strong", value !== null && value >= 0.1);
  });
  return { column, say };
}
