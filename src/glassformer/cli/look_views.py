"""The views of `glassformer look`: one function each, declared with the options that it reads."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import interpret
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.format import bytes_text, percent, signed, visible
from ..core.reporting import ShowCount
from ..core.show import Bars, Result
from ..generation.sampling import check_finite
from ..interpret import Logit, Run
from ..interpret.sweep import MEMORY, bytes_at_once
from ..web.views import PageView
from ..weights.loaded_model import LoadedModel

DRAWN = 24
"""Positions that the figure of a lens has at most."""


@dataclass(frozen=True)
class Question:
    """What a view is asked: a run, the logit in question, and the values of the view's options."""

    subject: LoadedModel
    text: str
    run: Run
    target: Logit
    source: Run | None
    way: str
    draws: bool  # whether a figure is drawn
    truncate: bool
    show: ShowCount


@dataclass(frozen=True)
class View:
    """A view.

    options    those of the command that it reads
    by_layer   whether its rows are in the order of the layers, so that all are shown
    page       the page's view of the same; None: it has none
    """

    name: str
    meaning: str
    answer: Callable[[Question], Result]
    options: tuple[str, ...]
    by_layer: bool
    page: PageView | None


VIEWS: dict[str, View] = {}
ASKED = ("token", "against", "position")


def view(
    *options: str, by_layer: bool = False, page: PageView | None = None
) -> Callable[[Callable[[Question], Result]], Callable[[Question], Result]]:
    """Return a decorator that adds a view: its name is the function's, its meaning the function's docstring."""

    def add(answer: Callable[[Question], Result]) -> Callable[[Question], Result]:
        VIEWS[answer.__name__] = View(answer.__name__, answer.__doc__ or "", answer, options, by_layer, page)
        return answer

    return add


@view("token", "position", by_layer=True, page=PageView.LENS)
def lens(question: Question) -> Result:
    """what the model would predict if it stopped after each layer"""
    run, is_classifier = question.run, question.subject.is_classifier
    found = interpret.lens(run, positions=None if is_classifier else question.target.position)
    result = found.result(question.target.token)
    if question.draws and not is_classifier:
        return replace(result, figure=interpret.lens(run, positions=slice(-DRAWN, None)))
    return result


@view(*ASKED, page=PageView.LENS)
def attribution(question: Question) -> Result:
    """what every head, feed-forward layer, embedding and bias adds to the logit"""
    return interpret.attribute(question.run, question.target).result()


@view(*ASKED, "way")
def ablation(question: Question) -> Result:
    """how the logit and the loss change without each head"""
    sweep = _Sweep(question, question.run.heads * question.run.model.config.layers)
    found = interpret.ablate_heads(
        question.run, question.way, targets=[question.target], progress=sweep, keep_partial=True
    )  # fmt: skip
    sweep.check(found.logits[:, 0], "ablation")
    return found.result()


@view(*ASKED, "other", by_layer=True)
def patching(question: Question) -> Result:
    """which position carries the difference to another text"""
    assert question.source is not None
    sweep = _Sweep(question, (2 * question.run.model.config.layers + 1) * question.run.logits.shape[1])
    found = interpret.patch_stream(
        question.run, question.source, question.target, estimate=False, progress=sweep, keep_partial=True
    )  # fmt: skip
    sweep.check(found.share, "patching")
    words = question.source.tokens[0][: found.effect.shape[1]]  # of the values that are put into the run
    return replace(found, words=words).result()


@view(*ASKED, by_layer=True, page=PageView.BACKWARD)
def gradients(question: Question) -> Result:
    """how the gradient of the logit flows back through the layers, and to which tokens"""
    found = interpret.gradients(question.run, question.target)
    flows = interpret.gradient_flow(found)[::-1]
    rows = [(flow.name, f"{flow.leaving:.3g}", f"{flow.through:.3g}", percent(flow.share)) for flow in flows]
    words, notes, facts = question.run.tokens[0], list[str](), dict[str, Any]()
    if len(words) == question.run.batch.tokens.shape[1] and "embedding" in question.run:
        each = interpret.gradient_times_input(question.run, found)[0].tolist()
        facts["tokens"] = [{"token": word, "value": value} for word, value in zip(words, each, strict=False)]
        shown = "  ".join(f"{visible(word)} {value:+.3f}" for word, value in zip(words, each, strict=False))
        notes.append(f"gradient × input: {shown}")
    names, sizes = [flow.name for flow in flows], [flow.leaving for flow in flows]
    return Result(
        f"How the gradient of the {question.target.label(question.run)} flows back",
        ("before", ">gradient", ">through it", ">share"),
        rows,
        notes=notes,
        records=[flow._asdict() for flow in flows],
        facts=facts,
        figure=Bars(names, sizes, "size of the gradient before it", len(flows)),
    )


@view(page=PageView.SCENE)
def heads(question: Question) -> Result:
    """what each attention head looks at"""
    found = interpret.head_scores(question.run)
    records = [{"attention": kind, **row} for kind, scores in found.items() for row in scores.rows()]
    records.sort(key=lambda row: -row["score"])
    rows = [
        (f"{row['attention']} block {row['layer']} head {row['head']}", row["kind"], f"{row['score']:.2f}",
         f"{row['distance']:.1f}")
        for row in records
    ]  # fmt: skip
    columns = ("head", "looks at", ">how surely", ">distance")
    return Result("What the heads look at", columns, rows, records=records, figure=list(found.values())[-1])


@view(*ASKED)
def neurons(question: Question) -> Result:
    """which neurons add most to the logit"""
    found = interpret.neuron_attribution(question.run, question.target)
    if not found:
        raise ConfigError("this model has no feed-forward layers, so it has no neurons", hint="look at its heads")
    records: list[dict[str, Any]] = [
        {"name": name, "neuron": n, "value": value}
        for name, values in found.items()
        for n, value in enumerate(values.tolist())
    ]
    records.sort(key=lambda row: -abs(row["value"]))
    names, values = [f"{row['name']} {row['neuron']}" for row in records], [row["value"] for row in records]
    return Result(
        f"Which neurons add to the {question.target.label(question.run)}",
        ("layer", ">neuron", ">adds"),
        [(row["name"], str(row["neuron"]), signed(row["value"], 4)) for row in records],
        records=records,
        figure=Bars(names, values, "adds to the logit"),
    )


@view("token", "truncate")
def words(question: Question) -> Result:
    """which words decided the class"""
    target, progress = question.target.token, lambda done, total: question.show(done, total, "texts without a word")
    return interpret.explain(
        question.subject, question.text, target, truncate=question.truncate, progress=progress
    ).result()  # fmt: skip


class _Sweep:
    """The progress of a sweep over changed runs, which Ctrl-C may end early."""

    def __init__(self, question: Question, total: int) -> None:
        self.show, self.done = question.show, 0
        self.note = f"changed runs, about {bytes_text(bytes_at_once(question.run, total, MEMORY))} at a time"
        self(0, total)

    def __call__(self, done: int, total: int) -> None:
        self.done = done
        self.show(done, total, self.note)

    def check(self, values: Array, name: str) -> None:
        """Refuse measured values that are not finite: others are NaN because Ctrl-C came before them."""
        if np.isfinite(values).sum() != self.done:
            check_finite(values, f"{name} figures")
