"""From logits to the next token: which tokens may follow, with what probability, and one of them drawn.

Settings apply in this order, the order of Hugging Face: repetition, frequency and presence penalty → temperature →
top-k → top-p → min-p. All of it happens on the host in float64, whatever engine computed the logits; what the engine
jax does instead where it can is in its own `sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from ..core.arrays import Array, namespace
from ..core.errors import GlassformerError
from ..core.settings import check_range, check_types, from_settings

MOST = 1_000_000
"""The largest penalty: any more would leave the range of numbers after a few tokens."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings by which the next token is chosen. The defaults leave the model's own distribution as it is.

    temperature          divides the logits: below 1 sharper, above 1 flatter; 0 is greedy, always the likeliest token
    top_k                only the k likeliest tokens (none: all)
    top_p                only the fewest tokens that together have probability top_p, in (0, 1]
    min_p                only tokens at least min_p times as likely as the likeliest, in [0, 1]
    repetition_penalty   divides positive and multiplies negative logits of tokens in the prompt or the answer so far
    frequency_penalty    lowers the logit of a token by this much for every time the answer so far holds it
    presence_penalty     lowers the logit of a token by this much if the answer so far holds it

    Where tokens are equally likely, the one with the lower id counts as the likelier.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        penalty = f"use a number from -{MOST:,} to {MOST:,} (0: no penalty)"
        for name, limits, hint in (
            ("temperature", {"least": 0}, "use 0 for the likeliest token, 1 for the model's own distribution"),
            ("top_k", {"least": 1}, "use a whole number from 1 on, or None for all tokens"),
            ("top_p", {"above": 0, "most": 1}, "use a probability above 0 and up to 1 (1: all tokens)"),
            ("min_p", {"least": 0, "most": 1}, "use a share from 0 to 1 (0: all tokens)"),
            ("repetition_penalty", {"least": 1 / MOST, "most": MOST}, f"use a factor up to {MOST:,} (1: no penalty)"),
            ("frequency_penalty", {"least": -MOST, "most": MOST}, penalty),
            ("presence_penalty", {"least": -MOST, "most": MOST}, penalty),
        ):
            check_range(self, name, **limits, hint=hint)

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        """Build it from settings by name; refuse unknown ones."""
        return from_settings("there is no sampling setting", settings, cls)

    @property
    def has_penalties(self) -> bool:
        """Whether it matters what was said before."""
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0


class TokenHistory(NamedTuple):
    """The tokens so far, as the penalties see them.

    seen      (..., V) True for tokens in the prompt or the answer so far
    written   (..., V) how often the answer so far holds each token
    """

    seen: Array
    written: Array

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]], vocab: int, written: Sequence[Sequence[int]] = ()) -> TokenHistory:
        """Return the history of several sequences, from the ids of their prompts and answers."""
        history = cls(np.zeros((len(prompts), vocab), dtype=bool), np.zeros((len(prompts), vocab), dtype=np.int64))
        for row, ids in enumerate(prompts):
            history.seen[row, np.asarray(ids, dtype=np.int64)] = True
        for row, ids in enumerate(written):
            for token in ids:
                history.add(row, token)
        return history

    def add(self, row: int, token: int) -> None:
        """Note, in place, one more token of an answer."""
        self.seen[row, token] = True
        self.written[row, token] += 1

    def select(self, rows: Array) -> TokenHistory:
        """Keep these sequences, in this order."""
        return TokenHistory(self.seen[rows], self.written[rows])


