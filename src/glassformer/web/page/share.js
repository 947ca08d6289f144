// Share: the address, the run as one file that needs no server, and a tensor as a picture or as numbers.

import { button, fill, make, short, tell, whole } from "./dom.js";
import { heat } from "./heat.js";
import { isSameState, kept, keptKey, tileKey } from "./kept.js";
import { asked, fetchFile, settled, work } from "./server.js";
import { change, look, runState, state } from "./state.js";

const ABOUT_NOW = new Set(["models", "job", "stop", "train", "trainings", "share", "npz", "keep"]);

export function drawShare(place, page) {
  place.append(
    make("h2", "Share"),
    ...(kept ? [inFile()] : [shareAddress(), shareFile(page)]),
    shareTensor(page),
  );
}

function inFile() {
  return make(
    "p.box",
    "This page is one file and works without a server. It has what was saved: controls that need the " +
      "model are off. ",
    "To change the model or its text, open it with ",
    make("code", "glassformer explore"),
    ".",
  );
}

function shareAddress() {
  const box = make("input", { id: "share-address", readonly: true, value: location.href });
  const copy = () =>
    navigator.clipboard.writeText(location.href).then(
      () => tell("The address is copied."),
      () => {
        box.select();
        tell("Press Ctrl-C to copy it.");
      },
    );
  return make(
    "section.box.stack",
    make("h3", "The address"),
    make(
      "p.quiet",
      "It holds the text, all changes and what is open. It works on this machine while the server runs.",
    ),
    make("div.row", make("label.share-wide", "Address of what you see", box), button("Copy", copy)),
  );
}

// --- one file ----------------------------------------------------------------------------------------------

function shareFile(page) {
  const set = { views: null, gradients: true, ...look("share") };
  const views = page.views.filter((view) => view.needsRun && view.group !== "beside");
  const chosen = new Set(set.views ?? views.map((view) => view.id));
  const keep = () => look("share", { views: [...chosen], gradients: set.gradients });
  const tick = (title, on, act) => {
    const box = make("input", { type: "checkbox" });
    box.checked = on;
    box.addEventListener("change", () => {
      act(box.checked);
      keep();
    });
    return make("label.share-tick", box, title);
  };
  const progress = make("div.row");
  const save = button(
    "Save as one file",
    () =>
      saveFile(
        views.filter((view) => chosen.has(view.id)),
        set,
        progress,
        save,
      ),
    { class: "main", id: "share-save" },
  );
  return make(
    "section.box.stack",
    make("h3", "One file"),
    make(
      "p.quiet",
      "One page with this text, its values and gradients. It opens anywhere without a server, and has at " +
        "most 5 MB. Every cell opens its card with value, gradient, formula and numbers; of a large model, " +
        "some numbers are left out, and the card says so.",
    ),
    make(
      "fieldset.row",
      make("legend", "What is kept"),
      views.map((view) =>
        tick(view.title, chosen.has(view.id), (on) => {
          if (on) chosen.add(view.id);
          else chosen.delete(view.id);
        }),
      ),
      tick("gradients of every tensor", set.gradients, (on) => {
        set.gradients = on;
      }),
    ),
    make("div.row", save),
    progress,
  );
}

// Visit the views, so that they ask what they need; then let the server write down the answers.
async function saveFile(views, set, progress, save) {
  save.disabled = true;
  const told = { ...state(), view: views[0]?.id ?? "share" };
  try {
    for (const view of views) {
      change({ view: view.id }, { undoable: false });
      await settled();
    }
    change({ view: "share" }, { undoable: false });
    const place = document.querySelector("#share-save")?.parentElement ?? progress;
    const bar = make("progress", { max: 1, value: 0, "aria-label": "writing the file" });
    place.append(bar);
    const found = await work(
      "share",
      {
        told,
        asked: questions(told),
        views: views.map((view) => view.id),
        whats: set.gradients ? ["value", "gradient"] : ["value"],
      },
      (job) => {
        bar.value = job.total ? job.done / job.total : 0;
      },
    );
    bar.remove();
    saveBlob(new Blob([found.html], { type: "text/html" }), `${fileWord(told)}.html`);
    tell(`Saved: ${short(found.bytes / 1e6, 3)} MB.`);
  } catch (error) {
    change({ view: "share" }, { undoable: false });
    tell(error.message);
  }
}

