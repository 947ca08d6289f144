// Where everything stands in the scene: lanes of tokens from top to bottom, stations from left to right, in
// pixels.

const TOP = 104; // room for the titles and for the words above an attention matrix
const BELOW = 30; // room for the arcs of the residual stream
const GAP = [7, 11]; // between stations, where room is scarce and where it is not
const STRIP = [40, 120]; // how wide a strip is, at least and at most
const ANSWERS = 196;
const MATRIX = [96, 224]; // a matrix is at least and at most this wide
export const MOST_LANES = 96;

// The lanes that are shown: all of them, or a window of many.
export function lanesOf(count, first) {
  const size = Math.min(count, MOST_LANES);
  const start = Math.max(0, Math.min(first ?? count - size, count - size));
  return [start, start + size];
}

// part: a stack of the scene; words: its tokens; open: the block that is open; wide: pixels there are.
// Returns {width, height, top, lane, lanes, label, tall, stations, closed, frames, arcs, answers}.
export function layOut(part, settings) {
  const roomy = placeAll(part, settings, STRIP[0]);
  const narrow =
    roomy.width > settings.wide ? placeAll(part, { ...settings, isTight: true }, STRIP[0]) : roomy;
  const strips = narrow.stations.filter((one) => one.kind !== "weights").length;
  // Strips share the room that is left.
  const more = Math.floor((settings.wide - narrow.width) / Math.max(1, strips));
  return more > 0
    ? placeAll(part, { ...settings, isTight: narrow !== roomy }, Math.min(STRIP[1], STRIP[0] + more))
    : narrow;
}

function placeAll(part, { words, lanes, open, attention, hasAnswers, wide, isTight = false }, strip) {
  const count = lanes[1] - lanes[0];
  const lane = Math.max(3, Math.min(wide > 1800 ? 40 : 30, (wide > 1800 ? 560 : 400) / count));
  const tall = count * lane;
  const label =
    lane < 9
      ? 54
      : Math.min(118, Math.max(44, ...words.slice(...lanes).map((word) => word.length * 7.8 + 22)));
  const sizes = {
    strip,
    lines: Math.max(56, Math.min(isTight ? 64 : 90, tall / 3)),
    matrix: Math.max(
      MATRIX[0],
      Math.min(wide > 1800 ? 400 : isTight ? 180 : MATRIX[1], lane * Math.max(5, count)),
    ),
    closed: Math.max(4, Math.min(24, 150 / Math.max(1, part.blocks.length))),
  };
  const gap = GAP[isTight ? 0 : 1];
  const own = {
    x: label + gap + 8,
    gap,
    count: words.length,
    lane,
    label,
    lanes,
    top: TOP,
    tall,
    sizes,
    keysOf: part.tokens,
    sums: part.sums,
    stations: [],
    closed: [],
    frames: [],
    arcs: [],
  };
  for (const station of part.start) put(own, station, strip);
  own.x += Math.max(0, (72 - strip) / 2 - gap); // the word “embedding” ends before the block begins
  const block = part.blocks[open];
  close(own, part.blocks, 0, block ? open : part.blocks.length);
  if (block) {
    const start = own.x;
    own.x += 10;
    placeBlock(own, shownIn(block, attention));
    own.frames.push({ kind: "block", title: `block ${open}`, x: start - 2, width: own.x - start - 2 });
    own.x += 10;
    close(own, part.blocks, open + 1, part.blocks.length);
  }
  for (const station of part.end) put(own, station, strip);
  const answers = hasAnswers ? { x: own.x + 26, y: TOP, width: ANSWERS - 34 } : null;
  return { ...own, width: own.x + (hasAnswers ? ANSWERS : 0), height: TOP + tall + BELOW, answers };
}

// One vector for a whole text stands in the middle, two lanes high.
function put(own, station, width) {
  const skip =
    // Lanes that begin behind it.
    own.lanes[0] === 0 && station.rows === own.keysOf ? Math.max(0, own.count - station.shape.at(-2)) : 0;
  const room =
    station.rows === ""
      ? { y: own.top + own.tall / 2 - own.lane, height: 2 * own.lane, skip: 0 }
      : { y: own.top + skip * own.lane, height: own.tall - skip * own.lane, skip };
  if (station.rows === "") own.x += 34;
  own.stations.push({ ...station, ...room, x: own.x, width });
  own.x += width + own.gap;
  return own.stations.at(-1);
}

function close(own, blocks, from, to) {
  for (let layer = from; layer < to; layer += 1) {
    own.closed.push({
      layer,
      name: blocks[layer].name,
      x: own.x,
      y: own.top,
      width: own.sizes.closed,
      height: own.tall,
    });
    own.x += own.sizes.closed + (own.sizes.closed < 8 ? 1 : 3);
  }
  if (to > from) own.x += own.gap;
}

// What is shown of an open block: of two attentions, one is open and the other shows what it adds.
function shownIn(block, attention) {
  return block.stations.filter(
    (one) =>
      one.part !== (attention === "attention" ? "cross_attention" : "attention") ||
      one.kind === "adds" ||
      !hasTwo(block),
  );
}

export function hasTwo(block) {
  return block.stations.some((one) => one.part === "cross_attention");
}

function placeBlock(own, inside) {
  let from = own.closed.at(-1) ?? own.stations.at(-1); // the stream that the sublayer reads
  let frame = null;
  const finish = () => {
    if (frame) {
      frame.width = own.x - frame.x - 4;
      frame = null;
    }
  };
  for (const station of inside) {
    if (station.part && frame?.part !== station.part) {
      finish();
      frame = { kind: "part", part: station.part, title: station.part.replace("_", "-"), x: own.x - 5 };
      own.frames.push(frame);
    }
    if (station.kind === "weights") {
      own.x += own.sizes.lines;
      put(own, station, own.sizes.matrix);
      continue;
    }
    if (!station.part) {
      finish();
      own.x += 8;
    }
    // Room for the tokens of the source.
    const words = station.kind === "key" && station.rows !== own.keysOf ? 46 : 0;
    own.x += words;
    const placed = put(own, { ...station, words }, own.sizes.strip);
    if (station.kind === "stream") {
      if (own.sums) own.arcs.push({ from: from.x + from.width / 2, to: placed.x + placed.width / 2 });
      from = placed;
      own.x += 4;
    }
  }
  finish();
}
