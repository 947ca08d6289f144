"""Many changes at once: every variant of a run as further examples of one batch.

    losses = batched_interventions(run, [[zero("blocks.0.attention.output.x", head=h)] for h in range(4)], run_loss)

Examples of a batch never meet: variant n may be examples n · B to (n + 1) · B of a larger one. So the weights are read
once for all, and blocks before the first change do not run. Memory decides how many variants run at once.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ..core.arguments import short_traces
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..models import Batch
from .changes import Change, Intervention, Placed
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
