"""Activation patching: which value of one run, put into another, carries the difference between the two.

    effect = measure(run with one value of the source) − measure(run)

The two runs read prompts of equal length that differ in what matters, such as a name. Where putting the source's value
into the run moves its answer to that of the source, the difference passes through that value.

    found = patch_stream(run, source, Logit(7, against=3))
    found.effect, found.share         (points, positions): share 0 is the run's own answer, 1 that of the source
    found.estimate                    the same by gradients alone: Σ (source − run) · dvalue, from one backward pass

The estimate is exact where the model is linear, and costs one pass for all places at once (Nanda 2023). `paths.py` asks
what one part tells another directly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, LengthError
from ..core.quantized import unpacked
from ..core.show import Map, Result, Tabled, unfinished
from ..core.tree import flatten
from ..models import EncoderDecoder
from ..text.tokenizer import CLS, NUMBERS
from .batched import batched_interventions
from .changes import Change, take
from .gradients import Logit, Loss, gradients
from .lens import chosen_points
from .run import Run
from .stream import ATTENTIONS, chosen_stack, sublayers
from .where import is_of_source

Answer = Logit | Loss
"""What is measured: a logit, a difference of two, or the loss."""


@dataclass(frozen=True, eq=False, repr=False)
class Patching(Tabled):
    """The effect of each value of the source on the answer of a run.

    rows       what was patched: points of the stream, or sublayers
    columns    "position" or "head"
    words      the tokens at the positions, where the run knows them
    label      what tables call the answer
    effect     (rows, columns) the change of the answer
    estimate   the same by gradients, or None where none were asked for
    run, source   the answers of the two
    """

    rows: list[str]
    columns: str
    words: list[str] | None
    label: str
    effect: Array
    estimate: Array | None
    run: float
    source: float

    @property
    def share(self) -> Array:
        """The share of the way to the answer of the source that each moves the answer: from 0 to 1."""
        if self.source == self.run:
            fact = "both runs give the same answer, so there is no way between them"
            raise ConfigError(fact, hint="read `effect`, or ask another")
        return self.effect / (self.source - self.run)

    def result(self) -> Result:
        """Return a row for each point or sublayer with anything measured, and a record for each value."""
        differ, count = self.source != self.run, self.effect.shape[1]
        shown = self.share if differ else self.effect
        largest = float(np.nanmax(np.abs(shown), initial=0.0))
        words = [None] * count if self.words is None else self.words
        names = [f"{self.columns} {n}" if word is None else word for n, word in enumerate(words)]
        rows: list[list[Any]] = []
        records = []
        for n, name in enumerate(self.rows):
            own = shown[n]
            measured = np.flatnonzero(~np.isnan(own)).tolist()
            if measured:
                best = max(measured, key=lambda m: abs(own[m]))
                strongest = f"{own[best]:.2f}" if differ else float(own[best])
                word = "" if words[best] is None else f" {words[best]!r}"
                rows.append([name, Map(own, largest, names=names), strongest, f"{self.columns} {best}{word}"])
            for m in measured:
                record = {"point": name, self.columns: m, "token": words[m], "effect": float(self.effect[n, m])}
                records.append({**record, "share": float(own[m])} if differ else record)
        way = f", from {self.run:.4g} to {self.source:.4g}: 1.00 is all of the way" if differ else ""
        return Result(
            f"How far each value of the source moves the {self.label}{way}",
            ("patched", f"by {self.columns}", ">largest", "at"),
            rows,
            records=records,
            facts={"run": float(self.run), "source": float(self.source)},
            figure=self,
            unfinished=unfinished(len(records), self.effect.size),
        )


def patch_stream(
    run: Run,
    source: Run,
    of: Answer,
    *,
    at: str | Sequence[str] | None = None,
    stack: str | None = None,
    **settings: Any,
) -> Patching:
    """Patch the stream at every point, or at those named in `at`, and position; settings as in `patch`."""
    found = chosen_points(run, at, stack)
    variants = [(p.name, {"position": n}) for p in found for n in range(run[p.name].shape[1])]
    return patch(run, source, of, variants, [point.label for point in found], "position", **settings)


def patch_sublayers(
    run: Run, source: Run, of: Answer, kind: str = "feed_forward", *, stack: str | None = None, **settings: Any
) -> Patching:
    """Patch what every feed-forward layer adds, or every attention, at every position; settings as in `patch`."""
    found = [one.name for one in sublayers(run, chosen_stack(run, stack), (kind,))]
    if not found:
        raise ConfigError(f"this model has no {kind!r}", hint="use attention, cross_attention or feed_forward")
    variants = [(name, {"position": n}) for name in found for n in range(run[name].shape[1])]
    return patch(run, source, of, variants, found, "position", **settings)


def patch_heads(
    run: Run, source: Run, of: Answer, *, layers: int | Sequence[int] | None = None, **settings: Any
) -> Patching:
    """Patch every head of every attention, or of those of some layers, at all positions; settings as in `patch`."""
    found = [one.name for one in sublayers(run, kinds=ATTENTIONS, layers=layers)]
    variants = [(f"{name}.output.x", {"head": n}) for name in found for n in range(run.heads)]
    return patch(run, source, of, variants, found, "head", **settings)


def patch(
    run: Run,
    source: Run,
    of: Answer,
    places: Sequence[tuple[str, dict[str, Any]]],
    rows: list[str],
    columns: str,
    *,
    estimate: bool = True,
    **settings: Any,
) -> Patching:
    """Put values of the source into the run, one place at a time, and measure the answer.

    estimate   whether to compute the linear estimate, too
    settings   memory, progress and keep_partial as in `batched_interventions`
    """
    check_alike(run, source)
    if not places:
        raise ConfigError("there is no value to patch", hint="registered blocks may keep theirs under other names")
    changes = [take(name, source, **where) for name, where in places]
    (before,), effect = effects(run, changes, [of], **settings)
    effect = effect.reshape(len(rows), -1)
    return Patching(
        rows=rows,
        columns=columns,
        words=_words(run, effect.shape[1], places[0][0]) if columns == "position" else None,
        label=of.label(run),
        effect=effect,
        estimate=_estimate(run, source, of, changes).reshape(len(rows), -1) if estimate else None,
        run=float(before),
        source=answer(of, source),
    )


def _words(run: Run, count: int, name: str) -> list[str] | None:
    """Return the tokens at the positions of a value, where they are known and the same for all examples."""
    if run.labels == NUMBERS or len(run.logits) > 1 or is_of_source(name):
        return None
    return [CLS] * (count - len(run.tokens[0])) + run.tokens[0]  # a learned vector may stand before them


def effects(run: Run, changes: Sequence[Change], answers: Sequence[Answer], **settings: Any) -> tuple[Array, Array]:
    """Return the answers of a run, and by how much each change alone moves them, (changes, answers)."""

    def measure(own: Run, logits: Array) -> list[float]:
        return [answer(of, own, logits) for of in answers]

    before = np.array([answer(of, run) for of in answers])
    after = batched_interventions(run, [[one] for one in changes], measure, **settings)
    return before, np.asarray(after) - before


def answer(of: Answer, run: Run, logits: Array | None = None) -> float:
    """Return a logit, a difference of two, or the loss, of a run, or of the same with other logits."""
    return float(of.value(run if logits is None else replace(run, logits=logits)))


def check_alike(run: Run, source: Run) -> None:
    """Refuse runs between which values cannot be exchanged."""
    if run.model.config != source.model.config:
        raise ConfigError("the two runs are of different models", hint="watch one model on both prompts")
    mine, theirs = (flatten((one.plain or one).params) for one in (run, source))
    other = [name for name, leaf in mine.items() if not np.array_equal(unpacked(leaf), unpacked(theirs[name]))]
    if other:
        fact = f"the two runs differ in their parameters, such as {other[0]}"
        raise ConfigError(fact, hint="watch one model on both prompts")
    parts = ("tokens", "source") if isinstance(run.model, EncoderDecoder) else ("tokens",)
    for part in parts:
        own, other = np.shape(getattr(run.batch, part)), np.shape(getattr(source.batch, part))
        if own != other:
            raise LengthError(
                f"the {part} of the run are {own}, those of the source {other}",
                hint="word both prompts in as many tokens; or fill the shorter one up with a neutral token where they "
                "should line up; or move one value by hand: put(name, source[name][:, i], position=j)",
            )


def _estimate(run: Run, source: Run, of: Answer, changes: Sequence[Change]) -> Array:
    """Return Σ (source − run) · dvalue for every place."""
    grads = gradients(run, of)
    moved = {name: (source[name] - run[name]) * grads[name] for name in {change.name for change in changes}}
    return np.array([
        float(np.sum(moved[one.name][one.where.index(one.name, run[one.name].shape, run.heads)])) for one in changes
    ])  # fmt: skip
