// What is kept in a page that is one file: answers and tiles, by the keys of the questions that led to them.

const keptPlace = document.getElementById("kept");

// A promise of {told, state, answers, tiles, buffer, start} in such a file; null on a page with a server.
export const kept = keptPlace ? readKept(keptPlace.textContent) : null;

// Settings of controls that need the server: they are off in a file.
export const live = kept ? { disabled: true, title: "This page is one file. Open the model with `glassformer explore` to do this." } : {};

async function readKept(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const buffer = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const index = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return { ...index, buffer, start: 4 + length };
}

// The key of a question: its word, and the question with its names in order; the state of the file itself is "@".
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
  return Object.fromEntries(Object.entries(part).filter(([, one]) => one !== undefined).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, one]) => [name, inOrder(one)]));
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

// The bytes of a tile; undefined where the file has none. A part of a tile with every entry is cut from it.
export async function keptTile(question) {
  const all = await kept;
  const { rows, columns, ...whole } = question;
  const places = whole.at ? [whole.at] : [[], [0], [0, 0]];
  const find = (asked) => all.tiles[tileKey(asked, all.state)];
  const bytes = (place) => all.buffer.slice(all.start + place[0], all.start + place[0] + place[1]);
  const exact = find(question);
  if (exact) return bytes(exact);
  const refused = [question, ...places.map((at) => ({ ...whole, at }))].map((asked) => refusedIn(all, tileKey(asked, all.state))).find(Boolean);
  if (refused) return refused;
  const place = places.map((at) => find({ ...whole, at })).find(Boolean);
  if (!place) return undefined;
  return rows || columns ? cutTile(bytes(place), rows, columns) : bytes(place);
}

function cutTile(buffer, rows, columns) {
  const length = new DataView(buffer).getUint32(0, true);
  const facts = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  if (facts.step[0] !== 1 || facts.step[1] !== 1) return undefined;
  const cells = new Float64Array(buffer, 4 + length);
  const [top, bottom] = rows ?? facts.rows;
  const [left, right] = columns ?? facts.columns;
  const head = new TextEncoder().encode(JSON.stringify({ ...facts, rows: [top, bottom], columns: [left, right], size: [bottom - top, right - left] }));
  const start = Math.ceil((head.length + 4) / 8) * 8;
  const cut = new ArrayBuffer(start + 8 * (bottom - top) * (right - left));
  new Uint8Array(cut).fill(32, 4, start);
  new Uint8Array(cut).set(head, 4);
  new DataView(cut).setUint32(0, start - 4, true);
  const inside = new Float64Array(cut, start);
  for (let row = top; row < bottom; row += 1) inside.set(cells.subarray(row * facts.size[1] + left, row * facts.size[1] + right), (row - top) * (right - left));
  return cut;
}
