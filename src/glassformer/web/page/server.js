// The one module that talks to the server. Tensors come as binary tiles, everything else as JSON.
// In a page that is one file there is no server: the same questions are answered from what is kept there.

import { kept, keptAnswer, keptTile, readTile } from "./kept.js";

class Refusal extends Error {
  constructor(fact, hint) {
    super(
      [fact, hint]
        .filter(Boolean)
        .map((part) => part[0].toUpperCase() + part.slice(1))
        .join(". "),
    );
    this.fact = fact;
    this.hint = hint;
  }
}

let waiting = 0;
let resting = null;

// The page says that it waits, to eyes and to screen readers; it is at rest when the answer has been drawn.
function busy(more) {
  waiting += more;
  clearTimeout(resting);
  if (waiting > 0) showBusy(true);
  else resting = setTimeout(() => showBusy(false), 0);
}

function showBusy(isBusy) {
  document.getElementById("view").setAttribute("aria-busy", String(isBusy));
  const bar = document.querySelector(".busy");
  if (!isBusy) bar?.remove();
  else if (!bar) {
    const line = document.createElement("div");
    line.className = "busy";
    document.body.append(line);
  }
}

async function whileBusy(act) {
  busy(1);
  try {
    return await act();
  } finally {
    busy(-1);
  }
}

// read: what to make of the answer
async function post(path, question, read, signal = undefined) {
  try {
    const answer = await fetch(path, {
      method: "POST",
      signal,
      headers: { "content-type": "application/json" },
      body: JSON.stringify(question),
    });
    if (!answer.ok) throw await refusalOf(answer);
    return await read(answer);
  } catch (error) {
    if (error instanceof TypeError)
      throw new Refusal("the server does not answer", "Is `glassformer explore` still running?");
    throw error;
  }
}

async function refusalOf(answer) {
  try {
    const said = await answer.json();
    return new Refusal(said.error, said.hint);
  } catch {
    if (answer.status === 404)
      return new Refusal(
        "the server was started again and has another address",
        "Open the one that `glassformer explore` printed; with --port it stays the same.",
      );
    return new Refusal(`the server answered ${answer.status}`, null);
  }
}

const answered = new Map(); // answers of this page, the oldest first; the same question has the same answer
const KEPT = 200;
const CHANGING = new Set(["models", "job", "stop", "train", "trainings"]);
const LASTING = new Set(["lens", "attribution"]); // long work that has the same result again

export async function ask(word, question = {}, signal = undefined) {
  note(word, question, false);
  const answer = () => (kept ? fromFile(keptAnswer(word, question)) : inquire(word, question, signal));
  return word === "job" ? answer() : whileBusy(answer); // who follows a job shows its progress
}

async function inquire(word, question, signal = undefined) {
  const key = `${word} ${JSON.stringify(question)}`;
  if (answered.has(key)) return answered.get(key);
  const found = post(`ask/${word}`, question, (answer) => answer.json(), signal);
  if (!CHANGING.has(word)) remember(key, found);
  return found;
}

// A rectangle of a tensor: {facts, cells, places}, row by row. Coarse cells have places: which entry of the
// rectangle each one shows.
export async function tile(question, signal = undefined) {
  note("tile", question, false);
  const key = `tile ${JSON.stringify(question)}`;
  return whileBusy(() => {
    if (kept) return fromFile(keptTile(question));
    if (!answered.has(key))
      remember(
        key,
        post("tile", question, (answer) => answer.arrayBuffer().then(readTile), signal),
      );
    return answered.get(key);
  });
}

async function fromFile(found) {
  const answer = await found;
  if (answer === undefined)
    throw new Refusal("this is not in the file", "open the model with `glassformer explore` to ask for more");
  if (answer.refused) throw new Refusal(...answer.refused);
  return answer;
}

// What was asked so far, the oldest first: a file of the page answers the same questions.
export const asked = new Map();
const NOTED = 3000;

function note(word, question, isWork) {
  asked.set(`${isWork} ${word} ${JSON.stringify(question)}`, { word, question, work: isWork });
  if (asked.size > NOTED) asked.delete(asked.keys().next().value);
}

// Wait until the page has been at rest for some frames: what comes into sight is asked for one frame later.
export async function settled(frames = 4) {
  const next = () =>
    new Promise((resolve) => {
      requestAnimationFrame(resolve);
      setTimeout(resolve, 100);
    }); // a hidden page has no frames
  for (let calm = 0; calm < frames; calm = waiting > 0 ? 0 : calm + 1) await next();
}

// A file that the server makes: {name, blob}.
export async function fetchFile(word, question) {
  if (kept) return fromFile(Promise.resolve(undefined));
  const named = (answer) => /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"))?.[1] ?? word;
  return whileBusy(() =>
    post(`ask/${word}`, question, async (answer) => ({ name: named(answer), blob: await answer.blob() })),
  );
}

function remember(key, found) {
  answered.set(key, found);
  found.catch(() => answered.delete(key));
  if (answered.size > KEPT) answered.delete(answered.keys().next().value);
}

// Long work: show(job) is called while it goes on; returns the result. `signal` stops it on the server, too.
export async function work(word, question, show, signal = undefined) {
  note(word, question, true);
  const key = `work ${word} ${JSON.stringify(question)}`;
  if (answered.has(key)) return answered.get(key);
  const found = await whileBusy(() =>
    kept ? fromFile(keptAnswer(`work ${word}`, question)) : follow(word, question, show, signal),
  );
  if (LASTING.has(word)) remember(key, Promise.resolve(found));
  return found;
}

async function follow(word, question, show, signal) {
  let job = await inquire(word, question);
  answered.delete(`${word} ${JSON.stringify(question)}`);
  const stop = () => inquire("stop", { job: job.job }).catch(() => {});
  signal?.addEventListener("abort", stop);
  while (!job.ended) {
    show?.(job);
    job = await inquire("job", { job: job.job }); // the answer waits for a while for the work to end
  }
  signal?.removeEventListener("abort", stop);
  if (job.error) throw new Refusal(job.error.error, job.error.hint);
  show?.(job);
  return job.result;
}
