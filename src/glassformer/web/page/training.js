// Training: start a small one and watch it, or go through one that was recorded, step by step.

import { button, fill, make, short, tell, whole } from "./dom.js";
import { kept } from "./kept.js";
import { ask, work } from "./server.js";
import { change, look, state } from "./state.js";
import { curve } from "./curve.js";
import { framePanels } from "./frames.js";

const FIELDS = { layers: "layers", width: "width", heads: "heads", steps: "steps", lr: "rate" };
// What is shown: the course, the step looked at (null: the last one), the job that goes on, the parts of the
// page it is drawn in.
const shownTraining = { course: null, step: null, job: null, parts: null, page: null, stop: null };
const NO_MODEL =
  "No model is open yet. Train one: it takes a few seconds, stays in memory, and opens in all views.";

export function drawTraining(place, page) {
  shownTraining.page = page;
  const form = make("form.box.stack");
  const courses = make("section.box.stack", { "aria-label": "Trainings to go through" });
  shownTraining.parts = trainingParts();
  if (kept) {
    place.append(shownTraining.parts.root); // a file shows the frames that it holds
    if (shownTraining.course) trainingShow();
    else openCourse(look("training").course);
    return;
  }
  place.append(
    page.run ? "" : make("p", NO_MODEL),
    make("div.beside", form, courses),
    shownTraining.parts.root,
  );
  trainingForm(form);
  trainingCourses(courses);
  if (shownTraining.course) trainingShow();
  else if (look("training").course) openCourse(look("training").course);
}

// --- begin -------------------------------------------------------------------------------------------------

async function trainingForm(form) {
  const title = make("h2", "Train a small model");
  fill(form, title, make("p.quiet", "…"));
  try {
    const found = await ask("trainings");
    const summary = make("p.quiet");
    const fields = make("div.row");
    const tasks = make(
      "select",
      found.tasks.map((task) =>
        make("option", { value: task.name, selected: task.name === look("training").task }, task.name),
      ),
    );
    const seed = make("input", { type: "number", min: "0", value: "0" });
    const begin = make("button", { type: "submit", class: "main" }, "Start");
    fill(
      form,
      title,
      make("div.row", make("label", "task", tasks), make("label", "seed", seed)),
      summary,
      fields,
      make("div.row", begin),
    );
    const choose = async () => {
      const said = found.tasks.find((task) => task.name === tasks.value).summary;
      fill(summary, said);
      const usual = await ask("task", { task: tasks.value });
      if (usual.name !== tasks.value) return;
      fill(summary, make("b", `${usual.architecture}: `), said);
      fill(fields, trainingFields(usual.settings, found));
    };
    tasks.addEventListener("change", () => {
      look("training", { task: tasks.value });
      choose().catch((error) => tell(error.message));
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      trainingBegin(form, tasks.value, Number(seed.value), begin);
    });
    await choose();
  } catch (error) {
    fill(form, title, make("p.bad", error.message));
  }
}

function trainingFields(usual, found) {
  const numbers = Object.entries(FIELDS).map(([name, title]) =>
    make(
      "label",
      title,
      make("input", {
        name,
        type: "number",
        required: true,
        value: String(usual[name]),
        ...(name === "lr" ? { min: "0.000001", step: "any" } : { min: "1", max: String(found.most[name]) }),
      }),
    ),
  );
  const optimizer = make(
    "label",
    "optimizer",
    make(
      "select",
      { name: "optimizer" },
      found.optimizers.map((name) =>
        make("option", { value: name, selected: name === usual.optimizer }, name),
      ),
    ),
  );
  return [...numbers, optimizer];
}

async function trainingBegin(form, task, seed, begin) {
  const settings = Object.fromEntries(
    [...form.querySelectorAll("[name]")].map((field) => [
      field.name,
      field.name === "optimizer" ? field.value : Number(field.value),
    ]),
  );
  begin.disabled = true;
  try {
    const job = await ask("train", { task, settings, seed });
    Object.assign(shownTraining, { course: null, step: null });
    await followTraining(job.job);
  } catch (error) {
    tell(error.message);
  } finally {
    begin.disabled = false;
  }
}

