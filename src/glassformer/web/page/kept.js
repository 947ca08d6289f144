// What is kept in a page that is one file: answers and tiles, by the keys of the questions that led to them.

const keptPlace = document.getElementById("kept");

// A promise of {told, state, answers, tiles, buffer, start} in such a file; null on a page with a server.
export const kept = keptPlace ? readKept(keptPlace.textContent) : null;

// Settings of controls that need the server: they are off in a file.
export const live = kept
  ? { disabled: true, title: "This page is one file. Open the model with `glassformer explore` to do this." }
  : {};

async function readKept(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const buffer = await new Response(
    new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")),
  ).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const index = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return { ...index, buffer, start: 4 + length };
}

// The key of a question: its word, and the question with its names in order; the state of the file itself is
// "@".
export function keptKey(word, question, own) {
  const asked = isSameState(question.state, own) ? { ...question, state: "@" } : question;
  return `${word} ${JSON.stringify(inOrder(asked))}`;
}

export function isSameState(one, other) {
  return Boolean(one) && JSON.stringify(inOrder(one)) === JSON.stringify(inOrder(other));
}

// The key of a tile, however large it is on the screen.
export function tileKey(question, own) {
  const { height, width, ...asked } = question;
  return keptKey("tile", asked, own);
}

function inOrder(part) {
  if (Array.isArray(part)) return part.map(inOrder);
  if (part === null || typeof part !== "object") return part;
  return Object.fromEntries(
    Object.entries(part)
      .filter(([, one]) => one !== undefined)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, one]) => [name, inOrder(one)]),
  );
}

// The answer to a question; undefined where the file has none.
export async function keptAnswer(word, question) {
  const all = await kept;
  const key = keptKey(word, question, all.state);
  const found = all.answers[key] ?? refusedIn(all, key);
  return found === undefined ? undefined : structuredClone(found);
}

function refusedIn(all, key) {
  return all.refused[key] && { refused: all.refused[key] };
}

// A tile; undefined where the file has none. A part of a tile with every entry is cut from it.
export async function keptTile(question) {
  const all = await kept;
  const { rows, columns, ...whole } = question;
  const places = whole.at ? [whole.at] : [[], [0], [0, 0]];
  const read = (asked) => {
    const place = all.tiles[tileKey(asked, all.state)];
    return place && readTile(all.buffer.slice(all.start + place[0], all.start + place[0] + place[1]));
  };
  const exact = read(question);
  if (exact) return exact;
  const refused = [question, ...places.map((at) => ({ ...whole, at }))]
    .map((asked) => refusedIn(all, tileKey(asked, all.state)))
    .find(Boolean);
  if (refused) return refused;
  const found = places.map((at) => read({ ...whole, at })).find(Boolean);
  return found && (rows || columns)
    ? cutTile(found, rows ?? found.facts.rows, columns ?? found.facts.columns)
    : found;
}

// Facts as JSON behind their length, then the cells, and of a coarse tile which entry each cell shows.
export function readTile(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const facts = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const count = facts.size[0] * facts.size[1];
  const cells = new (facts.single ? Float32Array : Float64Array)(buffer, 4 + length, count);
  return {
    facts,
    cells,
    places:
      facts.step[0] * facts.step[1] > 1
        ? new Uint32Array(buffer, 4 + length + cells.byteLength, count)
        : null,
  };
}

function cutTile({ facts, cells, places }, [top, bottom], [left, right]) {
  const wide = facts.columns[1] - facts.columns[0];
  const flat = Array.from(
    { length: (bottom - top) * (right - left) },
    (_, n) =>
      (top + Math.floor(n / (right - left)) - facts.rows[0]) * wide +
      left +
      (n % (right - left)) -
      facts.columns[0],
  );
  // Of a coarse tile, entries that a cell shows.
  const found = places ? flat.map((one) => places.indexOf(one)) : flat;
  if (found.some((one) => one < 0)) return undefined;
  return {
    facts: {
      ...facts,
      rows: [top, bottom],
      columns: [left, right],
      step: [1, 1],
      size: [bottom - top, right - left],
    },
    cells: Float64Array.from(found, (one) => cells[one]),
    places: null,
  };
}
