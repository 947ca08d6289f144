"""Ablation: what a model loses without one of its parts.

    effect = measure without the part − measure of the run

A part is silenced in one of three ways. "zero" puts zeros in the place of its output, which may be far from any
output it has; "mean" puts the average of its output over some data there, "resample" its output for another example.

    found = ablate_heads(run)
    found.loss                          (parts,): by how much the loss grows
    found.rows()                        the part that matters most first
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.arguments import short_traces
from ..core.arrays import Array
from ..core.errors import ConfigError, LengthError
from ..core.format import signed
from ..core.settings import check_known
from ..core.show import Bars, Result, Tabled, unfinished
from .changes import Change, mean, resample, zero
from .gradients import LOSS, Logit
from .names import part_name
from .run import Run
from .stream import ATTENTIONS, KINDS, neurons_of, sublayers
from .sweep import Answer, effects

WAYS = ("zero", "mean", "resample")


class Ablated(NamedTuple):
    """One part that was silenced: a sublayer, or one head or neuron of it."""

    name: str
    layer: int
    head: int | None = None
    neuron: int | None = None

    @property
    def where(self) -> dict[str, Any]:
        """Its entries among those of the value."""
        return {"head": self.head, "feature": self.neuron}


@dataclass(frozen=True, eq=False, repr=False)
class Ablation(Tabled):
    """The change of a measure without each part.

    parts     which part was silenced
    loss      (parts,) by how much the loss grew; None for a batch without targets
    labels    what tables call the chosen logits
    logits    (parts, targets) by how much the chosen logits grew
    """

    parts: list[Ablated]
    targets: tuple[Logit, ...]
    labels: tuple[str, ...]
    loss: Array | None
    logits: Array

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per part, the one whose first logit, or else loss, changed most first."""
        return [dict(record) for record in self.result().records]

    def result(self) -> Result:
        """Return a row for each part that was measured, the one whose first logit, or else loss, changed most first."""
        values = np.column_stack([self.logits, *([] if self.loss is None else [self.loss])])
        order = np.argsort(-np.abs(values[:, 0]), kind="stable").tolist()
        measured = [n for n in order if not np.isnan(values[n]).any()]
        names = [part_name(self.parts[n].name, head=self.parts[n].head, neuron=self.parts[n].neuron) for n in measured]
        records = []
        for n in measured:
            logits, loss = self.logits[n].tolist(), None if self.loss is None else float(self.loss[n])
            first = logits[0] if logits else None
            records.append({**self.parts[n]._asdict(), "logit": first, "loss": loss, "logits": logits})
        measures = [*self.labels, *([] if self.loss is None else ["loss"])]
        return Result(
            f"What changes without each of {len(self.parts)} parts",
            ("without", *(f">{measure}" for measure in measures)),
            [(name, *(signed(x, 4) for x in values[n])) for name, n in zip(names, measured, strict=True)],
            records=records,
            figure=Bars(names, values[measured, 0].tolist(), f"change of the {measures[0]} without it"),
            unfinished=unfinished(len(measured), len(order)),
        )


def ablate_heads(
    run: Run, way: str = "zero", *, layers: int | Sequence[int] | None = None, **settings: Any
) -> Ablation:
    """Silence every head of every attention, or of those of some layers, one at a time; settings as in `ablate`."""
    parts = [
        Ablated(f"{one.name}.output.x", one.layer, head=head)
        for one in sublayers(run, kinds=ATTENTIONS, layers=layers)
        for head in range(run.heads)
    ]
    return ablate(run, parts, way, **settings)


def ablate_layers(run: Run, way: str = "zero", kinds: Sequence[str] = tuple(KINDS), **settings: Any) -> Ablation:
    """Silence every attention, cross-attention and feed-forward layer, one at a time; settings as in `ablate`."""
    for kind in kinds:
        check_known("there are no layers", kind, KINDS)
    return ablate(run, [Ablated(one.name, one.layer) for one in sublayers(run, kinds=tuple(kinds))], way, **settings)


def ablate_neurons(
    run: Run,
    layer: int,
    neurons: Sequence[int] | None = None,
    way: str = "zero",
    *,
    stack: str | None = None,
    **settings: Any,
) -> Ablation:
    """Silence neurons of one feed-forward layer, all unless given, one at a time; settings as in `ablate`."""
    name = neurons_of(run, layer, stack)
    chosen = range(run[name].shape[-1]) if neurons is None else neurons
    return ablate(run, [Ablated(name, layer, neuron=int(n)) for n in chosen], way, **settings)


@short_traces
def ablate(
    run: Run,
    parts: Sequence[Ablated],
    way: str = "zero",
    *,
    targets: Logit | Sequence[Logit] = (),
    data: Run | Sequence[Run] | None = None,
    order: Sequence[int] | None = None,
    **settings: Any,
) -> Ablation:
    """Silence parts one at a time and measure what follows; memory, progress, … as in `batched_interventions`.

    targets   a logit, or several, to measure beside the loss
    data      what "mean" averages over, or "resample" takes from: the run itself unless given
    order     for "resample": which example of the data each example gets; the next one unless given
    """
    if not parts:
        raise ConfigError("there is no part to silence", hint="registered blocks may keep theirs under other names")
    targets = [targets] if isinstance(targets, Logit) else targets
    has_loss = run.batch.targets is not None
    answers: list[Answer] = [*([LOSS] if has_loss else []), *targets]
    if not answers:
        raise ConfigError("there is nothing to measure", hint="give the batch targets, or name logits: targets=[…]")
    silence = _silence(run, way, data, order)
    _, effect = effects(run, [[silence(part)] for part in parts], answers, **settings)
    return Ablation(
        parts=list(parts),
        targets=tuple(targets),
        labels=tuple(target.label(run) for target in targets),
        loss=effect[:, 0] if has_loss else None,
        logits=effect[:, int(has_loss) :],
    )


def _silence(
    run: Run, way: str, data: Run | Sequence[Run] | None, order: Sequence[int] | None
) -> Callable[[Ablated], Change]:
    """Return what makes the change that silences a part."""
    check_known("there is no way to ablate", way, WAYS)
    if way == "zero":
        return lambda part: zero(part.name, **part.where)
    runs = run if data is None else data
    if way == "mean":
        return lambda part: mean(part.name, runs, **part.where)
    if not isinstance(runs, Run):
        raise ConfigError("examples are resampled from one run", hint="watch the model on one batch of data")
    examples, available, own = len(run.logits), len(runs.logits), runs is run
    if order is None and own and available == 1:
        fact = "a batch of one example has no other one to resample from"
        raise ConfigError(fact, hint="give data=watch(model, params, others)")
    chosen = [(n + own) % available for n in range(examples)] if order is None else order
    if len(chosen) != examples:
        raise LengthError(f"the order has {len(chosen)} numbers", hint=f"the run has {examples} examples")
    return lambda part: resample(part.name, runs, chosen, **part.where)