// Show a training while it goes on; it goes on, too, while one looks at another view.
async function followTraining(key) {
  if (shownTraining.job === key) return;
  Object.assign(shownTraining, {
    job: key,
    stop: () => ask("stop", { job: key }).catch((error) => tell(error.message)),
  });
  try {
    let job = await ask("job", { job: key });
    while (!job.ended && shownTraining.job === key) {
      trainingShow(job.partial, job);
      job = await ask("job", { job: key }); // the answer waits for a while for the training to end
    }
    if (shownTraining.job !== key) return;
    Object.assign(shownTraining, { job: null, stop: null });
    trainingShow(
      job.result,
      job.error ? { ...job, note: `${job.error.error}. ${job.error.hint ?? ""}` } : null,
    );
    await shownTraining.page.reload?.();
    if (shownTraining.parts.courses) trainingCourses(shownTraining.parts.courses);
  } catch (error) {
    Object.assign(shownTraining, { job: null, stop: null });
    tell(error.message);
    trainingShow();
  }
}

// --- trainings to go through -------------------------------------------------------------------------------

async function trainingCourses(place) {
  shownTraining.parts.courses = place;
  try {
    const { courses } = await ask("trainings");
    const list = courses.map((one) =>
      make(
        "li",
        button(one.title, () => openCourse(one.key), { class: "link" }),
        one.live ? " (goes on)" : "",
      ),
    );
    fill(
      place,
      make("h2", "Or go through one"),
      list.length
        ? make("ul.plain", list)
        : make(
            "p.quiet",
            "Nothing is recorded here yet: ",
            make("code", "glassformer train induction --record"),
            " writes a run whose every step can be returned to.",
          ),
    );
  } catch (error) {
    fill(place, make("p.bad", error.message));
  }
}

// Open a course; steps: those to compute (undefined: some of all).
async function openCourse(key, steps = undefined) {
  if (shownTraining.course?.key !== key)
    Object.assign(shownTraining, { course: null, step: null, job: null });
  look("training", { course: key });
  const control = new AbortController();
  shownTraining.stop = () => control.abort();
  try {
    const course = await work(
      "course",
      { model: key, ...(steps ? { steps } : {}) },
      (job) => trainingShow(job.partial, job),
      control.signal,
    );
    shownTraining.stop = null;
    if (steps?.length) shownTraining.step = steps[0];
    trainingShow(course);
    if (
      course.job &&
      !course.recorded &&
      !(await ask("job", { job: course.job }).catch(() => ({ ended: true }))).ended
    )
      followTraining(course.job);
  } catch (error) {
    shownTraining.stop = null;
    if (error.fact === "stopped") {
      trainingShow(await work("course", { model: key, steps: [] }));
      return;
    }
    look("training", { course: null });
    tell(error.message);
    trainingShow();
  }
}

// --- the course --------------------------------------------------------------------------------------------

// Elements that stay while a training goes on: what one holds in the hand must not be replaced.
function trainingParts() {
  const parts = {
    title: make("h2"),
    note: make("span.quiet"),
    progress: make("progress", { "aria-label": "How far the training is" }),
    stop: button("Stop", () => shownTraining.stop?.()),
    chart: make("div"),
    judged: make("p.quiet"),
    actions: make("div.row"),
    slider: make("input", { type: "range", min: "0", "aria-label": "Step" }),
    at: make("output.mono"),
  };
  parts.slider.addEventListener("input", () => trainingGo(Number(parts.slider.value)));
  const log = button(
    "log scale",
    () => {
      look("training", { log: !look("training").log });
      log.setAttribute("aria-pressed", String(!!look("training").log));
      trainingShow();
    },
    { "aria-pressed": String(!!look("training").log) },
  );
  parts.panels = framePanels((step) => trainingGo(trainingNearest(step)));
  parts.going = make("div.row", parts.progress, parts.note, parts.stop);
  parts.panels.prepend(
    make(
      "section.box.stack.lead",
      make("div.row", make("h3", "Loss"), log),
      parts.chart,
      parts.judged,
      make("div.scrub", parts.slider, parts.at),
      parts.actions,
    ),
  );
  parts.body = parts.panels;
  parts.root = make("div.stack", { hidden: true }, parts.title, parts.going, parts.body);
  return parts;
}