def distribution(logits: Array, history: TokenHistory | None, sampling: Sampling) -> Array:
    """Return the probabilities (..., V), float64, with which the next token is drawn for logits (..., V)."""
    x = host(logits)
    if history is not None and sampling.has_penalties:
        x = _penalized(x, history, sampling)
    if sampling.temperature == 0:
        return (np.argmax(x, axis=-1, keepdims=True) == np.arange(x.shape[-1])).astype(np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the largest to minus infinity, as it should
        x = (x - x.max(axis=-1, keepdims=True)) / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < x.shape[-1]:
        x = np.where(_largest(x, sampling.top_k), x, -np.inf)
    p = np.exp(x)
    p /= p.sum(axis=-1, keepdims=True)
    if sampling.top_p < 1:
        p = np.where(_nucleus(p, sampling.top_p), p, 0)
    if sampling.min_p > 0:
        p = np.where(p >= sampling.min_p * p.max(axis=-1, keepdims=True), p, 0)
    return p / p.sum(axis=-1, keepdims=True)


class SamplingStage(NamedTuple):
    """The distribution (V,) after a setting, and which tokens that setting left out, (V,)."""

    name: str
    probabilities: Array
    cut: Array


def stages(logits: Array, sampling: Sampling) -> list[SamplingStage]:
    """Return the model's own distribution for logits (V,), and what each setting makes of the one before it.

    Every stage is `distribution` with the settings so far; from the last one a token is drawn.
    """
    p = distribution(logits, None, Sampling())
    cuts = [SamplingStage("own", p, np.zeros(p.shape, dtype=bool))]
    settings: dict[str, float | int | None] = {}
    for name in ("temperature", "top_k", "top_p", "min_p"):
        settings[name] = getattr(sampling, name)
        after = distribution(logits, None, Sampling.of(settings))
        cuts.append(SamplingStage(name, after, (p > 0) & (after == 0)))
        p = after
    return cuts


def only_known(logits: Array, known: Any) -> Array:
    """Forbid the ids from `known` on in logits (..., V): a vocabulary may be padded with ids that no tokenizer has."""
    xp = namespace(logits)
    return xp.where(np.arange(logits.shape[-1]) < known, logits, xp.asarray(-np.inf, dtype=logits.dtype))


def choose(
    logits: Array, history: TokenHistory | None, sampling: Sampling, rngs: Sequence[np.random.Generator]
) -> Array:
    """Return the next token of each of several sequences, (R,): the likeliest of logits (R, V), or one drawn."""
    if sampling.temperature > 0:
        chances = distribution(logits, history, sampling)
        return np.array([draw(p, rng) for p, rng in zip(chances, rngs, strict=True)], dtype=np.int64)
    x = np.asarray(logits)
    if history is not None and sampling.has_penalties:
        x = _penalized(x.astype(np.float64), history, sampling)
    best = np.argmax(x, axis=-1)
    check_finite(x[np.arange(len(x)), best])
    return best


def draw(probabilities: Array, rng: np.random.Generator) -> int:
    """Draw one token with these probabilities (V,): the first whose cumulative probability exceeds a uniform number."""
    cumulative = np.cumsum(probabilities)
    token = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return token if token < len(cumulative) else int(np.flatnonzero(probabilities)[-1])


def log_softmax(logits: Array) -> Array:
    """Return the logarithms (..., V), float64, of the model's own probabilities."""
    x = host(logits)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def likeliest(scores: Array, count: int) -> Array:
    """Return the indices of the `count` largest of scores (N,), the largest first; of equal ones the first."""
    indices = np.flatnonzero(_largest(scores, count)) if count < len(scores) else np.arange(len(scores))
    return indices[np.argsort(-scores[indices], kind="stable")]


def host(logits: Array) -> Array:
    """Bring logits to the host in float64; refuse those of a broken model. Minus infinity forbids a token."""
    x: Array = np.asarray(logits).astype(np.float64)
    check_finite(x.max(axis=-1))
    return x


def check_finite(numbers: Array, what: str = "logits") -> None:
    """Refuse the logits of a broken model, by the largest of each row, or other numbers of it."""
    if not np.isfinite(numbers).all():
        raise GlassformerError(
            f"the model's {what} are not finite numbers",
            hint="its parameters are damaged, its training diverged, or a change of its values is too large",
        )


def _penalized(x: Array, history: TokenHistory, sampling: Sampling) -> Array:
    factor = sampling.repetition_penalty
    x = np.where(history.seen, np.where(x < 0, x * factor, x / factor), x)
    lowered = sampling.frequency_penalty * history.written + sampling.presence_penalty * (history.written > 0)
    return x - lowered


def _largest(x: Array, count: int) -> Array:
    """Mark exactly `count` largest entries of every row; of equal ones the first."""
    threshold = np.partition(x, x.shape[-1] - count, axis=-1)[..., x.shape[-1] - count, None]
    above, equal = x > threshold, x == threshold
    room = count - above.sum(axis=-1, keepdims=True)
    return above | (equal & (np.cumsum(equal, axis=-1) <= room))


def _nucleus(p: Array, top_p: float) -> Array:
    """Mark the fewest entries of every row that sum to at least `top_p`, the largest first."""
    rows = p.reshape(-1, p.shape[-1])
    keep = np.zeros(rows.shape, dtype=bool)
    # Entries below this are never needed: all of them together fall short of 1 − top_p. The rest is quick to sort.
    floor = (1 - top_p) / (2 * p.shape[-1])
    for row, kept in zip(rows, keep, strict=True):
        candidates = np.flatnonzero(row >= floor)
        order = candidates[np.argsort(-row[candidates], kind="stable")]
        before = np.concatenate(([0.0], np.cumsum(row[order])[:-1]))
        kept[order[before < top_p]] = True
    return keep.reshape(p.shape)
