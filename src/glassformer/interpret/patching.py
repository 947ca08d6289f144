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
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.show import Map, Result, unfinished
from ..text.tokenizer import CLS, NUMBERS
from .changes import Change, take
from .gradients import gradients
from .lens import chosen_points
from .names import is_of_source
from .run import Run
from .stream import ATTENTIONS, chosen_stack, sublayers
from .sweep import Answer, Effects, answer, check_alike, effects


@dataclass(frozen=True, eq=False, repr=False)
class Patching(Effects):
    """The effect of each value of the source on the answer of a run.

    rows       what was patched: points of the stream, or sublayers
    columns    "position" or "head"
    words      the tokens at the positions, where the run knows them
    effect     (rows, columns)
    estimate   the same by gradients, or None where none were asked for
    """

    rows: list[str]
    columns: str
    words: list[str] | None
    estimate: Array | None

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
    (before,), effect = effects(run, [[change] for change in changes], [of], **settings)
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


def _estimate(run: Run, source: Run, of: Answer, changes: Sequence[Change]) -> Array:
    """Return Σ (source − run) · dvalue for every place."""
    grads = gradients(run, of)
    moved = {name: (source[name] - run[name]) * grads[name] for name in {change.name for change in changes}}
    return np.array([
        float(np.sum(moved[one.name][one.where.index(one.name, run[one.name].shape, run.heads)])) for one in changes
    ])  # fmt: skip