// What was asked about this run, each with the key under which the file looks for it.
function questions(told) {
  const own = runState();
  const fits = ({ word, question }) =>
    !ABOUT_NOW.has(word) &&
    (question.state === undefined
      ? question.model === undefined || question.model === told.model
      : isSameState(question.state, own) || isSameState(question.state, { ...own, changes: [] }));
  return [...asked.values()].filter(fits).map((one) => ({
    word: one.word,
    work: one.work,
    question: isSameState(one.question.state, own) ? { ...one.question, state: "@" } : one.question,
    key:
      one.word === "tile"
        ? tileKey(one.question, own)
        : keptKey(one.work ? `work ${one.word}` : one.word, one.question, own),
  }));
}

function fileWord(told) {
  return `glassformer-${told.model.split("/").at(-1)}`.replace(/[^\w.-]+/g, "-");
}

function saveBlob(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// --- one tensor --------------------------------------------------------------------------------------------

function shareTensor(page) {
  const all = [...page.run.values, ...page.run.parameters];
  const set = { what: "value", name: undefined, ...look("share") };
  const card = look("card").open;
  const tensor = all.find((one) => one.name === (set.name ?? card?.name)) ?? all[0];
  const names = make(
    "select",
    { id: "share-name" },
    all.map((one) => make("option", { value: one.name, selected: one === tensor }, one.name)),
  );
  const whats = make(
    "select",
    { id: "share-what" },
    ["value", "gradient"].map((what) => make("option", { value: what, selected: what === set.what }, what)),
  );
  const place = make("div.scroll");
  const redraw = () => {
    const chosen = all.find((one) => one.name === names.value);
    look("share", { name: names.value, what: whats.value });
    fill(
      place,
      heat({
        ...chosen,
        what: whats.value,
        at: chosen.shape.slice(0, -2).map(() => 0),
        ...page.labelsFor(chosen),
      }),
    );
  };
  names.addEventListener("change", redraw);
  whats.addEventListener("change", redraw);
  redraw();
  const word = () => `${whats.value}.${names.value}`;
  const canvas = () => place.querySelector("canvas");
  const numbers = () =>
    fetchFile("npz", { state: runState(), what: whats.value, name: names.value })
      .then(({ name, blob }) => saveBlob(blob, name))
      .catch((error) => tell(error.message));
  return make(
    "section.box.stack",
    make("h3", "A tensor"),
    make(
      "div.row",
      make("label", "Tensor", names),
      make("label", "What", whats),
      button("Picture as PNG", () => asPng(canvas(), word())),
      button("Picture as SVG", () => asSvg(canvas(), word())),
      kept ? null : button("Numbers as .npz", numbers),
    ),
    place,
  );
}

// A picture in which every cell is a square of whole pixels.
function asPng(canvas, word) {
  const cell = Math.max(1, Math.floor(1024 / Math.max(canvas.width, canvas.height)));
  const large = make("canvas");
  large.width = canvas.width * cell;
  large.height = canvas.height * cell;
  const pen = large.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(canvas, 0, 0, large.width, large.height);
  large.toBlob((blob) => saveBlob(blob, `${word}.png`), "image/png");
}

function asSvg(canvas, word) {
  const { width, height } = canvas;
  const bytes = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const picture = make(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      viewBox: `0 0 ${width} ${height}`,
      "shape-rendering": "crispEdges",
    },
    make("title", canvas.getAttribute("aria-label")),
  );
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const at = 4 * (row * width + column);
      picture.append(
        make("rect", {
          x: column,
          y: row,
          width: 1,
          height: 1,
          fill: `rgb(${bytes[at]},${bytes[at + 1]},${bytes[at + 2]})`,
        }),
      );
    }
  }
  saveBlob(
    new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" }),
    `${word}.svg`,
  );
  if (width * height > 60000) tell(`The picture has ${whole(width * height)} cells: a PNG is smaller.`);
}
