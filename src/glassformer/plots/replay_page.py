"""A page with a slider over the steps of a training: one file, which needs nothing from elsewhere."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_new
from ..text import printable
from .page import page_html, page_style, paragraphs
from .replay import decimated
from .theme import THEMES, themed, weight_colors

LEVELS = 255
"""Weights are told apart in so many steps, as screens show them."""


def write_replay(
    path: str | Path,
    steps: Sequence[int],
    values: Mapping[str, Any],
    *,
    title: str,
    intro: str = "",
    metrics: Sequence[Mapping[str, Any]] = (),
    labels: Sequence[Sequence[str]] = ((), ()),
) -> Path:
    """Write a page on which one goes through the frames of a training, and return where it is.

    steps, values   of a course: numbers (N,), scores of heads (N, L, H), attention (N, L, H, T, S), texts
    metrics         the lines of the run, of which the loss curve is drawn
    labels          of the tokens that look, and of those that are looked at
    """
    data: dict[str, Any] = {
        "steps": [int(step) for step in steps],
        "curve": decimated(metrics),
        "labels": [[printable(label) for label in side] for side in labels],
        "colors": {name: _ramp(name) for name in THEMES},
        "parts": sorted((_part(name, value) for name, value in values.items()), key=_order),
    }
    # No "<" in it can end the script that it stands in.
    content = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    body = f'{_BODY}<script type="application/json" id="data">{content}</script>\n<script>{_SCRIPT}</script>'
    page = page_html(title, paragraphs(intro, "intro"), body, style=page_style(None) + _RULES)
    return write_new(path, page.encode("utf-8"))


def _part(name: str, value: Any) -> dict[str, Any]:
    """Return one measure as the page reads it, by its shape."""
    if isinstance(value, list):
        return {"name": name, "kind": "text", "values": [printable(text) for text in value]}
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 5:
        levels = np.clip(np.rint(array * LEVELS), 0, LEVELS).astype(np.uint8)
        coded = base64.b64encode(levels.tobytes()).decode("ascii")
        return {"name": name, "kind": "maps", "shape": array.shape, "bytes": coded}
    plain = np.round(array, 6).astype(object)
    plain[~np.isfinite(array)] = None
    return {"name": name, "kind": {1: "number", 3: "heads"}.get(array.ndim, "other"), "values": plain.tolist()}


def _order(part: Mapping[str, Any]) -> int:
    """Return where a part stands on the page: what moves the most comes first."""
    return ("heads", "maps", "text", "number", "other").index(part["kind"])


def _ramp(theme: str) -> list[list[int]]:
    """Return the colors of weights from nothing to everything."""
    with themed(theme):
        return (255 * weight_colors()(np.linspace(0, 1, LEVELS + 1))[:, :3]).round().astype(int).tolist()


_RULES = """
.bar { position: sticky; top: 0; z-index: 2; background: var(--page); padding: .7rem 0; margin-bottom: 1.6rem;
  display: flex; gap: .4rem .8rem; align-items: center; flex-wrap: wrap; border-bottom: 1px solid var(--line); }
.bar input { flex: 1 1 14rem; min-width: 0; accent-color: var(--accent); }
.bar button { font: inherit; min-width: 5.4rem; padding: .2rem .9rem; border: 1px solid var(--line);
  border-radius: .6rem; background: var(--card); color: var(--ink); cursor: pointer; }
.bar button:hover, .bar button:focus-visible { color: var(--accent); border-color: var(--accent); }
.bar output { font-variant-numeric: tabular-nums; min-width: 11rem; text-align: right; }
section { margin-bottom: 2.4rem; }
.grid { display: grid; gap: .8rem; margin: 0 0 .8rem; }
.maps { grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); }
.curves { grid-template-columns: repeat(auto-fill, minmax(min(17rem, 100%), 1fr)); }
.grid figure { margin: 0; }
.maps figure { padding: .5rem .5rem .2rem; text-align: center; }
.maps canvas { width: 100%; image-rendering: pixelated; display: block; }
figure small { color: var(--quiet); font-size: .85rem; }
.curve { padding: .5rem .8rem .6rem; }
.curve p { display: flex; justify-content: space-between; gap: .8rem; max-width: none; margin: 0 0 .3rem;
  font-size: .9rem; }
