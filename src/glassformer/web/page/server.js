// The one module that talks to the server. Tensors come as binary tiles, everything else as JSON.

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
  const key = `tile ${JSON.stringify(question)}`;
  if (answered.has(key)) return answered.get(key);
  const found = post("tile", question, signal).then((answer) => answer.arrayBuffer()).then(readTile);
  remember(key, found);
  return found;
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
  let job = await ask(word, question);
  answered.delete(`${word} ${JSON.stringify(question)}`);
  const stop = () => ask("stop", { job: job.job }).catch(() => {});
  signal?.addEventListener("abort", stop);
  while (!job.ended) {
    show?.(job);
    await new Promise((resolve) => setTimeout(resolve, 120));
    job = await ask("job", { job: job.job });
  }
  signal?.removeEventListener("abort", stop);
  if (job.error) throw new Refusal(job.error.error, job.error.hint);
  show?.(job);
  return job.result;
}
