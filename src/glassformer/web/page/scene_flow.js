// What runs through the scene: the residual stream as a ribbon in every lane, and attention as lines between
// lanes.

const pen = (canvas, { width, height }) => {
  const sharp = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
    Object.assign(canvas, { width: Math.round(width * sharp), height: Math.round(height * sharp) });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  const own = canvas.getContext("2d");
  own.setTransform(sharp, 0, 0, sharp, 0, 0);
  own.clearRect(0, 0, width, height);
  return own;
};

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// lengths: by the names of the stream's points, the norm at each position; what: value or gradient.
export function drawRibbons(canvas, plan, lengths, what) {
  const own = pen(canvas, plan);
  const knots = [{ x: plan.label, of: null }];
  for (const place of [...plan.stations, ...plan.closed].sort((a, b) => a.x - b.x)) {
    if (lengths[place.name] && place.kind !== "adds")
      knots.push({ x: place.x + place.width / 2, of: lengths[place.name] });
  }
  if (knots.length < 2) return;
  knots[0].of = knots[1].of;
  const lanesEnd = plan.stations.filter((place) => place.rows !== "").at(-1);
  knots.push({ x: lanesEnd.x + lanesEnd.width, of: knots.at(-1).of });
  const most = Math.max(1e-30, ...knots.flatMap((knot) => knot.of.slice(...plan.lanes)));
  own.fillStyle = ink(what === "gradient" ? "--gradient-ribbon" : "--ribbon");
  for (let row = plan.lanes[0]; row < plan.lanes[1]; row += 1) {
    const middle = plan.top + (row - plan.lanes[0] + 0.5) * plan.lane;
    const half = (knot) =>
      Math.max(0.4, ((knot.of[row - plan.count + knot.of.length] ?? 0) / most) * plan.lane * 0.36);
    own.beginPath();
    knots.forEach((knot, n) => own[n ? "lineTo" : "moveTo"](knot.x, middle - half(knot)));
    for (const knot of [...knots].reverse()) own.lineTo(knot.x, middle + half(knot));
    own.fill();
  }
  drawArcs(own, plan, what);
  drawEnd(own, plan, lanesEnd);
}

// To the answers goes the last lane, or the first; or every lane, through one vector for the whole text.
function drawEnd(own, plan, last) {
  const pool = plan.stations.find((place) => place.rows === "");
  const middle = (row) => plan.top + (row + 0.5) * plan.lane;
  const from = last.x + last.width;
  own.lineWidth = Math.max(1, Math.min(3, plan.lane * 0.2));
  own.strokeStyle = ink("--ribbon");
  const count = plan.lanes[1] - plan.lanes[0];
  if (pool)
    for (let row = 0; row < count; row += 1) curve(own, from, middle(row), pool.x, pool.y + pool.height / 2);
  own.lineWidth = 5;
  if (!plan.answers) return;
  if (pool)
    curve(own, pool.x + pool.width, pool.y + pool.height / 2, plan.answers.x - 8, plan.answers.y + 12);
  else curve(own, from, middle(plan.isFirst ? 0 : count - 1), plan.answers.x - 8, plan.answers.y + 12);
}

function curve(own, x0, y0, x1, y1) {
  own.beginPath();
  own.moveTo(x0, y0);
  own.bezierCurveTo((x0 + x1) / 2, y0, (x0 + x1) / 2, y1, x1, y1);
  own.stroke();
}

// Past each sublayer the stream goes on unchanged, and what the sublayer adds joins it.
function drawArcs(own, plan, what) {
  const bottom = plan.top + plan.tall + 4;
  own.strokeStyle = own.fillStyle = ink(what === "gradient" ? "--gradient-ribbon" : "--ribbon");
  own.lineWidth = 4;
  for (const { from, to } of plan.arcs) {
    own.beginPath();
    own.moveTo(from, bottom);
    own.bezierCurveTo(from, bottom + 24, to, bottom + 24, to, bottom + 3);
    own.stroke();
    own.beginPath();
    own.arc(to, bottom + 4, 6, 0, 2 * Math.PI);
    own.fill();
  }
  own.strokeStyle = ink("--ink");
  own.lineWidth = 1.4;
  for (const { to } of plan.arcs) {
    own.beginPath();
    own.moveTo(to - 3, bottom + 4);
    own.lineTo(to + 3, bottom + 4);
    own.moveTo(to, bottom + 1);
    own.lineTo(to, bottom + 7);
    own.stroke();
  }
}

// The attention of the chosen head as lines from the values to the tokens that look at them; with a lane, its
// own alone: all else fades. weights: {station, found: a tile, keys: how many there are, from: the station of
// the values}.
export function drawLines(canvas, plan, weights, lane) {
  const own = pen(canvas, plan);
  if (lane !== null) fade(own, plan, weights, lane);
  if (!weights) return;
  const { station, found, keys, from } = weights;
  const [rows, columns] = found.facts.size;
  const [x0, x1] = [from.x + from.width + 2, station.x - 3];
  const keyTop = (column) => plan.top + ((column + 0.5) * station.height) / columns;
  own.strokeStyle = ink("--attention");
  own.lineCap = "round";
  for (let row = 0; row < rows; row += 1) {
    const isOwn = lane === null || row === lane - plan.lanes[0];
    if (!isOwn && keys !== columns) continue;
    for (let column = 0; column < columns; column += 1) {
      const weight = found.cells[row * columns + column];
      // Who looks at this lane is drawn faintly.
      const reads = isOwn ? weight : column === lane ? weight * 0.4 : 0;
      if (reads < (lane === null ? 0.06 : 0.01)) continue;
      own.globalAlpha = lane === null ? 0.1 + 0.45 * weight : 0.15 + 0.8 * reads;
      own.lineWidth = Math.max(0.6, reads * Math.min(9, Math.max(3, plan.lane * 0.6)));
      const [y0, y1] = [keyTop(column), plan.top + (row + 0.5) * plan.lane];
      curve(own, x0, y0, x1, y1);
    }
  }
  own.globalAlpha = 1;
}

// All lanes but one become pale; of keys and values, the rows that the lane looks at stay.
function fade(own, plan, weights, lane) {
  const row = lane - plan.lanes[0];
  own.fillStyle = ink("--veil");
  for (const place of [...plan.stations, ...plan.closed]) {
    if (place.rows === "") continue; // one vector for the whole text
    own.fillRect(place.x - 1, plan.top, place.width + 2, row * plan.lane);
    own.fillRect(
      place.x - 1,
      plan.top + (row + 1) * plan.lane,
      place.width + 2,
      plan.tall - (row + 1) * plan.lane,
    );
  }
  if (!weights) return;
  const { station, found } = weights;
  const columns = found.facts.size[1];
  own.globalCompositeOperation = "destination-out";
  for (const place of plan.stations.filter(
    (one) => one.part === station.part && ["key", "value"].includes(one.kind),
  )) {
    for (let column = 0; column < columns; column += 1) {
      own.globalAlpha = Math.min(1, found.cells[row * columns + column] * 1.5);
      own.fillRect(
        place.x,
        plan.top + (column * place.height) / columns,
        place.width,
        place.height / columns,
      );
    }
  }
  own.globalAlpha = 1;
  own.globalCompositeOperation = "source-over";
}
