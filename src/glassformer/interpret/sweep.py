"""A sweep over changes: every variant of a run as further examples of one batch, and the effect of each on an answer.

    losses = batched_interventions(run, [[zero("blocks.0.attention.output.x", head=h)] for h in range(4)], run_loss)
    before, effect = effects(run, [[zero("blocks.0.attention")], [zero("blocks.1.attention")]], [LOSS])

Ablation, patching and paths are sweeps, which differ in the changes that they make.

Examples of a batch never meet: variant n may be examples n · B to (n + 1) · B of a larger one. So the weights are read
once for all, and blocks before the first change do not run. Memory decides how many variants run at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from ..core.arguments import short_traces
from ..core.arrays import Array
from ..core.errors import ConfigError, LengthError
from ..core.quantized import unpacked
from ..core.show import Tabled
from ..core.tree import flatten
from ..models import Batch, EncoderDecoder
from .changes import Change, Intervention, Placed
from .gradients import Logit, Loss
from .run import Run, mean_loss, read, sorted_changes, thawed, watch
from .tracing import Call, TracingEngine, is_block, run_traced

MEMORY = 1 << 30
"""Bytes that variants computed at once may take, by default."""

Measure = Callable[[Run, Array], Any]
"""A number, or an array, of the logits (B, …) that a run would have had."""

Progress = Callable[[int, int], None]
"""Called with how many variants are done, and of how many."""


def run_loss(run: Run, logits: Array) -> float:
    """Measure the mean cross-entropy."""
    if run.batch.targets is None:
        raise ConfigError(
            "the batch has no targets to measure the loss with",
            hint="watch Batch(tokens, targets); or pass a measure: lambda run, logits: logits[0, -1, token]",
        )
    return float(mean_loss(logits, run.targets)[0])


@short_traces
def batched_interventions(
    run: Run,
    variants: Sequence[Sequence[Change]],
    measure: Measure = run_loss,
    *,
    memory: int = MEMORY,
    progress: Progress | None = None,
    keep_partial: bool = False,
) -> Array:
    """Return the measure of a run with each of several lists of changes, in their order: see `Run.changed`.

    memory         bytes that the variants may take at once; progress is called after each lot of them
    keep_partial   Ctrl-C ends the work without an exception once something is measured; the rest is NaN
    """
    plain = run.plain or run
    inputs, given = sorted_changes(plain, run.changes)
    # The parameters and the batch of a changed run; what it freezes stays as it was before any change.
    start = watch(run.model, run.params, run.batch, labels=run.labels) if inputs else plain
    others, _ = sorted_changes(start, tuple(change for own in variants for change in own))
    if others:  # they concern all examples
        raise ConfigError(
            f"{others[0].name} is no value of the run, and cannot be changed for one variant alone",
            hint="use changed() for each",
        )
    all_changes = [[thawed(change, plain) for change in (*given, *own)] for own in variants]
    firsts = [min((start.addresses[c.name].number for c in own), default=len(start.calls)) for own in all_changes]
    order = sorted(range(len(variants)), key=firsts.__getitem__)
    results: list[Any] = [None] * len(variants)
    done = 0
    blocks = [call.number for call in start.calls if is_block(call)]
    begins = [max((number for number in blocks if number <= first), default=0) for first in firsts]
    for group in _groups(order, begins, _at_once(start, memory)):
        try:
            logits = _together(start, [all_changes[n] for n in group], min(firsts[n] for n in group))
        except KeyboardInterrupt:
            if not (keep_partial and done):
                raise
            known = next(value for value in results if value is not None)
            results = [np.full_like(known, np.nan, dtype=float) if value is None else value for value in results]
            break
        for n, own in zip(group, logits, strict=True):
            results[n] = measure(start, own)
        done += len(group)
        if progress is not None:
            progress(done, len(variants))
    return np.array(results)


def bytes_at_once(run: Run, variants: int, memory: int = MEMORY) -> int:
    """Return the memory that `batched_interventions` will take for a number of variants, roughly."""
    start = run.plain or run
    return bytes_of(start) * min(max(1, variants), _at_once(start, memory))


def _at_once(run: Run, memory: int) -> int:
    return max(1, int(memory // bytes_of(run)))


def bytes_of(run: Run) -> int:
    """Return what one variant of a run takes while it runs: about what its largest block records."""
    sizes = [0]
    for block in list(filter(is_block, run.calls)) or run.calls[:1]:
        returned = (x for call in run.calls[block.number : block.end] for x in call.outputs)
        sizes.append(sum({id(x): x.nbytes for x in returned if isinstance(x, np.ndarray)}.values()))
    return max(sizes) + run.logits.nbytes + 1


def _groups(order: list[int], blocks: list[int], size: int) -> list[list[int]]:
    """Cut variants into groups that begin in the same block, of at most `size`."""
    alike = [list(group) for _, group in groupby(order, blocks.__getitem__)]
    return [group[start : start + size] for group in alike for start in range(0, len(group), size)]


def _together(start: Run, variants: list[list[Change]], first: int) -> Array:
    """Return the logits (variants, B, …) of several variants, computed as one batch."""
    count, examples = len(variants), len(start.logits)
    placed: Placed = {}
    for number, changes in enumerate(variants):
        rows = slice(number * examples, (number + 1) * examples)
        for change in changes:
            address = start.addresses[change.name]
            placed.setdefault(start.calls[address.number].key, []).append((address.place, rows, change))

    def again(call: Call) -> Any:
        if not is_block(call) and not call.name.endswith(".run_blocks"):
            return NotImplemented  # small, or not about examples
        y, *rest = call.outputs
        return (np.tile(y, (count, 1, 1)), *rest)

    intervention = Intervention(placed, start.heads)
    engine = TracingEngine(
        intervention.before, intervention.after, known=start.calls, first=first, again=again, forgets=True
    )
    batch = Batch(
        *(None if part is None else np.tile(part, (count,) + (1,) * (np.ndim(part) - 1)) for part in start.batch)
    )
    logits, _ = run_traced(read, start.model, start.params, batch, engine=engine)
    for change in (change for changes in variants for change in changes):
        # The second question tells examples from as many positions.
        sizes = len(start[change.name]), len(intervention.originals[start.addresses[change.name]])
        if sizes != (examples, count * examples):
            raise ConfigError(
                f"{change.name} serves all examples at once, and cannot be changed for one variant alone",
                hint="use changed() for each",
            )
    return logits.reshape(count, examples, *logits.shape[1:])


# --- effects ----------------------------------------------------------------------------------------------------------

Answer = Logit | Loss
"""What is measured: a logit, a difference of two, or the loss."""


@dataclass(frozen=True, eq=False, repr=False)
class Effects(Tabled):
    """The effects of values of another run, the source, on the answer of a run.

    label         what tables call the answer
    effect        the change of the answer, by rows and columns; NaN where it was not measured
    run, source   the answers of the two
    """

    label: str
    effect: Array
    run: float
    source: float

    @property
    def share(self) -> Array:
        """The share of the way to the answer of the source that each moves the answer: from 0 to 1."""
        if self.source == self.run:
            fact = "both runs give the same answer, so there is no way between them"
            raise ConfigError(fact, hint="read `effect`, or ask another")
        return self.effect / (self.source - self.run)


def effects(
    run: Run, variants: Sequence[Sequence[Change]], answers: Sequence[Answer], **settings: Any
) -> tuple[Array, Array]:
    """Return the answers of a run, and by how much each variant moves them, (variants, answers).

    settings   memory, progress and keep_partial as in `batched_interventions`
    """

    def measure(own: Run, logits: Array) -> list[float]:
        return [answer(of, own, logits) for of in answers]

    before = np.array([answer(of, run) for of in answers])
    return before, batched_interventions(run, variants, measure, **settings) - before


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
