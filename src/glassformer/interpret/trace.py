"""What a model did with one example, part by part, with padding removed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..arrays import Array, Tree, widen
from ..errors import ConfigError, LengthError, did_you_mean
from ..layers import AlibiPositions, Attention, Stack
from ..models import Batch, Encoder, EncoderDecoder, Model
from ..text.tokenizer import Tokenizer
from ..tree import flatten
from .show import html_of

CLS = "[CLS]"
"""The label of the learned vector that an encoder may put before a sequence."""


class Labels(NamedTuple):
    """How to call the ids of a model.

    tokens    what an encoder or a decoder reads and predicts
    source    what the encoder of an encoder-decoder reads; None: as `tokens`
    classes   what an encoder predicts; None: the number
    """

    tokens: Callable[[int], str] = str
    source: Callable[[int], str] | None = None
    classes: Callable[[int], str] | None = None


NUMBERS = Labels()
"""Every id is called by its number."""


@dataclass(frozen=True)
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

    def _repr_html_(self) -> str:
        parts = {"attention": self.attention, "residual": self.residual, "logits": self.logits}
        named = flatten({name: part for name, part in parts.items() if part is not None})
        return html_of(f"one example in this {self.architecture}", named.items(), len(named))

    @property
    def probabilities(self) -> Array | None:
        """The predictions: the softmax of the logits."""
        return None if self.logits is None else ops.softmax(self.logits)[0]

    def check_kind(self, kind: str) -> None:
        """Refuse a kind of attention that this model does not have."""
        if kind not in self.attention:
            raise ConfigError(
                f"this {self.architecture} has no {kind!r} attention", hint=did_you_mean(kind, self.kinds)
            )

    def query_labels(self, kind: str) -> list[str]:
        """Return the labels of the tokens that look."""
        self.check_kind(kind)
        return self.labels["decoder" if kind == "cross" else kind]

    def key_labels(self, kind: str) -> list[str]:
        """Return the labels of the tokens that are looked at."""
        self.check_kind(kind)
        return self.labels["encoder" if kind == "cross" else kind]


def trace(model: Model, params: Tree, batch: Batch, *, example: int = 0, labels: Labels = NUMBERS) -> Trace:
    """Run one example of a batch and return everything there is to see."""
    batch = flat_batch(batch)
    count = batch.tokens.shape[0]
    if not -count <= example < count:
        raise LengthError(f"there is no example {example} in a batch of {count}", hint=f"use 0 to {count - 1}")
    one = Batch(*(None if part is None else part[example][None] for part in batch))
    return trace_each(model, params, one, labels=labels)[0]


def trace_each(model: Model, params: Tree, batch: Batch, *, labels: Labels = NUMBERS) -> list[Trace]:
    """Run a whole batch at once and return the trace of every example."""
    batch = flat_batch(batch)
    logits, saved = _run(model, params, batch)
    parts = _parts(model, params, batch, saved, labels)
    maps = _attention(parts)
    return [_example(model, batch, logits, parts, maps, number) for number in range(batch.tokens.shape[0])]


def full_and_causal(seen: Trace, kind: str = "decoder") -> tuple[Array, Array]:
    """Return the weights (L, H, T, T) twice, from the same scores: every token visible, and only those before.

    full = softmax(scores)      causal = softmax(scores where key ≤ query)
    """
    seen.check_kind(kind)
    if kind == "cross":
        raise ConfigError("a causal mask has no meaning between two sequences", hint='use "encoder" or "decoder"')
    scores = seen.scores[kind]
    return ops.softmax(scores)[0], ops.softmax(scores, mask=ops.causal_mask(scores.shape[-1]))[0]


@dataclass(frozen=True)
class _Part:
    """One stack of a model with the record of its run."""

    stack: Stack
    saved: Tree
    embedded: Array  # (B, T, D)
    real: Array  # (B, T): True for tokens, False for padding
    tokens: Array  # (B, T)
    label: Callable[[int], str]


@dataclass(frozen=True)
class _Maps:
    """One kind of attention of a whole batch."""

    weights: Array  # (B, L, H, T, S)
    scores: Array  # (B, L, H, T, S)
    pattern: Array  # (T, S)
    queries: str  # the stacks whose tokens look and are looked at
    keys: str


def _run(model: Model, params: Tree, batch: Batch) -> tuple[Array | None, Tree]:
    if isinstance(model, Encoder) and model.config.head == "none":
        _, saved = model.forward(params, batch.tokens, mask=batch.mask, segments=batch.segments)
        return None, saved
    logits, saved = model.predict(params, batch)
    return _plain(logits), saved


def _parts(model: Any, params: Tree, batch: Batch, saved: Tree, labels: Labels) -> dict[str, _Part]:
    own = saved["embedding"], batch.tokens, batch.mask, labels.tokens
    if isinstance(model, EncoderDecoder):
        source = saved["source_embedding"], batch.source, batch.source_mask, labels.source or labels.tokens
        return {
            "encoder": _part(model.encoder, saved["encoder"], *source),
            "decoder": _part(model.decoder, saved["decoder"], *own),
        }
    part = _part(model.stack, saved, *own)
    if not isinstance(model, Encoder):
        return {"decoder": part}
    return {"encoder": _with_cls(part, params["cls"]) if model.config.pooling == "cls" else part}


def _part(
    stack: Stack, saved: Tree, embedding: Tree, tokens: Array, mask: Array | None, label: Callable[[int], str]
) -> _Part:
    tokens = np.asarray(tokens)
    real = np.ones(tokens.shape, dtype=bool) if mask is None else np.asarray(mask)
    return _Part(stack, saved, _plain(embedding["output"]), real, tokens, label)


def _with_cls(part: _Part, cls: Array) -> _Part:
    """Put the learned vector before the sequences, where the blocks saw it."""
    one_before = ((0, 0), (1, 0))
    embedded = np.pad(part.embedded, (*one_before, (0, 0)))
    embedded[:, 0] = _plain(cls)
    real = np.pad(part.real, one_before, constant_values=True)
    tokens = np.pad(part.tokens, one_before, constant_values=-1)
    return replace(part, embedded=embedded, real=real, tokens=tokens, label=lambda i: CLS if i == -1 else part.label(i))


def _attention(parts: dict[str, _Part]) -> dict[str, _Maps]:
    maps = {}
    for name, part in parts.items():
        layer, positions = part.stack.block.attention, part.stack.positions
        # Dense attention forgets a bias that needs no gradient.
        places = np.arange(part.tokens.shape[1])
        bias = positions.bias(places, places) if isinstance(positions, AlibiPositions) else None
        maps[name] = _maps(layer, [block["attention"] for block in part.saved["blocks"]], bias, name, name)
    for name, part in parts.items():
        if part.stack.block.cross_attention is not None:
            records = [block["cross_attention"] for block in part.saved["blocks"]]
            maps["cross"] = _maps(part.stack.block.cross_attention, records, None, name, "encoder")
    return maps


def _maps(layer: Attention, records: list[Tree], bias: Array | None, queries: str, keys: str) -> _Maps:
    weights, scores = [], []
    for record in records:
        attend = record.attend
        weights.append(_plain(layer.weights(record)))
        q, k = _plain(attend.q), _plain(attend.k)
        own = bias if attend.bias is None else _plain(attend.bias)
        scores.append(ops.attention_scores(q, k, own, scale=layer.scale).astype(q.dtype))
    length, seen = weights[0].shape[-2:]
    pattern = np.ones((length, seen), dtype=bool) if layer.pattern.is_full else layer.pattern.dense(length, seen)
    return _Maps(np.stack(weights, axis=1), np.stack(scores, axis=1), pattern, queries, keys)


def _example(
    model: Model, batch: Batch, logits: Array | None, parts: dict[str, _Part], maps: dict[str, _Maps], number: int
) -> Trace:
    places = {name: np.flatnonzero(part.real[number]) for name, part in parts.items()}
    tokens = {name: part.tokens[number, places[name]] for name, part in parts.items()}
    grids = {name: np.ix_(places[one.queries], places[one.keys]) for name, one in maps.items()}
    per_token = logits is not None and logits.ndim == 3
    rows = places["decoder" if "decoder" in places else "encoder"] if per_token else ...
    return Trace(
        architecture=model.config.architecture,
        attention={name: one.weights[number][(..., *grids[name])] for name, one in maps.items()},
        scores={name: one.scores[number][(..., *grids[name])] for name, one in maps.items()},
        allowed={name: one.pattern[grids[name]] for name, one in maps.items()},
        residual={name: _residual(part, number)[:, places[name]] for name, part in parts.items()},
        logits=None if logits is None else logits[number][rows],
        targets=None if batch.targets is None else np.asarray(batch.targets)[number][rows],
        tokens=tokens,
        labels={name: [part.label(int(i)) for i in tokens[name]] for name, part in parts.items()},
    )


def _residual(part: _Part, number: int) -> Array:
    outputs = [_plain(block["output"])[number] for block in part.saved["blocks"]]
    return np.stack([part.embedded[number], *outputs])


def flat_batch(batch: Batch) -> Batch:
    """Return the batch with exactly one axis of examples."""
    leading = np.shape(batch.tokens)[:-1]
    count = int(np.prod(leading))

    def flat(part: Array | None) -> Array | None:
        return None if part is None else part.reshape(count, *part.shape[len(leading) :])

    return Batch(*(flat(part) for part in batch))


def _plain(x: Array) -> Array:
    """Return a NumPy array in at least single precision."""
    return np.asarray(widen(x))


def token_labels(tokenizer: Tokenizer) -> Callable[[int], str]:
    """Return a function from an id to its text, or to "#id" where the id alone is no text (part of a character)."""

    def label(number: int) -> str:
        text = tokenizer.decode([int(number)])
        return text if text and all(map(_is_character, text)) else f"#{int(number)}"

    return label


def _is_character(character: str) -> bool:
    """Tell a character from the two stand-ins for bytes that are only part of one."""
    return character != "\N{REPLACEMENT CHARACTER}" and not 0xD800 <= ord(character) <= 0xDFFF
