// The one module that talks to the server. Tensors come as binary tiles, everything else as JSON.
// In a page that is one file there is no server: the same questions are answered from what is kept there.

import { kept, keptAnswer, keptTile } from "./kept.js";

export class Refusal extends Error {
  constructor(fact, hint) {
    super(hint ? `${fact}. ${hint}` : fact);
    this.fact = fact;
    this.hint = hint;
  }
}

let waiting = 0;
const bar = () => document.querySelector(".busy");

function busy(more) {
  waiting += more;
  if (waiting > 0 && !bar()) {
    const line = document.createElement("div");
    line.className = "busy";
    document.body.append(line);
  } else if (waiting === 0) bar()?.remove();
}

async function post(path, question, signal) {
  busy(1);
  try {
    const answer = await fetch(path, {
      method: "POST", signal, headers: { "content-type": "application/json" }, body: JSON.stringify(question),
    });
    if (!answer.ok) throw await refusalOf(answer);
    return answer;
  } catch (error) {
    if (error instanceof TypeError) throw new Refusal("the server does not answer", "is `glassformer explore` still running?");
    throw error;
  } finally {
    busy(-1);
  }
}

async function refusalOf(answer) {
  try {
    const said = await answer.json();
    return new Refusal(said.error, said.hint);
  } catch {
    return new Refusal(`the server answered ${answer.status}`, null);
  }
}

const answered = new Map(); // answers of this page, the oldest first; the same question has the same answer
const KEPT = 200;
const CHANGING = new Set(["models", "job", "stop", "train", "trainings"]);

export async function ask(word, question = {}, signal = undefined) {
  note(word, question, false);
  return kept ? fromFile(keptAnswer(word, question)) : inquire(word, question, signal);
}

async function inquire(word, question, signal = undefined) {
  const key = `${word} ${JSON.stringify(question)}`;
  if (answered.has(key)) return answered.get(key);
  const found = post(`ask/${word}`, question, signal).then((answer) => answer.json());
  if (!CHANGING.has(word)) {
    remember(key, found);
  }
  return found;
}

// A rectangle of a tensor: {facts, cells: Float64Array}, row by row.
export async function tile(question, signal = undefined) {
  note("tile", question, false);
  if (kept) return fromFile(keptTile(question)).then(readTile);
  const key = `tile ${JSON.stringify(question)}`;
  if (answered.has(key)) return answered.get(key);
  const found = post("tile", question, signal).then((answer) => answer.arrayBuffer()).then(readTile);
  remember(key, found);
  return found;
}

async function fromFile(found) {
  const answer = await found;
  if (answer === undefined) throw new Refusal("this is not in the file", "open the model with `glassformer explore` to ask for more");
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

// Wait until nothing has been asked for a while.
export async function settled(patience = 400) {
  let since = performance.now();
  while (performance.now() - since < patience) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    if (waiting > 0) since = performance.now();
  }
}

// A file that the server makes: {name, blob}.
export async function fetchFile(word, question) {
  if (kept) return fromFile(Promise.resolve(undefined));
  const answer = await post(`ask/${word}`, question);
  return { name: /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"))?.[1] ?? word, blob: await answer.blob() };
}

function remember(key, found) {
  answered.set(key, found);
  found.catch(() => answered.delete(key));
  if (answered.size > KEPT) answered.delete(answered.keys().next().value);
}

function readTile(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const facts = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return { facts, cells: new Float64Array(buffer, 4 + length) };
}

// Long work: show(job) is called while it goes on; returns the result. `signal` stops it on the server, too.
export async function work(word, question, show, signal = undefined) {
  note(word, question, true);
  if (kept) return fromFile(keptAnswer(`work ${word}`, question));
  let job = await inquire(word, question);
  answered.delete(`${word} ${JSON.stringify(question)}`);
  const stop = () => inquire("stop", { job: job.job }).catch(() => {});
  signal?.addEventListener("abort", stop);
  while (!job.ended) {
    show?.(job);
    await new Promise((resolve) => setTimeout(resolve, 120));
    job = await inquire("job", { job: job.job });
  }
  signal?.removeEventListener("abort", stop);
  if (job.error) throw new Refusal(job.error.error, job.error.hint);
  show?.(job);
  return job.result;
}
