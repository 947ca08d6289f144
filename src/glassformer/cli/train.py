"""`glassformer train`: start a run, show its progress, save it when interrupted, resume it."""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from ..core.errors import ConfigError, TrainingError, typed
from ..core.execution import MeshShape
from ..core.format import compact, escaped, shorten
from ..core.registry import SUMMARIES
from ..core.tree import count
from ..data import TASKS, import_file
from ..engines.cluster.collective import any_of
from ..engines.cluster.collective import process as rank
from ..engines.cluster.collective import processes as total
from ..engines.cluster.launch import Workers
from ..generation.answer import TEMPERATURE, ask
from ..generation.texts import stream
from ..models import PRESETS
from ..progress.display import display, event_writer, require_tensorboard, waiting
from ..progress.stopwatch import Stopwatch
from ..runs.judging import samples
from ..runs.run import open_run
from ..runs.session import TrainingSession
from ..runs.start import new_session, resume_session
from ..training.evaluate import compared
from ..training.interruption import Stopped, Terminated, heeding_termination
from . import devices
from .commands import command
from .options import (
    RUN,
    Offers,
    bundle,
    engine_option,
    gathered,
    json_option,
    out_option,
    seed_option,
    set_option,
    source_option,
)
from .output import log, plural, print_baselines, print_json
from .settings import parse_settings

DATA_OPTIONS = {
    "text": ("COLUMN", "Of a table: the column of texts (default: found by its name)."),
    "source": ("COLUMN", "Of pairs: the column of what is read (default: found by its name)."),
    "target": ("COLUMN", "Of pairs: the column of what is written (default: found by its name)."),
    "label": ("COLUMN", "Of a table: the column of labels (default: found by its name)."),
    "tokenizer": ("NAME", "Tokenizer: auto, chars, bytes, bpe or wordpiece (default: auto, by the size of the data)."),
}
"""Settings of tasks that read files, as options: what each takes, and its help."""
DATA_SWITCHES = {
    "header": ("--header/--no-header", "Of a CSV or TSV file: whether the first row names the columns."),
    "keep_missing": ("--keep-missing", "Of a CSV or TSV file: keep cells such as NaN, NULL and N/A as text."),
}
"""The same for settings that are true or false: the option, and its help."""


NEW_UNDER_JAX = ("precision", "rules", "scan", "remat")
"""Options of the engine jax that belong to a new run."""
SAMPLES, SAMPLE_LENGTH = 3, 80
"""How many prompts a trained model answers at the end, and with how many tokens at most."""


@dataclass(frozen=True)
class NewRun:
    """What a new run learns, from what, and where it is kept: what --resume takes from the run instead."""

    task: str | None
    data: str | None
    preset: str | None
    source: str | None
    lora: bool
    seed: int | None
    out: Path | None
    record: bool


TASK, FILE = Offers("file", names=lambda: SUMMARIES), Offers("file")


@command(
    "Train",
    "glassformer train majority",
    "glassformer train text --data notes.txt --steps 200 --set width=64",
    "glassformer train text --data notes.txt --from smollm2 --lora",
    "glassformer train --resume runs/majority",
)
@click.argument(
    "task", type=TASK, required=False, help="What to learn (see `glassformer tasks`), or your own Python file."
)
@click.option("--task", "own", type=FILE, metavar="FILE", help="A Python file with your own task, or parts of a model.")
@click.option(
    "--data",
    type=FILE,
    metavar="PATH",
    help="What to learn from: a file, a folder, a table (CSV, TSV, JSONL); - reads stdin.",
)
@bundle([click.option(f"--{name}", f"data_{name}", metavar=takes, help=words)
         for name, (takes, words) in DATA_OPTIONS.items()])  # fmt: skip
@bundle([click.option(flags, f"data_{name}", is_flag=True, default=None, help=words)
         for name, (flags, words) in DATA_SWITCHES.items()])  # fmt: skip
