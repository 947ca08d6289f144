// Curves of numbers over steps, as SVG: lines and dots, a cursor, and a click that names the nearest step.

import { make, short, whole } from "./dom.js";

const CURVE = { height: 220, left: 52, right: 14, top: 10, bottom: 26 };

// settings: label, series: [{name, points: [[x, y]], dots, mark (the number of its color)}], log, cursor,
// last (the largest x), onpick(x), width (about that of its place, so that letters are neither small nor
// large)
export function curve(settings) {
  const series = settings.series.map((one) => ({
    ...one,
    points: one.points.filter(([, y]) => Number.isFinite(y) && (!settings.log || y > 0)),
  }));
  const scale = curveScale(series, settings);
  const svg = make(
    "svg",
    {
      viewBox: `0 0 ${scale.width} ${CURVE.height}`,
      class: "curve",
      role: "img",
      "aria-label": curveText(settings.label, series),
    },
    curveAxes(scale),
    series.map((one) => curveLine(one, scale)),
    curveCursor(settings.cursor, scale),
  );
  if (settings.onpick)
    svg.addEventListener("click", (event) => settings.onpick(curveStep(svg, event, scale)));
  const named = make(
    "div.legend",
    series.map((one) => make("span", make("i", { class: `swatch mark${one.mark}` }), one.name)),
  );
  return make("figure.curves", svg, series.length > 1 ? named : null);
}

function curveScale(series, settings) {
  const all = series.flatMap((one) => one.points);
  const ys = all.map(([, y]) => (settings.log ? Math.log10(y) : y));
  let [low, high] = ys.length ? [Math.min(...ys), Math.max(...ys)] : [0, 1];
  if (!settings.log) low = Math.min(low, 0);
  if (high - low < 1e-9) high = low + 1;
  const last = Math.max(settings.last ?? 0, ...all.map(([x]) => x), 1);
  const width = settings.width ?? 400;
  const inner = [width - CURVE.left - CURVE.right, CURVE.height - CURVE.top - CURVE.bottom];
  return {
    low,
    high,
    last,
    width,
    log: settings.log,
    x: (x) => CURVE.left + (x / last) * inner[0],
    y: (y) => CURVE.top + (1 - ((settings.log ? Math.log10(y) : y) - low) / (high - low)) * inner[1],
  };
}

function curveAxes(scale) {
  const bottom = CURVE.height - CURVE.bottom;
  const levels = [0, 1, 2, 3]
    .map((n) => scale.low + ((scale.high - scale.low) * n) / 3)
    .map((y) => (scale.log ? 10 ** y : y));
  const steps = [0, 1, 2, 3, 4].map((n) => Math.round((scale.last * n) / 4));
  return make(
    "g.axes",
    { "aria-hidden": "true" },
    levels
      .map((y) => [
        make("line", { x1: CURVE.left, x2: scale.width - CURVE.right, y1: scale.y(y), y2: scale.y(y) }),
        make("text", { x: CURVE.left - 6, y: scale.y(y) + 4, "text-anchor": "end" }, short(y)),
      ])
      .flat(),
    make("text", { x: CURVE.left - 14, y: bottom + 18, "text-anchor": "end" }, "step"),
    [...new Set(steps)].map((x) =>
      make(
        "text",
        { x: scale.x(x), y: bottom + 18, "text-anchor": x === scale.last ? "end" : "middle" },
        whole(x),
      ),
    ),
  );
}

function curveLine(one, scale) {
  if (one.dots)
    return make(
      "g",
      { class: `dots mark${one.mark}` },
      one.points.map(([x, y]) => make("circle", { cx: scale.x(x), cy: scale.y(y), r: 4 })),
    );
  return make("polyline", {
    class: `line mark${one.mark}`,
    points: one.points.map(([x, y]) => `${scale.x(x).toFixed(1)},${scale.y(y).toFixed(1)}`).join(" "),
  });
}

function curveCursor(step, scale) {
  if (step === undefined || step === null) return null;
  return make("line.cursor", {
    x1: scale.x(step),
    x2: scale.x(step),
    y1: CURVE.top,
    y2: CURVE.height - CURVE.bottom,
  });
}

function curveStep(svg, event, scale) {
  const box = svg.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * scale.width;
  return Math.max(
    0,
    Math.min(scale.last, ((x - CURVE.left) / (scale.width - CURVE.left - CURVE.right)) * scale.last),
  );
}

function curveText(label, series) {
  const parts = series
    .filter((one) => one.points.length)
    .map((one) => {
      const [first, last] = [one.points[0], one.points.at(-1)];
      return (
        `${one.name} ${short(first[1])} at step ${whole(first[0])}, ${short(last[1])} at step ` +
        `${whole(last[0])}`
      );
    });
  return `${label}: ${parts.join("; ") || "nothing yet"}`;
}
