"""One example of a run, part by part, with padding removed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, LengthError, did_you_mean
from ..core.show import html_of
from ..core.tree import flatten
from ..models import Batch, Model
from ..text.tokenizer import CLS, NUMBERS, Labels
from ..weights.loaded_model import trained_or_pair
from .run import Run, has_no_head, watch
from .stream import attentions, points, stack_tokens, stacks


@dataclass(frozen=True, repr=False)
class Trace:
    """One example on its way through a model.

    attention   by kind, (L, H, T, S): the weight that query t gives to key s; each row sums to one
    scores      by kind, (L, H, T, S): what the softmax of those weights read, before any mask
    allowed     by kind, (T, S): True where the query may look at the key
    residual    by stack, (L + 1, T, D): the embedding, then the output of every block
    logits      (T, V) for tokens, (classes,) for a classifier, None for an encoder without a head
    targets     (T,) or () as the batch had them, or None
    tokens      by stack, (T,): the ids, -1 for the learned vector before them
    labels      by stack: what the ids are called

    The kinds of attention are "encoder", "decoder" and "cross"; the stacks "encoder" and "decoder". A model has those
    of its architecture.
    """

    architecture: str
    attention: dict[str, Array]
    scores: dict[str, Array]
    allowed: dict[str, Array]
    residual: dict[str, Array]
    logits: Array | None
    targets: Array | None
    tokens: dict[str, Array]
    labels: dict[str, list[str]]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of attention this model has."""
        return tuple(self.attention)

    def __repr__(self) -> str:
        tokens = ", ".join(f"{stack} {names!r:.60}" for stack, names in self.labels.items())
        return f"<trace of {self.architecture}: {tokens}; attention {', '.join(self.kinds)}>"

    def _repr_html_(self) -> str:
        parts = {"attention": self.attention, "residual": self.residual, "logits": self.logits}
        named = flatten({name: part for name, part in parts.items() if part is not None})
        return html_of(f"one example in this {self.architecture}", named)

    @property
    def probabilities(self) -> Array | None:
        """The predictions: the softmax of the logits."""
        return None if self.logits is None else ops.softmax(self.logits)[0]

    def check_kind(self, kind: str) -> None:
        """Refuse a kind of attention that this model does not have."""
        if kind not in self.attention:
            hint = did_you_mean(kind, self.attention)
            raise ConfigError(f"this {self.architecture} has no {kind!r} attention", hint=hint)

    def query_labels(self, kind: str) -> list[str]:
        """Return the labels of the tokens that look."""
        self.check_kind(kind)
        return self.labels["decoder" if kind == "cross" else kind]

    def key_labels(self, kind: str) -> list[str]:
        """Return the labels of the tokens that are looked at."""
        self.check_kind(kind)
        return self.labels["encoder" if kind == "cross" else kind]


@trained_or_pair
def trace(model: Model, params: Tree, batch: Batch, *, example: int = 0, labels: Labels = NUMBERS) -> Trace:
    """Run one example of a batch and return everything there is to see; a trained model stands for `model, params`."""
    batch = flat_batch(batch)
    _check_example(example, batch.tokens.shape[0])
    one = Batch(*(None if part is None else part[example][None] for part in batch))
    return trace_each(model, params, one, labels=labels)[0]


@trained_or_pair
def trace_each(model: Model, params: Tree, batch: Batch, *, labels: Labels = NUMBERS) -> list[Trace]:
    """Run a whole batch at once and return the trace of every example; see `trace`."""
    run = watch(model, params, flat_batch(batch), labels=labels)
    return [trace_of(run, number) for number in range(len(run.logits))]


def trace_of(run: Run, example: int = 0) -> Trace:
    """Return what a run did with one of its examples, padding left out."""
    _check_example(example, len(run.logits))
    maps, ids, real, names = attentions(run), {}, {}, {}
    for stack in stacks(run):
        tokens, is_token = (part[example] for part in stack_tokens(run, stack))
        real[stack] = np.flatnonzero(is_token | (tokens < 0))  # a learned vector may stand before the tokens
        ids[stack] = tokens[real[stack]]
        of_source = stack == "encoder" and "decoder" in stacks(run)
        label = (run.labels.source or run.labels.tokens) if of_source else run.labels.tokens
        names[stack] = [CLS if i == -1 else label(int(i)) for i in ids[stack]]
    sides = {kind: ("decoder", "encoder") if kind == "cross" else (kind, kind) for kind in maps}
    grids: dict[str, Any] = {kind: np.ix_(real[queries], real[keys]) for kind, (queries, keys) in sides.items()}
    rows: Any = real[list(stacks(run))[-1]] if run.logits.ndim == 3 else ...
    targets = run.batch.targets

    stream = {stack: [p for n, p in enumerate(points(run, stack)) if p.is_block or n == 0] for stack in stacks(run)}

    def stacked(kind: str, part: str) -> Array:
        return np.stack([run[f"{name}.attend.{part}"][example][(..., *grids[kind])] for name in maps[kind]])

    return Trace(
        architecture=run.model.config.architecture,
        attention={kind: stacked(kind, "weights") for kind in maps},
        scores={kind: stacked(kind, "scores") for kind in maps},
        allowed={kind: run[f"{own[0]}.attend.mask"][example, 0][grids[kind]] for kind, own in maps.items()},
        residual={own: np.stack([run[p.name][example, real[own]] for p in stream[own]]) for own in stream},
        logits=None if has_no_head(run.model) else run.logits[example][rows],
        targets=None if targets is None else np.asarray(targets)[example][rows],
        tokens=ids,
        labels=names,
    )


def _check_example(example: int, count: int) -> None:
    if not -count <= example < count:
        raise LengthError(f"there is no example {example} in a batch of {count}", hint=f"use 0 to {count - 1}")


def full_and_causal(seen: Trace, kind: str = "decoder") -> tuple[Array, Array]:
    """Return the weights (L, H, T, T) twice, from the same scores: every token visible, and only those before.

    full = softmax(scores)      causal = softmax(scores where key ≤ query)
    """
    seen.check_kind(kind)
    if kind == "cross":
        raise ConfigError("a causal mask has no meaning between two sequences", hint='use "encoder" or "decoder"')
    scores = seen.scores[kind]
    return ops.softmax(scores)[0], ops.softmax(scores, mask=ops.causal_mask(scores.shape[-1]))[0]


def flat_batch(batch: Batch) -> Batch:
    """Return the batch with exactly one axis of examples."""
    axes = np.ndim(batch.tokens) - 1
    return Batch(*(None if part is None else part.reshape(-1, *part.shape[axes:]) for part in batch))