.curve p span { overflow-wrap: anywhere; }
.curve b { font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { display: block; width: 100%; height: 5.5rem; overflow: visible; }
.wide svg { height: 11rem; }
svg polyline { fill: none; stroke: var(--accent); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
svg line { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 4 3; vector-effect: non-scaling-stroke; }
.scroll { margin: .5rem 0 0; }
.scores { font-size: .85rem; width: 100%; }
.scores td, .scores th { text-align: center; padding: .2rem .3rem; }
.scores td { border: 1px solid var(--line); }
.tokens { display: flex; flex-wrap: wrap; gap: .25rem; margin-bottom: .8rem; max-width: none;
  font: .9rem ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.tokens span { white-space: pre; padding: 0 .35rem; border: 1px solid var(--line); border-radius: .3rem;
  background: var(--card); }
.tokens .seen { border-color: var(--accent); color: var(--accent); }
pre.sample { min-height: 3rem; }
"""

_BODY = """<main>
<div class="bar">
<button id="play" type="button">Play</button>
<input id="at" type="range" min="0" max="0" value="0" step="1" aria-label="Step of the training">
<output id="said" for="at"></output>
</div>
<div id="body"></div>
<noscript><p>This page moves by a script of its own, which is switched off here.</p></noscript>
</main>
"""

_SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const [at, said, body, play] = ["at", "said", "body", "play"].map(id => document.getElementById(id));
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const updates = [], first = data.steps[0], last = data.steps[data.steps.length - 1];
at.max = data.steps.length - 1;
function element(tag, parent, text, style) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  parent.appendChild(made);
  return made;
}
function section(name) { const made = element("section", body); element("h2", made, name); return made; }
function drawn(tag, parent, settings) {
  const made = document.createElementNS("http" + "://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(settings)) made.setAttribute(name, value);
  parent.appendChild(made);
  return made;
}
function curve(home, name, points, range) {
  const known = points.filter(p => p[1] !== null);
  if (known.length < 2) return null;
  const ys = known.map(p => p[1]), [low, high] = range || [Math.min(...ys), Math.max(...ys)];
  const x = step => 1000 * (step - first) / Math.max(1, last - first);
  const figure = element("figure", home, undefined, "curve"), words = element("p", figure);
  element("span", words, name);
  const now = element("b", words);
  const svg = drawn("svg", figure, { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img" });
  svg.setAttribute("aria-label", name + " by step, from " + low.toPrecision(3) + " to " + high.toPrecision(3));
  drawn("polyline", svg, {
    points: known.map(p => x(p[0]) + "," + (97 - 94 * (p[1] - low) / (high - low || 1))).join(" ") });
  const mark = drawn("line", svg, { y1: 0, y2: 100 });
  element("small", figure, range ? low + " … " + high : low.toPrecision(3) + " … " + high.toPrecision(3));
  updates.push(i => {
    const step = data.steps[i];
    mark.setAttribute("x1", x(step)); mark.setAttribute("x2", x(step));
    const near = known.reduce((a, b) => Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a);
    now.textContent = near[1].toPrecision(4);
  });
  return figure;
}
function grouped(parts) {
  const groups = new Map();
  for (const part of parts) {
    const dot = part.name.indexOf("."), name = dot < 0 ? "" : part.name.slice(0, dot);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push({ ...part, own: part.name.slice(dot + 1) });
  }
  return groups;
}
function heads(name, parts) {
  const home = element("div", section(name || "scores of heads"), undefined, "grid curves");
  for (const part of parts) {
    const best = part.values.map((scores, i) => [data.steps[i], Math.max(...scores.flat())]);
    const drawing = curve(home, part.own + ", the strongest", best, [0, 1]);
    const figure = drawing || element("figure", home, part.own, "curve");
    const frame = element("div", figure, undefined, "scroll"), table = element("table", frame, undefined, "scores");
    frame.tabIndex = 0; frame.setAttribute("role", "region"); frame.setAttribute("aria-label", part.own + " by head");
    updates.push(i => {
      table.textContent = "";
      const names = element("tr", table);
      element("th", names, "layer");
      part.values[i][0].forEach((_, head) => element("th", names, "head " + (head + 1)));
      part.values[i].forEach((row, layer) => {
        const line = element("tr", table);
        element("th", line, layer + 1);
        row.forEach(score => {
          const cell = element("td", line, score === null ? "" : score.toFixed(2));
          const share = Math.round(60 * Math.min(1, Math.max(0, score)));
          cell.style.background = "color-mix(in srgb, var(--accent) " + share + "%, transparent)";
        });
      });
    });
  }
}
function tokens(home, words, name) {
  const line = element("p", home, undefined, "tokens");
  element("small", line, name);
  return words.map(word => element("span", line, word));
}
function maps(part) {
  const [, L, H, T, S] = part.shape, raw = atob(part.bytes), home = section(part.name);
  const alike = data.labels[0].join("\\n") === data.labels[1].join("\\n");
  element("p", home, "Each row of a map is a token that looks, each column one that is looked at" +
    (data.labels[0].length ? "; point at a map to see which." : "."));
  const queries = tokens(home, data.labels[0], alike ? "tokens" : "rows");
  const keys = alike ? queries : tokens(home, data.labels[1], "columns");
  for (let l = 0, grid; l < L; l++) for (let h = 0; h < H; h++) {
    if (h === 0) grid = element("div", home, undefined, "grid maps");
    const figure = element("figure", grid), canvas = element("canvas", figure);
    canvas.width = S; canvas.height = T;
    canvas.setAttribute("role", "img");
    const place = "layer " + (l + 1) + ", head " + (h + 1);
    canvas.setAttribute("aria-label", "attention of " + place);
    const caption = element("small", figure, place);
    const pen = canvas.getContext("2d"), image = pen.createImageData(S, T);
    const start = i => ((i * L + l) * H + h) * T * S;
    updates.push(i => {
      const ramp = data.colors[dark.matches ? "dark" : "light"];
      for (let k = 0; k < T * S; k++) {
        const color = ramp[raw.charCodeAt(start(i) + k)];
        image.data.set([color[0], color[1], color[2], 255], 4 * k);
      }
      pen.putImageData(image, 0, 0);
    });
    const mark = (t, s) => [[queries, t], [keys, s]].forEach(([row, n]) => row[n] && row[n].classList.add("seen"));
    const forget = () => {
      [...queries, ...keys].forEach(one => one.classList.remove("seen"));
      caption.textContent = place;
    };
    canvas.addEventListener("pointerleave", forget);
    canvas.addEventListener("pointermove", event => {
      const box = canvas.getBoundingClientRect();
      const t = Math.min(T - 1, Math.max(0, Math.floor(T * (event.clientY - box.top) / box.height)));
      const s = Math.min(S - 1, Math.max(0, Math.floor(S * (event.clientX - box.left) / box.width)));
      forget(); mark(t, s);
      const share = raw.charCodeAt(start(Number(at.value)) + t * S + s) / 255;
      caption.textContent = (t + 1) + " → " + (s + 1) + ": " + share.toFixed(2);
    });
  }
}
function text(part) {
  const shown = element("pre", section(part.name), undefined, "sample");
  updates.push(i => { shown.textContent = part.values[i]; });
}
function numbers(name, parts) {
  const home = element("div", section(name || "numbers"), undefined, "grid curves");
  for (const part of parts) curve(home, part.own, part.values.map((y, i) => [data.steps[i], y]));
}
const whole = data.curve.length > 1, of = kind => data.parts.filter(part => part.kind === kind);
if (whole) curve(element("div", section("training loss"), undefined, "wide"), "loss", data.curve);
grouped(of("heads")).forEach((parts, name) => heads(name, parts));
of("maps").forEach(maps);
of("text").forEach(text);
grouped(of("number").filter(part => !(whole && part.name === "loss"))).forEach((parts, name) => numbers(name, parts));
function show() {
  const i = Number(at.value);
  said.textContent = "step " + data.steps[i].toLocaleString("en") + " of " + last.toLocaleString("en");
  updates.forEach(update => update(i));
}
let timer = null;
function pause() { clearInterval(timer); timer = null; play.textContent = "Play"; }
play.addEventListener("click", () => {
  if (timer !== null) return pause();
  if (Number(at.value) === Number(at.max)) at.value = 0;
  play.textContent = "Pause";
  timer = setInterval(() => {
    at.value = Number(at.value) + 1; show();
    if (Number(at.value) === Number(at.max)) pause();
  }, 250);
});
at.addEventListener("input", show);
dark.addEventListener("change", show);
show();
"""
