// Change it: tokens, switches, any value, who may see whom; and what follows, before and after side by side.

import { button, exact, fill, make, section, short, visible } from "./dom.js";
import { heat } from "./heat.js";
import { kept, live } from "./kept.js";
import { ask, tile } from "./server.js";
import { look, runState, state } from "./state.js";
import { addToCards, openCard } from "./card.js";
import { holdFocus, keepSteady } from "./steady.js";
import { oneChange, tryChanges } from "./trials.js";
import { changeForm } from "./change_form.js";
import { sweepBox } from "./sweeps.js";
import { switchGrid } from "./switches.js";
import { tokenPicker } from "./picker.js";

export const changeView = { id: "change", title: "Change it", draw: drawChange };

function drawChange(place, page) {
  const compared = comparison(page);
  const next = outcomeBox(page);
  if (kept) { // a file shows what the changes did
    place.append(make("fieldset", { class: "stack", ...live }, section("What follows", null, next), section("A tensor before and after", null, compared)));
    return;
  }
  const grid = switchGrid();
  place.append(
    section("What it reads", "Click a token to put another one in its place. The text itself stands at the top of the page.", tokenEditors(page)),
    section("What follows", null, next),
    section("Switched off", "A layer or head that is off adds nothing; a norm that is off neither centers nor scales; a token that is off starts from a zero vector.", grid),
    section("A tensor before and after", null, compared),
    section("Any value", "A value of the run, a parameter, a part of the batch, or a gradient on its way back. Leave a place empty to change all of it. One number at a time: on its card.", changeForm(page)),
    section("Who may see whom", "Click a cell to let a token see another one, or to hide it.", maskEditor(page)),
    section("One at a time", "One run for each head that is switched off, or for each vector of the stream that is taken from a second text.", sweepBox(page)),
  );
  keepSteady(place, [grid.ready, compared.ready, next.ready]);
}

// --- tokens ---------------------------------------------------------------------------------------------------------

function tokenEditors(page) {
  const parts = [["source", page.run.source], ["tokens", page.run.tokens]].filter(([, read]) => read);
  return parts.map(([part, read]) => {
    const chosen = make("div");
    const open = (position) => fill(chosen, tokenChooser(page, part, read, position, () => fill(chosen)));
    return make("div", { class: "stack" }, parts.length > 1 ? make("h3", {}, part === "source" ? "Source" : "Answer") : null,
      make("div", { class: "tokens", role: "group", "aria-label": part === "source" ? "Tokens of the source" : "Tokens" }, read.map((token, position) => {
        const changed = state().changes.some((one) => one.name === part && one.where?.position === position);
        return button(visible(token.label), () => open(position), { class: changed ? "token changed" : "token", title: `position ${position}, token ${token.id}${changed ? ", changed" : ""}`, "data-key": `${part} ${position}` });
      })), chosen);
  });
}

// Where each token is asked for by the one before it, the question may follow the token or stay.
function tokenChooser(page, part, read, position, close) {
  const asks = part === "tokens" && position > 0 && page.run.batch.includes("targets") && page.info.architecture !== "encoder";
  const follow = make("input", { type: "checkbox", checked: true });
  const put = async (token) => {
    const list = [oneChange("put", part, { example: 0, position }, token.id)];
    if (asks && follow.checked) list.push(oneChange("put", "targets", { example: 0, position: position - 1 }, token.id));
    const before = state().changes.filter((one) => list.some((own) => own.name === one.name && own.where.position === one.where?.position));
    holdFocus(`${part} ${position}`);
    if (await tryChanges(list, { without: before })) close();
  };
  return make("div", { class: "stack inner" },
    make("div", { class: "row" }, make("h3", {}, `In the place of ${visible(read[position].label)}, position ${position}`), button("Close", close)),
    asks ? make("label", { class: "check" }, follow, "the loss asks for it, too") : null,
    tokenPicker({ title: "Token", part, onpick: put }));
}

// --- what follows ---------------------------------------------------------------------------------------------------

