"""`glassformer eval`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..api.loading import read_model
from ..api.tasks import file_parts
from ..core import dispatch
from ..core.errors import ConfigError
from ..core.execution import PLAIN, Execution, MeshShape
from ..core.format import shorten
from ..core.tree import count
from ..models import build
from ..progress.display import waiting
from ..runs.judging import Judged, doubted, judge, judge_in_turn
from ..runs.run import model_of_run, open_run
from ..text import printable
from ..training import Evaluation, Recipe
from ..training.checkpoint import BEST
from ..training.evaluate import class_figures, combined, compared, macro_average
from ..weights.loaded_model import LoadedModel
from ..weights.saved import is_saved
from .commands import command
from .options import CHECKPOINT, PATH, RUN, engine_option, json_option, trust_option
from .output import console, log, print_baselines, print_json, print_table

SHARES = ("precision", "recall", "f1")
WIDTH, MOST_COLUMNS = 16, 8
"""Characters of a class, and how many classes a confusion table has at most on a terminal."""
MOST = "most frequent mistakes (--json has all)"

TEXT_WIDTH, MOST_DOUBTED = 60, 10
"""Characters of a text whose label is doubted, and how many such texts are shown."""
DOUBTED = {
    "doubted": "held-out texts whose label the model doubts most",
    "doubted_in_turn": "texts to train on whose label a bag of words doubts most, each left out of its counts in turn",
}

Confusion = Sequence[Sequence[int]]


@command(
    "Train",
    "glassformer eval runs/majority",
    "glassformer eval runs/text --checkpoint latest --json",
    name="eval",
)
@click.argument("run", type=RUN, help="A folder that `glassformer train` or `gf.save` wrote.")
@click.option("--checkpoint", type=CHECKPOINT, default=BEST, help="Which parameters of a run: best or latest.")
@click.option("--data", type=PATH, help="Measure on all of another file of the same kind instead.")
@click.option("--all", "every", is_flag=True, help="Of a long text, measure all windows (default: a random sample).")
@engine_option
@json_option
@trust_option
def evaluate(run: Path, checkpoint: str, data: Path | None, every: bool, engine: str | None, json: bool) -> None:
    """Measure a trained model on its held-out data, or on another file.

    Of a text with more held-out tokens than the setting eval_tokens, a random sample is measured, which is always the
    same one; behind ± stands the standard error of its loss.

    A classifier is shown class by class: precision is the share of right answers among those that name the class,
    recall the share of its examples that are found, and F1 their harmonic mean. With them stand the 95 % interval of
    the accuracy (Wilson), what always saying the commonest class gets right, and what a bag of words does: naive Bayes
    on the counts of the tokens.

    Labels may be wrong. Of the texts that were held out, those are listed whose label the model finds least likely. It
    has learned the others by heart, so of them a bag of words judges, which leaves each one out of its counts in turn.
    """
    with waiting(f"measuring {run}"):
        trained, recipe, execution = _trained(run, checkpoint, data)
        recipe = recipe or Recipe()
        recipe = replace(recipe, eval_tokens=None if every else recipe.eval_tokens)
        result = measure(trained, recipe, execution, data=data)
        doubts = _doubts(trained) if data is None and result.confusion else {}
    name = trained.origin["name"] if trained.origin else getattr(trained.task, "name", "")
    labels = trained.labels or tuple(map(str, range(len(result.confusion))))
    if json:
        fields: dict[str, Any] = {"task": name, "run": str(run), "checkpoint": checkpoint}
        fields |= {"parameters": count(trained.params), **({} if data is None else {"data": str(data)})}
        figures = {"val_loss": result.loss, "accuracy": result.accuracy, "examples": result.examples}
        fields |= {**figures, "targets": result.targets, "groups": result.groups}
        fields |= {} if result.error is None else {"standard_error": result.error}
        if result.commonest is not None:
            fields |= {"interval": result.interval, "commonest": result.commonest, "bag_of_words": result.bag}
        fields |= {name: [each._asdict() for each in rows] for name, rows in doubts.items()}
        print_json({**fields, **(_class_fields(labels, result.confusion) if result.confusion else {})})
        return
    right = "" if result.accuracy is None else f", {result.accuracy:.2%} right"
    spread = "" if result.error is None else f" ± {result.error:.4f}"
    print(f"{name}: loss {result.loss:.4f}{spread}{right} ({result.examples:,} examples, {result.targets:,} targets)")
    if result.error is not None:
        log("this is a random sample of the text; --all measures all of it")
    if result.groups and set(result.groups) - set(labels):  # classes follow
        groups = sorted(result.groups.items(), key=lambda item: item[1])
        print_table(("group", ">right"), [(name, f"{share:.1%}") for name, share in groups])
    if result.commonest is not None and result.bag is not None:
        print_baselines(result.accuracy or 0.0, result.interval or (), result.commonest, result.bag)
    if result.confusion:
        _print_classes(labels, result.confusion)
    for name, rows in doubts.items():
        cells = [(_on_one_line(each.text), each.label, each.answer, f"{each.of_label:.1%}") for each in rows]
        if rows:
            print_table(("text", "label", "likelier", ">p of the label"), cells, title=DOUBTED[name])


def _on_one_line(text: str) -> str:
    return shorten(printable(" ".join(text.split())), TEXT_WIDTH)


def _doubts(trained: LoadedModel) -> dict[str, list[Judged]]:
    """Return the texts whose labels are doubted: by the model, and in turn by a bag of words."""
    task = trained.task
    if task is None or task.texts is None:
        return {}
    judges = judge(trained, task), judge_in_turn(task, trained.labels)
    return {name: doubted(each, MOST_DOUBTED) for name, each in zip(DOUBTED, judges, strict=True)}


def _class_fields(labels: Sequence[str], confusion: Confusion) -> dict[str, Any]:
    """Return what --json says about classes."""
    figures = class_figures(confusion)
    classes = [{"label": label, **one._asdict()} for label, one in zip(labels, figures, strict=True)]
    macro = dict(zip(SHARES, macro_average(figures), strict=True))
    return {"classes": classes, "macro": macro, "confusion": {"labels": labels, "counts": confusion}}


def _print_classes(labels: Sequence[str], confusion: Confusion) -> None:
    """Print the figures of each class, and which classes are taken for which."""
    figures = class_figures(confusion)
    names = [shorten(printable(label), WIDTH) for label in labels]
    rows = [
        (name, *(f"{share:.1%}" for share in one[:3]), f"{one.examples:,}", f"{one.predicted:,}")
        for name, one in zip(names, figures, strict=True)
    ]
    total = f"{sum(map(sum, confusion)):,}"
    rows.append(("macro average", *(f"{share:.1%}" for share in macro_average(figures)), total, total))
    print_table(("class", *(f">{name}" for name in SHARES), ">examples", ">predicted"), rows)
    if len(names) <= MOST_COLUMNS or not console().is_terminal:
        counts = [(name, *row) for name, row in zip(names, confusion, strict=True)]
        print_table(("true \\ predicted", *(f">{name}" for name in names)), counts)
        return
    wrong = [(row[j], names[i], names[j]) for i, row in enumerate(confusion) for j in range(len(row)) if i != j]
    most = sorted((one for one in wrong if one[0]), key=lambda one: -one[0])[:MOST_COLUMNS]
    print_table(("true class", "predicted", ">examples"), [(true, found, n) for n, true, found in most], title=MOST)


def measure(
    trained: LoadedModel,
    recipe: Recipe,
    execution: Execution | None = None,
    *,
    data: Path | None = None,
) -> Evaluation:
    """Measure on held-out data, or all of another file, with the current engine; under JAX on one device."""
    engine, model = dispatch.current(), trained.model
    if engine.library == "jax":
        model = build(model.config, (execution or PLAIN).replace(mesh=MeshShape(), rules=()))
    trainer = engine.executor.trainer(model, replace(recipe, accumulate=1))
    if data is None:
        task = trained.task
        assert task is not None
        found = trainer.evaluate(trained.params, task.held_out, metric=task.metric, groups=task.groups)
        return compared(found, task.train, task.held_out)
    metric, parts, notes = file_parts(trained, str(data))
    for note in notes:
        log(note)
    return combined([trainer.evaluate(trained.params, part, metric=metric) for part in parts])


def _trained(folder: Path, checkpoint: str, data: Path | None) -> tuple[LoadedModel, Recipe | None, Execution | None]:
    """Return a trained model, its recipe and its execution; refuse its own data if that has changed since."""
    if is_saved(folder) and checkpoint != BEST:
        raise ConfigError(f"{folder} is a saved model, which has no checkpoints", hint="leave out --checkpoint")
    if is_saved(folder):
        model = read_model(folder)
        if model.origin is None:
            hint = f"measure it in Python: gf.load({str(folder)!r}).evaluate(data)"
            raise ConfigError(f"{folder} does not say what its model learned from", hint=hint)
        return model, None, None
    run = open_run(folder)
    if data is not None:
        return model_of_run(run, checkpoint), run.recipe, run.execution
    task = run.task()
    run.check_data()
    return LoadedModel.of_task(run.model, run.load_params(checkpoint), task), run.recipe, run.execution
