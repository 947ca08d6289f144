// Colors of numbers. Values: blue below zero, orange above. Gradients: green below zero, magenta above.
// Attention and other numbers that are never below zero: one dark hue. Nothing at zero. The hues of a pair
// are told apart with every common kind of color blindness.

const LIGHT = {
  zero: [253, 253, 252],
  full: [45, 42, 110],
  value: { low: [23, 78, 166], high: [190, 84, 0] },
  gradient: { low: [0, 105, 84], high: [158, 22, 128] },
};
const DARK = {
  zero: [21, 23, 26],
  full: [190, 196, 255],
  value: { low: [110, 176, 255], high: [255, 166, 77] },
  gradient: { low: [72, 214, 176], high: [245, 130, 222] },
};

const system = window.matchMedia("(prefers-color-scheme: dark)");
let asked = null; // "light" or "dark", by a page around this one
let dark = system.matches;
const listeners = [];

// A canvas has a function `redraw`: only those on the page are called, so that nothing else is kept alive.
function retheme() {
  const next = asked ? asked === "dark" : system.matches;
  if (next === dark) return;
  dark = next;
  for (const canvas of document.querySelectorAll("canvas")) canvas.redraw?.();
  for (const act of listeners) act();
}

const darkOnly = new WeakSet(); // rules of style sheets that name the dark scheme

// Style sheets name the system's scheme; what was asked for holds in its place.
function ask(theme) {
  asked = theme;
  document.documentElement.style.colorScheme = theme;
  for (const rule of [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])) {
    if (!(rule instanceof CSSMediaRule)) continue;
    if (rule.conditionText.includes("prefers-color-scheme: dark")) darkOnly.add(rule);
    if (darkOnly.has(rule)) rule.media.mediaText = theme === "dark" ? "all" : "not all";
  }
  retheme();
}

system.addEventListener("change", retheme);
// A site that shows this page in a frame sends {theme: "dark"} when its reader switches.
window.addEventListener("message", ({ source, data }) => {
  if (source === window.parent && ["light", "dark"].includes(data?.theme)) ask(data.theme);
});

export function isDark() {
  return dark;
}

export function onTheme(act) {
  listeners.push(act);
}

// Write r, g, b of a number into bytes at a place; `top` is the number with the full color.
function paint(bytes, place, number, top, signed, family = "value") {
  const colors = isDark() ? DARK : LIGHT;
  if (!Number.isFinite(number)) {
    bytes.set([255, 0, 144, 255], place); // what is no number must not hide
    return;
  }
  const share = top > 0 ? Math.min(1, Math.abs(number) / top) ** 0.7 : 0;
  const full = !signed ? colors.full : number < 0 ? colors[family].low : colors[family].high;
  for (let i = 0; i < 3; i += 1) bytes[place + i] = colors.zero[i] + (full[i] - colors.zero[i]) * share;
  bytes[place + 3] = 255;
}

// Paint numbers on a canvas, one pixel for each; `strength` says how opaque each one is.
export function paintCells(canvas, cells, [height, width], top, signed, family = "value", strength = null) {
  const bytes = new Uint8ClampedArray(height * width * 4);
  cells.forEach((number, n) => {
    paint(bytes, n * 4, number, top, signed, family);
    if (strength) bytes[n * 4 + 3] = 255 * strength(n);
  });
  Object.assign(canvas, { width, height });
  canvas.getContext("2d").putImageData(new ImageData(bytes, width, height), 0, 0);
}

function bytesOf(number, top, signed, family) {
  const bytes = new Uint8ClampedArray(4);
  paint(bytes, 0, number, top, signed, family);
  return bytes;
}

// The style of what stands on the color of a number.
export function colored(number, top, signed = true) {
  return {
    background: `rgb(${bytesOf(number, top, signed).slice(0, 3).join(", ")})`,
    color: inkOn(number, top, signed),
  };
}

// Ink that is read on that color: of black and white the one with more contrast, which is enough for any
// color.
export function inkOn(number, top, signed = true, family = "value") {
  const linear = (byte) => (byte <= 10 ? byte / 3294 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = bytesOf(number, top, signed, family);
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) > 0.179
    ? "#000000"
    : "#ffffff";
}
