"""`glassformer replay`: go through the training of a recorded run, step by step."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from ..interpret import trace
from ..interpret.reading import labels_of
from ..models import Batch
from ..plots import save_themes
from ..plots.replay import training_course
from ..plots.replay_page import write_replay
from ..runs.course import (
    Course,
    attention_on,
    detected_heads,
    fixed_example,
    gradient_norms_on,
    measured,
    samples,
    weight_norms,
)
from ..runs.replay import Replay
from ..runs.replay import replay as open_replay
from ..runs.run import open_run
from . import devices
from .inspect import progress
from .options import PATH, engine_option, json_option
from .output import print_json

SHORTEST = 4
"""Tokens that a model must read for heads to be told apart: two that come twice."""
PAGE, PICTURE = "replay.html", "course"


@click.command()
@click.argument("run", type=PATH, help="A folder that `glassformer train --record` wrote.")
@click.argument("text", metavar="[INPUT]", required=False, help="What the model reads; a held-out example if left out.")
@click.option("--frames", type=click.IntRange(2), default=40, help="How many steps to show, denser at the beginning.")
@click.option("--step", type=int, multiple=True, help="Show these steps instead; may be repeated.")
@click.option("--out", type=PATH, metavar="DIR", help="Folder for the page (default: replay in the run folder).")
@engine_option
@json_option
def replay(
    run: Path, text: str | None, frames: int, step: tuple[int, ...], out: Path | None, engine: str | None, json: bool
) -> None:
    """Go through the training of a run, step by step: loss, attention, norms and answers, on one page."""
    devices.use_engine_of(open_run(run), engine, None)
    found = open_replay(run)
    steps = found.spaced(frames) if not step else sorted({found.checked(one) for one in step})
    batch = fixed_example(found.task, text)
    measures = {
        **_heads(found),
        "attention": attention_on(batch),
        "gradient": _largest(gradient_norms_on(found.trainer.batch(found.task.train, 0))),
        "weight": _largest(weight_norms),
        "answers": samples(),
    }
    with progress(quiet=json, doing="computing", things="frames") as show:
        course = measured(found, steps, measures, progress=lambda done, total: show(done, total, f"of {total} frames"))
    if json:
        print_json({"run": str(run), "kept": list(found.kept), **course.to_dict()})
        return
    folder = run / "replay" if out is None else out
    page = draw(found, course, batch, folder)
    print(f"{len(course.steps)} frames from step {course.steps[0]:,} to {course.steps[-1]:,}; open {page}")


def draw(found: Replay, course: Course, batch: Batch, folder: Path) -> Path:
    """Write the page and the picture."""
    frame = found.at(found.steps.start)
    seen = trace(frame.model, frame.params, batch, labels=labels_of(frame.trained))
    kind = seen.kinds[0]
    name = found.run.folder.resolve().name
    save_themes(partial(training_course, course.steps, course.rows, title=f"Training of {name}"), folder, PICTURE)
    return write_replay(
        folder / PAGE,
        course.steps.tolist(),
        course.rows,
        title=f"Training of {name}, step by step",
        intro=f"{found.task.name}, {found.steps[-1]:,} steps: {len(found.kept):,} states were kept, and all others "
        "computed again, bit for bit.",
        metrics=found.run.metrics(),
        labels=(seen.query_labels(kind), seen.key_labels(kind)),
    )


def _heads(found: Replay) -> dict[str, Any]:
    """Return the measure of what heads look for, where a model reads enough tokens to tell."""
    return {"heads": detected_heads()} if found.run.config.context >= SHORTEST else {}


def _largest(measure: Any, count: int = 8) -> Any:
    """Measure a dict of numbers, but keep only those that are the largest in the first frame."""
    chosen: list[str] = []

    def measured_few(frame: Any) -> dict[str, float]:
        values = measure(frame)
        if not chosen:
            chosen.extend(sorted(values, key=values.__getitem__, reverse=True)[:count])
        return {name: values[name] for name in chosen}

    return measured_few
