"""A page with a slider over the steps of a training: one file, which needs nothing from elsewhere."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_new
from ..text import printable
from .replay import decimated
from .report import page_style
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
    words = {
        "title": escape(printable(title)),
        "intro": escape(printable(intro)),
        "style": page_style(None) + _RULES,
        "last": str(len(data["steps"]) - 1),
        "data": content,
    }
    page = re.sub(r"\{(title|intro|style|last|data)\}", lambda mark: words[mark[1]], _PAGE)
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
.bar { position: sticky; top: 0; z-index: 2; background: var(--page); padding: .7rem 0; display: flex; gap: .8rem;
  align-items: center; flex-wrap: wrap; border-bottom: 1px solid var(--line); }
.bar input { flex: 1 1 16rem; accent-color: var(--accent); }
.bar button { font: inherit; padding: .2rem .9rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--card); color: var(--ink); cursor: pointer; }
.bar output { font-variant-numeric: tabular-nums; min-width: 12rem; }
.grid { display: flex; flex-wrap: wrap; gap: 1rem; }
.grid figure { margin: 0; padding: .4rem; text-align: center; }
.grid canvas { width: 11rem; image-rendering: pixelated; display: block; }
.grid small { color: var(--quiet); }
svg { width: 100%; height: 11rem; background: var(--card); border: 1px solid var(--line); border-radius: .8rem; }
svg polyline { fill: none; stroke: var(--accent); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
svg line { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 4 3; vector-effect: non-scaling-stroke; }
pre.sample { white-space: pre-wrap; min-height: 3rem; }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1><p class="intro">{intro}</p></header>
<main>
<div class="bar">
<button id="play" type="button">Play</button>
<input id="at" type="range" min="0" max="{last}" value="0" step="1" aria-label="Step of the training">
<output id="said" for="at"></output>
</div>
<div id="body"></div>
<noscript><p>This page moves by a script of its own, which is switched off here.</p></noscript>
</main>
<script type="application/json" id="data">{data}</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const [at, said, body] = ["at", "said", "body"].map(id => document.getElementById(id));
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const updates = [];
function element(tag, parent, text) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}
function section(name) { const made = element("section", body); element("h2", made, name); return made; }
function curve(name, points) {
  const known = points.filter(p => p[1] !== null);
  if (known.length < 2) return;
  const space = "http" + "://www.w3.org/2000/svg", home = section(name);
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 1000 100"); svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img"); svg.setAttribute("aria-label", name + " by step");
  const first = data.steps[0], last = data.steps[data.steps.length - 1], ys = known.map(p => p[1]);
  const low = Math.min(...ys), high = Math.max(...ys);
  const x = step => 1000 * (step - first) / Math.max(1, last - first);
  const line = document.createElementNS(space, "polyline");
  line.setAttribute("points", known.map(p => x(p[0]) + "," + (95 - 90 * (p[1] - low) / (high - low || 1))).join(" "));
  const mark = document.createElementNS(space, "line");
  mark.setAttribute("y1", 0); mark.setAttribute("y2", 100);
  svg.append(line, mark); home.appendChild(svg);
  const note = element("p", home);
  updates.push(i => {
    const step = data.steps[i];
    mark.setAttribute("x1", x(step)); mark.setAttribute("x2", x(step));
    const near = known.reduce((a, b) => Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a);
    note.textContent = name + " near step " + near[0].toLocaleString("en") + ": " + near[1].toPrecision(4);
  });
}
function heads(part) {
  const home = section(part.name), table = element("table", home);
  updates.push(i => {
    table.textContent = "";
    part.values[i].forEach((row, layer) => {
      const line = element("tr", table);
      element("th", line, "layer " + (layer + 1));
      row.forEach(score => element("td", line, score === null ? "" : score.toFixed(2)));
    });
  });
}
function maps(part) {
  const [, L, H, T, S] = part.shape, raw = atob(part.bytes), home = section(part.name);
  const [queries, keys] = data.labels;
  if (queries.length) element("p", home, "rows: " + queries.join(" · ") + "; columns: " + keys.join(" · "));
  const grid = element("div", home);
  grid.className = "grid";
  for (let l = 0; l < L; l++) for (let h = 0; h < H; h++) {
    const figure = element("figure", grid), canvas = element("canvas", figure);
    canvas.width = S; canvas.height = T;
    canvas.setAttribute("role", "img");
    const place = "layer " + (l + 1) + ", head " + (h + 1);
    canvas.setAttribute("aria-label", "attention of " + place);
    element("small", figure, place);
    const pen = canvas.getContext("2d"), image = pen.createImageData(S, T);
    updates.push(i => {
      const ramp = data.colors[dark.matches ? "dark" : "light"], start = ((i * L + l) * H + h) * T * S;
      for (let k = 0; k < T * S; k++) {
        const color = ramp[raw.charCodeAt(start + k)];
        image.data.set([color[0], color[1], color[2], 255], 4 * k);
      }
      pen.putImageData(image, 0, 0);
    });
  }
}
function text(part) {
  const home = section(part.name), shown = element("pre", home);
  shown.className = "sample";
  updates.push(i => { shown.textContent = part.values[i]; });
}
const whole = data.curve.length > 1;
if (whole) curve("training loss", data.curve);
for (const part of data.parts) {
  if (part.kind === "maps") maps(part);
  if (part.kind === "heads") heads(part);
  if (part.kind === "text") text(part);
  if (part.kind !== "number" || (whole && part.name === "loss")) continue;
  curve(part.name, part.values.map((y, i) => [data.steps[i], y]));
}
function show() {
  const i = Number(at.value);
  const [step, last] = [i, data.steps.length - 1].map(k => data.steps[k].toLocaleString("en"));
  said.textContent = "step " + step + " of " + last;
  updates.forEach(update => update(i));
}
let timer = null;
document.getElementById("play").addEventListener("click", event => {
  if (timer !== null) { clearInterval(timer); timer = null; event.target.textContent = "Play"; return; }
  if (Number(at.value) === Number(at.max)) at.value = 0;
  event.target.textContent = "Pause";
  timer = setInterval(() => {
    at.value = Number(at.value) + 1; show();
    if (Number(at.value) === Number(at.max)) { clearInterval(timer); timer = null; event.target.textContent = "Play"; }
  }, 250);
});
at.addEventListener("input", show);
dark.addEventListener("change", show);
show();
</script>
</body>
</html>
"""