function outcomeBox(page) {
  const place = make("div", { class: "stack" });
  const idle = (page.run.idle ?? []).length;
  const said = idle ? make("p", { class: "bad" }, idle === 1 ? "One of the changes altered nothing." : `${idle} of the changes altered nothing.`) : null;
  const loss = page.run.loss === null ? null : make("p", {}, "loss ", make("b", { class: "mono", title: exact(page.run.loss_before) }, short(page.run.loss_before, 6)), " → ",
    make("b", { class: "mono", title: exact(page.run.loss) }, short(page.run.loss, 6)));
  if (!state().changes.length) place.append(make("p", { class: "quiet" }, "Nothing has been changed yet."));
  if (page.run.next === null) {
    place.append(make("p", { class: "quiet" }, "This model returns vectors, not tokens: see them below, before and after."));
    place.ready = Promise.resolve();
    return place;
  }
  const table = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Likeliest before and after" });
  const position = look("change").position ?? -1;
  const choice = make("select", { onchange: (event) => { look("change", { position: Number(event.target.value) }); drawOutcome(page, table); } });
  const several = page.info.architecture !== "encoder" || !page.info.classes;
  if (several) fill(choice, page.run.tokens.map((token, n) => make("option", { value: String(n), selected: n === (position < 0 ? page.run.tokens.length + position : position) }, `${n}: ${visible(token.label)}`)));
  place.append(...[loss, said, several ? make("label", { class: "narrow" }, "After the token at position", choice) : null, table].filter(Boolean));
  place.ready = drawOutcome(page, table);
  return place;
}

async function drawOutcome(page, table) {
  const last = page.run.tokens.length - 1;
  const position = Math.min(look("change").position ?? -1, last);
  try {
    const found = await ask("outcome", { state: runState(), position });
    const rows = found.rows.map((row) => make("tr", {}, make("th", { scope: "row", class: "mono" }, visible(row.label)), shareCell(row.before, row.rank_before), shareCell(row.after, row.rank_after),
      make("td", { class: "number" }, row.after === row.before ? "" : `${row.after > row.before ? "+" : "−"}${(Math.abs(row.after - row.before) * 100).toFixed(2)}`)));
    fill(table, make("table", { class: "outcome" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, page.info.classes ? "class" : "next"), make("th", { scope: "col" }, "before"),
      make("th", { scope: "col" }, "after"), make("th", { scope: "col", class: "number" }, "points"))), make("tbody", {}, rows)));
  } catch (error) {
    fill(table, make("p", { class: "bad" }, error.message));
  }
}

function shareCell(share, rank) {
  const bar = make("span", { class: "bar", "aria-hidden": "true", style: { width: `${share * 100}%` } });
  return make("td", { title: `${exact(share)}, rank ${rank}` }, make("span", { class: "barred" }, bar, make("span", { class: "mono" }, `${(share * 100).toFixed(2)} %`)));
}

// --- a tensor before and after --------------------------------------------------------------------------------------

// The first tensor that the changes touch.
function firstChanged() {
  const name = state().changes[0]?.name;
  return { tokens: "embedding", source: "source_embedding" }[name] ?? name;
}

function comparison(page) {
  const settings = look("change");
  const names = [...page.run.values, ...page.run.parameters];
  const chosen = names.find((one) => one.name === (settings.tensor ?? firstChanged())) ?? page.run.values.findLast((one) => one.name.endsWith("attend.weights")) ?? names[0];
  const ofGradient = settings.ofGradient === true;
  const again = (parts) => { look("change", parts); page.redraw(); };
  const at = chosen.shape.slice(0, -2).map((size, axis) => Math.min(size - 1, settings.at?.[axis] ?? 0));
  const place = make("div", { class: "stack" });
  const maps = make("div", { class: "thirds" });
  place.append(make("div", { class: "row" }, nameField("Tensor", "change-tensor", names, chosen.name, (name) => again({ tensor: name, at: [] })),
    chosen.shape.slice(0, -2).map((size, axis) => (size === 1 ? null : indexField(`${chosen.axes[axis] ?? "index"} of ${size}`, size, at[axis], (number) => again({ at: at.map((old, n) => (n === axis ? number : old)) })))),
    make("div", { class: "row", role: "group", "aria-label": "Of" }, [["values", false], ["gradients", true]].map(([word, own]) => button(word, () => { holdFocus(`of ${word}`); again({ ofGradient: own }); }, { "aria-pressed": String(own === ofGradient), "data-key": `of ${word}` })))), maps);
  place.ready = drawComparison(page, chosen, at, ofGradient, maps);
  return place;
}