function trainingShow(course = undefined, job = undefined) {
  const own = shownTraining;
  if (course) own.course = course;
  const { parts } = own;
  parts.root.hidden = !own.course && !job;
  parts.going.hidden = !job;
  if (job) {
    parts.progress.max = Math.max(job.total, 1);
    if (job.total) parts.progress.value = job.done;
    else parts.progress.removeAttribute("value");
    fill(parts.note, job.note);
    parts.stop.hidden = job.ended;
  }
  parts.body.hidden = !own.course?.frames.length;
  fill(parts.title, own.course ? own.course.title : "Training");
  if (parts.body.hidden) return;
  if (own.course.key !== look("training").course) look("training", { course: own.course.key });
  const { frames } = own.course;
  if (!frames.some((frame) => frame.step === own.step)) own.step = null;
  parts.slider.max = String(frames.length - 1);
  trainingDraw(own.step ?? frames.at(-1).step, !!job && !job.ended);
}

function trainingDraw(step, going) {
  const { course, parts } = shownTraining;
  const number = course.frames.findIndex((frame) => frame.step === step);
  const frame = course.frames[number];
  if (parts.slider.value !== String(number)) parts.slider.value = String(number);
  parts.slider.setAttribute("aria-valuetext", `step ${step}`);
  fill(
    parts.at,
    `step ${whole(step)}`,
    frame.loss === null || frame.loss === undefined ? "" : `, loss ${short(frame.loss, 4)}`,
  );
  fill(
    parts.chart,
    curve({
      label: "loss",
      width: innerWidth < 1200 ? 400 : 820,
      log: look("training").log,
      cursor: step,
      last: course.planned,
      onpick: (x) => trainingGo(trainingNearest(x)),
      series: [
        {
          name: course.every > 1 ? `training loss (every ${course.every} steps)` : "training loss",
          points: course.loss,
          mark: 0,
        },
        { name: "validation loss", points: course.judged.map(([x, y]) => [x, y]), dots: true, mark: 1 },
      ],
    }),
  );
  const last = course.judged.at(-1);
  const right = last?.[2] ?? null; // the share of answers, where a task has answers
  fill(
    parts.judged,
    last
      ? `validation loss ${short(last[1], 4)}` +
          `${right === null ? "" : `, ${(right * 100).toFixed(1)} % right`} at step ${whole(last[0])}`
      : "not judged yet",
  );
  trainingActions(course, step, going);
  parts.panels.redraw(course, step);
}

function trainingGo(number) {
  const { course } = shownTraining;
  const frame = course.frames[number];
  if (!frame) return;
  shownTraining.step = number === course.frames.length - 1 ? null : frame.step;
  trainingDraw(frame.step, !!shownTraining.job);
}

function trainingNearest(step) {
  const far = shownTraining.course.frames.map((frame) => Math.abs(frame.step - step));
  return far.indexOf(Math.min(...far));
}

function trainingActions(course, step, going) {
  const key = JSON.stringify([course.key, step, going, course.kept]);
  const { actions } = shownTraining.parts;
  if (kept || actions.dataset.key === key) return;
  actions.dataset.key = key;
  const exact = make("input", {
    type: "number",
    min: "0",
    max: String(course.planned),
    value: String(step),
    "aria-label": "Any step",
  });
  fill(
    actions,
    course.recorded || going
      ? null
      : button("Open the trained model", () => openTrained(course.key), { class: "main" }),
    button(`Look inside at step ${whole(step)}`, () => openTrained(`${course.key}@${step}`)),
    course.recorded
      ? [exact, button("Go to this step", () => openCourse(course.key, [Number(exact.value)]))]
      : null,
    course.recorded || going
      ? null
      : course.kept
        ? make("span.quiet", "kept in ", make("code", course.kept))
        : button("Keep it as a run", () => keepTrained(course)),
  );
}

function openTrained(model) {
  const base = (key) => key.replace(/@\d+$/, "");
  const text = base(state().model) === base(model) ? state().text : "";
  change({ model, text, answer: null, changes: [], steps: [], of: { kind: "loss" }, view: "scene" });
}

async function keepTrained(course) {
  try {
    const { folder } = await ask("keep", { model: course.key });
    course.kept = folder;
    tell(`written to ${folder}`);
    trainingShow();
    await shownTraining.page.reload?.();
    trainingCourses(shownTraining.parts.courses);
  } catch (error) {
    tell(error.message);
  }
}
