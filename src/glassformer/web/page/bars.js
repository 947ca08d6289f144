// The distribution of the next token as bars: what is left after sampling is solid, what was cut away is
// faded.

import { make, visible, whole } from "./dom.js";

const REASONS = { temperature: "temperature 0", top_k: "top-k", top_p: "top-p", min_p: "min-p" };

export function percent(share) {
  const number = share * 100;
  return number >= 99.95 || number === 0
    ? `${number.toFixed(0)} %`
    : number >= 0.1
      ? `${number.toFixed(1)} %`
      : "< 0.1 %";
}

export function writingBars(found, act) {
  const top = Math.max(...found.choices.map((one) => Math.max(one.own, one.kept)));
  const heads = make(
    "div.choice.heads",
    { "aria-hidden": "true" },
    ["token", "probability", "model", "drawn"].map((word) => make("span", word)),
  );
  return [
    heads,
    ...found.choices.map((one) => {
      const drawn = one.id === found.drawn.id;
      const row = make(
        "button",
        {
          type: "button",
          class: one.cut ? "choice cut" : "choice",
          title: `id ${one.id}`,
          onclick: () => act(one),
        },
        make("span.token", visible(one.label)),
        barTrack(one.own / top, one.kept / top),
        make("span.odds.mono", percent(one.own)),
        make("span.odds.mono", one.cut ? "cut" : percent(one.kept)),
        make("span.why", one.cut ? `by ${REASONS[one.cut]}` : drawn ? "next" : one.ends ? "ends" : ""),
      );
      row.setAttribute(
        "aria-label",
        `go on with ${JSON.stringify(one.label)}: the model gives it ${percent(one.own)}, ` +
          (one.cut ? `cut away by ${REASONS[one.cut]}` : `drawn with ${percent(one.kept)}`) +
          (drawn ? "; the seed draws this one" : ""),
      );
      return row;
    }),
  ];
}

export function barTrack(own, kept) {
  const bar = (kind, share) => make("i", { class: kind, style: { width: `${(share * 100).toFixed(2)}%` } });
  return make("span.track", { "aria-hidden": "true" }, bar("own", own), bar("kept", kept));
}

export function writingCut(found) {
  const parts = Object.entries(found.cut)
    .filter(([, one]) => one.count)
    .map(([name, one]) => `${REASONS[name]} cuts ${whole(one.count)} (${percent(one.mass)})`);
  return (
    `Of ${whole(found.count)} tokens ${whole(found.left)} ${found.left === 1 ? "is" : "are"} left` +
    `${parts.length ? `: ${parts.join(", ")}` : ""}. Faded bars are the model's own probabilities, solid ` +
    "ones those that the next token is drawn with."
  );
}