async function drawComparison(page, tensor, at, ofGradient, maps) {
  const whats = ofGradient ? ["gradient before", "gradient", "gradient change"] : ["before", "value", "change"];
  const asked = runState();
  const question = (what) => ({ state: asked, what, name: tensor.name, at, height: 1, width: 1 });
  let top;
  try {
    const facts = await Promise.all(whats.slice(0, 2).map((what) => tile(question(what))));
    top = Math.max(...facts.flatMap((one) => [Math.abs(one.facts.here.least ?? 0), Math.abs(one.facts.here.most ?? 0)]));
  } catch (error) {
    fill(maps, make("p", { class: "bad" }, error.message));
    return;
  }
  // Another run may be shown by now, perhaps of a model without this tensor.
  if (JSON.stringify(runState()) !== JSON.stringify(asked)) return;
  const titles = ["before", "after", "difference"];
  const figures = whats.map((what, n) => heat({ ...tensor, what, at, ...page.labelsFor(tensor), title: titles[n], top: n < 2 ? top : undefined, size: 300,
    onpick: (index) => openCard({ name: tensor.name, index, gradient: ofGradient }) }));
  fill(maps, figures);
  await Promise.all(figures.map((figure) => figure.ready));
}

// A name among many, with what is known offered while one types.
function nameField(title, id, names, value, act) {
  const box = make("input", { id, list: `${id}-names`, autocomplete: "off", spellcheck: false, class: "mono wide", "data-key": id, value, onchange: () => { if (names.some((one) => one.name === box.value)) { holdFocus(id); act(box.value); } } });
  return make("label", { for: id }, title, box, make("datalist", { id: `${id}-names` }, names.map((one) => make("option", { value: one.name }))));
}

function indexField(title, size, value, act) {
  const key = `index ${title}`;
  const box = make("input", { type: "number", min: "0", max: String(size - 1), step: "1", "data-key": key, value: String(value), onchange: () => { holdFocus(key); act(Math.max(0, Math.min(size - 1, Math.round(Number(box.value)) || 0))); } });
  return make("label", { class: "narrow" }, title, box);
}

// --- who may see whom -----------------------------------------------------------------------------------------------

function maskEditor(page) {
  const masks = page.run.values.filter((one) => one.name.endsWith(".mask"));
  if (!masks.length) return make("p", { class: "quiet" }, "This model has no masks that are known by name.");
  const settings = look("change");
  const chosen = masks.find((one) => one.name === settings.mask) ?? masks[0];
  const head = Math.min(settings.maskHead ?? 0, chosen.shape[1] - 1);
  const again = (parts) => { look("change", parts); page.redraw(); };
  const select = make("select", { "data-key": "mask", onchange: (event) => { holdFocus("mask"); again({ mask: event.target.value }); } },
    masks.map((one) => make("option", { value: one.name, selected: one.name === chosen.name }, one.name.replace(".attend.mask", ""))));
  const map = heat({ ...chosen, at: [0, head], ...page.labelsFor(chosen), title: chosen.name, top: 1, size: 320, onpick: (index, own) => toggleMask(chosen.name, index, own) });
  return make("div", { class: "stack" }, make("div", { class: "row" }, make("label", {}, "Attention", select), indexField(`head of ${chosen.shape[1]}`, chosen.shape[1], head, (number) => again({ maskHead: number }))), map);
}

function toggleMask(name, index, own) {
  const [example, head, position, key] = index;
  const where = { example, head, position, key };
  const same = state().changes.filter((one) => one.name === name && JSON.stringify(one.where) === JSON.stringify(where));
  if (same.length) return tryChanges([], { without: same });
  const seen = own.found.cells[own.cursor[0] * own.found.facts.size[1] + own.cursor[1]];
  return tryChanges([oneChange("put", name, where, seen ? 0 : 1)]);
}

// --- on the card of a number ----------------------------------------------------------------------------------------

addToCards((card, one) => {
  const where = Object.fromEntries(card.axes.map((axis, n) => [axis, card.index[n]]));
  if (kept || card.axes.length !== card.index.length || Object.keys(where).length !== card.index.length) return null;
  const word = one.gradient === true || card.kind === "gradient" ? "put_gradient" : "put";
  const box = make("input", { type: "number", step: "any", id: "card-number", value: String(card.value), onkeydown: (event) => { if (event.key === "Enter") put(); } });
  const put = () => {
    if (box.value === "" || !Number.isFinite(Number(box.value))) { box.focus(); return; }
    const before = state().changes.filter((own) => own.word === word && own.name === card.name && JSON.stringify(own.where) === JSON.stringify(where));
    tryChanges([oneChange(word, card.name, where, Number(box.value))], { without: before });
  };
  return make("section", {}, make("h3", {}, "Change it"), make("div", { class: "row" }, make("label", { for: "card-number" }, word === "put" ? "Another number in its place" : "Another gradient in its place", box), button("Put it there", put)));
});