@click.option("--preset", type=Offers(names=lambda: list(PRESETS)), help="A model to train instead of the task's own.")
@source_option
@click.option("--lora", is_flag=True, help="With --from: freeze the model and train low-rank adapters.")
@set_option
@click.option(
    "--steps", type=click.IntRange(1), help="Optimizer steps in all; with --resume, to continue past the planned end."
)
@seed_option
@out_option("a folder for the run (default: runs/TASK)")
@click.option("--resume", type=RUN, metavar="RUN", help="Continue this run.")
@click.option(
    "--anyway", is_flag=True, help="With --resume: continue although data, engine, versions or recipe have changed."
)
@click.option("--record", is_flag=True, help="Record what `glassformer replay` needs to return to any step.")
@click.option("--tensorboard/--no-tensorboard", default=False, help="Write TensorBoard event files as well.")
@engine_option
@devices.jax_options
@json_option
@gathered(new=NewRun)
def train(
    new: NewRun,
    own: str | None,
    steps: int | None,
    resume: Path | None,
    tensorboard: bool,
    engine: str | None,
    json: bool,
    **others: Any,
) -> None:
    """Train a model on a task. Ctrl-C saves it, and --resume continues bit for bit."""
    require_tensorboard(wanted=tensorboard)
    jax, anyway = {name: others[name] for name in devices.JAX}, others["anyway"]
    named = {name: others[f"data_{name}"] for name in (*DATA_OPTIONS, *DATA_SWITCHES)}
    changes = _changes(others["settings"], {"steps": None if resume is not None else steps, **named})
    new = replace(new, task=chosen_task(new.task, own, needed=resume is None))
    _check_resume(resume, [*asdict(new).values(), changes, *(jax[name] for name in NEW_UNDER_JAX)], anyway=anyway)
    devices.use_engine_of(None if resume is None else open_run(resume), engine, jax["mesh"])
    with devices.joined(jax, resume or new.out or Path("runs") / str(new.task)) as workers:
        if resume is not None:
            session = _resumed(resume, steps, jax["mesh"], workers, anyway=anyway)
        else:
            session = open_session(new, changes, devices.execution_of(jax), quiet=json)
        session.workers, first = workers or session.workers, rank() == 0
        summary = run_session(session, tensorboard=tensorboard and first)
        if json and first:
            print_json(summary)
        elif first:
            print_summary(session, summary)


