// Elements by one function: make("p.quiet", { title: "…" }, "text", other, …), with a tag, its classes,
// perhaps settings.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "rect", "circle", "text", "polyline", "title", "defs"]);

/** @param {string} name @param {any[]} inside @returns {any} */
export function make(name, ...inside) {
  const [tag, ...classes] = name.split(".");
  const isSVG = SVG_TAGS.has(tag);
  const element = isSVG ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  const settings = inside[0]?.constructor === Object ? inside.shift() : {};
  for (const [setting, value] of Object.entries(settings)) {
    if (value === undefined || value === null || value === false) continue;
    const isProperty = setting in element && !isSVG && typeof value !== "string";
    if (setting.startsWith("on")) element.addEventListener(setting.slice(2), value);
    else if (setting === "style") Object.assign(element.style, value);
    else if (`${tag} ${setting}` === "textarea value" || isProperty) element[setting] = value;
    else element.setAttribute(setting, value === true ? "" : value);
  }
  return fill(element, ...inside);
}

export function fill(element, ...inside) {
  element.replaceChildren(
    ...inside.flat().filter((part) => part !== null && part !== undefined && part !== false),
  );
  return element;
}

// A formula that Python has typeset, as MathML; a long one scrolls in its own box.
export function formula(math) {
  const own = document.importNode(
    new DOMParser().parseFromString(math, "application/xml").documentElement,
    true,
  );
  return make("div.formula", { tabindex: "0", role: "group", "aria-label": "formula" }, own);
}

export function button(text, act, settings = {}) {
  return make("button", { type: "button", onclick: act, ...settings }, text);
}

// A box with a heading, perhaps a sentence, and what it is about.
export function section(title, words, ...inside) {
  return make("section.box.stack", make("h2", title), words ? make("p.quiet", words) : null, inside.flat());
}

// Where the pointer is in a grid of rows and columns that fills an element.
export function cellAt(element, event, [rows, columns]) {
  const box = element.getBoundingClientRect();
  const inside = (share, size) => Math.max(0, Math.min(size - 1, Math.floor(share * size)));
  return [
    inside((event.clientY - box.top) / box.height, rows),
    inside((event.clientX - box.left) / box.width, columns),
  ];
}

export const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// A number as short as it can be read: 0.0031, −1.25, 3.1e−9.
export function short(number, digits = 3) {
  if (number === null || number === undefined) return "–";
  if (number === 0) return "0";
  const size = Math.abs(number);
  const text =
    size >= 1e5 || size < 1e-3
      ? number.toExponential(digits - 1)
      : String(Number(number.toPrecision(digits)));
  return text.replace("-", "−").replace("e+", "e").replace("e-", "e−");
}

// A number in a narrow cell: two digits, of very small ones one; 0 is printed for zero alone.
export function cellText(number) {
  return short(number, Math.abs(number) < 1e-3 ? 1 : 2);
}

// All digits that a number has.
export function exact(number) {
  return number === null || number === undefined ? "–" : String(number).replace("-", "−").replace("e-", "e−");
}

// Made once: a new one takes longer than all else in a caption.
const THOUSANDS = new Intl.NumberFormat("en-US");
export function whole(number) {
  return THOUSANDS.format(number);
}

// What a token is called, its spaces in sight.
export function visible(label) {
  return label === "" ? "∅" : label.replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/^ | $/g, "␣");
}

// A token in a sentence, without spaces beside it; with them where they alone tell it from another one.
export function spoken(label, other) {
  const word = label.trim();
  return visible(word && word !== other?.trim() ? word : label);
}

// Names along an axis of cells: one at each cell, upright where it is wider than its cell; for small cells,
// that of the axis.
export function axisNames(place, names, cell, isAcross, axis = "") {
  const words = cell < 11 ? [] : (names ?? []).map(visible);
  const isUpright = isAcross ? words.some((word) => word.length * 8 > cell) : !words.length;
  Object.assign(place, {
    className: `names${isAcross ? " across" : ""}${isUpright ? " upright" : ""}`,
    ariaHidden: "true",
  });
  fill(
    place,
    words.length
      ? words.map((word) =>
          make(
            "span",
            { style: { [isAcross ? "width" : "height"]: `${cell}px` } },
            word.length > 9 ? `${word.slice(0, 8)}…` : word,
          ),
        )
      : make("span", axis),
  );
}

let fading = null;
export function tell(text) {
  const status = document.getElementById("status");
  fill(status, make("p", text));
  clearTimeout(fading);
  fading = setTimeout(() => fill(status), 6000);
}