def _changes(settings: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings given by --set and by options of their own."""
    changes = parse_settings(settings)
    given = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() & changes.keys():
        raise ConfigError(f"{name} is given twice, by --{name} and by --set", hint="give it once")
    return changes | given


def chosen_task(task: str | None, own: str | None, *, needed: bool) -> str | None:
    """Return the name of the task, which may come from the user's own file; None with --resume."""
    if own is None and task is not None and task.endswith(".py"):
        own, task = task, None
    if own is None:
        if task is None and needed:
            raise ConfigError("there is no task to train", hint="name one (see `glassformer tasks`), or --resume RUN")
        if task is not None and task not in TASKS and Path(task).exists():
            hint = f"train on it: glassformer train text --data {typed(task)}"
            raise ConfigError(f"{task!r} is a file or folder, not a task", hint=hint)
        return task
    tasks = import_file(own).tasks
    if task is None and len(tasks) != 1:
        hint = f"name the one to train: glassformer train TASK --task {own}"
        raise ConfigError(f"{own} holds {'the tasks ' + ', '.join(tasks) if tasks else 'no task'}", hint=hint)
    return tasks[0] if task is None else task


def _check_resume(resume: Path | None, others: list[Any], *, anyway: bool) -> None:
    if anyway and resume is None:
        raise ConfigError("--anyway is for a run that is resumed", hint="name the run: --resume RUN --anyway")
    if resume is not None and any(not (value is None or value is False or value == {}) for value in others):
        hint = "leave out the task and all other settings except --steps, which continues past the planned end"
        raise ConfigError("--resume continues a run with its own settings", hint=hint)


def _resumed(
    folder: Path, steps: int | None, mesh: str | None, workers: Workers | None, *, anyway: bool
) -> TrainingSession:
    shape = None if mesh is None else MeshShape.parse(mesh)
    with waiting(f"preparing {folder}"):
        session = resume_session(folder, steps=steps, mesh=shape, workers=workers, anyway=anyway)
    for note in session.notes if rank() == 0 else ():
        log(note)
    if steps is not None and rank() == 0:
        log(f"continuing from step {session.state.step:,} to step {steps:,}; {session.run.recipe.continuation()}")
    elif session.stopped_early and rank() == 0:
        log(f"{folder} {session.stopped_early}; --steps N goes on")
    elif session.state.step >= session.run.recipe.steps and rank() == 0:
        log(f"{folder} has taken all of its {plural(session.state.step, 'step')}; --steps N continues to step N")
    return session


def open_session(new: NewRun, changes: dict[str, Any], execution: Any, *, quiet: bool = False) -> TrainingSession:
    """Start a run from scratch, or from a trained model, and log its data; without --out, in a new folder."""
    if new.lora and new.source is None:
        raise ConfigError("--lora needs a model to start from", hint="name one with --from")
    if new.preset is not None and new.source is not None:
        raise ConfigError("--preset builds a new model, --from starts from an old one", hint="leave out one of them")
    settings: dict[str, Any] = {"preset": new.preset}
    if new.source is not None:
        settings = {"source": new.source, "adapters": new.lora}
    settings |= {"data": new.data, "settings": changes, "seed": new.seed or 0, "recorded": new.record}
    task = str(new.task)
    with waiting(f"preparing {task}" if new.source is None else f"preparing {task} and {new.source}"):
        folder = new.out or Path("runs") / task
        session = new_session(task, folder, numbered=new.out is None, execution=execution, **settings)
    for note in session.opening if rank() == 0 and not quiet else ():
        log(note)
    return session


def run_session(session: TrainingSession, *, tensorboard: bool = False) -> dict[str, Any]:
    """Train to the end and return the results; Ctrl-C and SIGTERM save the run and log how to resume it."""
    last = session.state.step if session.stopped_early else session.run.recipe.steps
    clock = Stopwatch(last, session.state.step)
    events = event_writer(session.run.folder, wanted=tensorboard)
    # With several processes, JAX handles SIGTERM: all stop after the same step.
    with heeding_termination() if total() == 1 else contextlib.nullcontext():
        try:
            with display(session, clock) as show, events as write_event:
                for record in session.steps():
                    clock.add(record)
                    write_event(record)
                    show(record)
            seconds = clock.seconds  # of the training alone, not of what follows
            with waiting("measuring the best parameters on the held-out data"):
                found = results(session, clock, seconds)
            if rank() == 0:
                with waiting("drawing the loss", compiles=False):
                    draw_loss(session)
            return found
        except KeyboardInterrupt as error:
            if total() > 1 and not isinstance(error, Stopped):
                raise  # the others are not here to save together
            session.save()
            raise click.exceptions.Exit(_interrupted(session, error)) from None
        except TrainingError:
            session.save()
            raise


def _interrupted(session: TrainingSession, error: KeyboardInterrupt) -> int:
    """Log that a run was interrupted and how to resume it; return the exit code of the signal."""
    stopped = isinstance(error, Stopped) and not any_of(session.workers.interrupted)
    terminated = isinstance(error, Terminated) or stopped
    if rank() == 0:
        how = "ended by SIGTERM" if terminated else "interrupted"
        log(f"{how} after step {session.state.step:,}; saved")
        log(f"hint: resume it with  glassformer train --resume {typed(session.run.folder)}")
    return 143 if terminated else 130


def results(session: TrainingSession, clock: Stopwatch, seconds: float) -> dict[str, Any]:
    """Return the figures of a finished run; loss and accuracy are those of the best parameters."""
    params = session.load_params()
    final = compared(session.test(params), session.task.train, session.task.held_out)
    metrics = session.metrics()
    judged = [row for row in metrics if "val_loss" in row]
    keeps_last = session.run.recipe.keep == "last"
    line = {
        "task": session.task.name,
        "steps": session.state.step,
        "parameters": count(params),
        "train_loss": metrics[-1]["loss"] if metrics else None,
        "val_loss": final.loss,
        "accuracy": final.accuracy,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(clock.tokens_per_second, 1),
        "run": str(session.run.folder),
        "steps_now": session.state.step - clock.first,
        "compiling_seconds": round(clock.compiling, 3),
        "best_step": next((row["step"] for row in reversed(judged) if row["best"] or keeps_last), None),
        "last_val_loss": judged[-1]["val_loss"] if judged else None,
        "stopped_early": session.stopped_early or None,
    }
    if final.commonest is not None:
        line |= {"interval": final.interval, "commonest": final.commonest, "bag_of_words": final.bag}
        line["samples"] = [example._asdict() for example in samples(session.judged)]
    if session.run.base is not None:
        line |= {"from": session.run.base.source, "trained_parameters": count(session.state.params)}
    return line if not final.groups else {**line, "worst_group": min(final.groups, key=lambda g: final.groups[g])}


def draw_loss(session: TrainingSession) -> None:
    """Write the loss curve beside the checkpoints, for light and for dark pages."""
    from ..plots import loss_curve, save_themes

    metrics = session.metrics()
    if metrics:
        save_themes(partial(loss_curve, metrics), session.run.folder, "loss")


def print_summary(session: TrainingSession, summary: dict[str, Any]) -> None:
    """Print the results, samples as they are written, and the run folder."""
    print(summary_line(summary), flush=True)
    if summary["stopped_early"]:
        print(summary["stopped_early"] + "; --resume with --steps goes on")
    if "bag_of_words" in summary:
        print_baselines(*(summary[name] for name in ("accuracy", "interval", "commonest", "bag_of_words")))
    if session.judged:
        for example in samples(session.judged):
            verdict = "right" if example.is_right else f"wrong: its label is {example.label!r}"
            said = f"{example.answer!r} ({example.probability:.0%}), {verdict}"
            print(f"  {shorten(example.text, SAMPLE_LENGTH)!r} → {said}")
    elif total() == 1:
        model, writes = session.best, session.task.metric == "none"
        settings: dict[str, Any] = {"max_new_tokens": SAMPLE_LENGTH, "temperature": TEMPERATURE}
        for prompt in session.task.prompts[:SAMPLES]:
            pieces = stream(model, prompt, **settings) if writes else (ask(model, one) for one in [prompt])
            with waiting("writing a sample"):
                first = next(pieces, "")
            print(f"  {prompt!r} → '", end="", flush=True)
            for piece in chain([first], pieces):
                print(escaped(piece), end="", flush=True)
            print("'")
    print(f"run folder: {summary['run']}")


def summary_line(summary: dict[str, Any]) -> str:
    """Return time and loss in one line, and the step of the best checkpoint if it is not the last one."""
    compiling = summary["compiling_seconds"]
    took = f"{summary['seconds']:.1f} s" + (f" ({compiling:.1f} s of it compiling)" if compiling >= 0.1 else "")
    accuracy = "" if summary["accuracy"] is None else f", {summary['accuracy']:.2%} right"
    best, last = summary["best_step"], summary["last_val_loss"]
    why = ""
    if best is not None and best != summary["steps"] and last is not None:
        why = f"; this is the best checkpoint, of step {best:,}: the last validation loss is {compact(last)}"
    loss = f"held-out loss {compact(summary['val_loss'])}{accuracy}"
    steps, now = summary["steps"], summary["steps_now"]
    last = f", the last {now:,} in {took}" if now else ""
    taken = f"{plural(steps, 'step')} in {took}" if now == steps else f"{plural(steps, 'step')}{last}"
    return f"{summary['task']}: {taken}, {loss}{why}"
