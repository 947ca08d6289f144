"""Statistics of attention heads, whether they specialize, and of the sizes of the vectors of each layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.errors import LengthError, ShapeError
from ..core.settings import check_known
from ..core.show import Result, Table, Tabled
from .run import Run
from .trace import Trace, trace_of

BROAD = 0.2
"""A head whose score is below this spreads its attention too evenly to be called anything but broad."""

DOMINANT = 0.5
"""A head that gives at least this share of its attention to one kind of place is named after it."""

PLACES = ("self", "previous token", "next token", "first token", "last token")
"""The kinds of places a head of self-attention may be named after, in the order in which ties are resolved."""

_CROSS_NAMES = {"self": "same position", "previous token": "one position before", "next token": "one position after"}


@dataclass(frozen=True, repr=False)
class HeadStatistics(Tabled):
    """Statistics of every head of one kind of attention, averaged over all queries; arrays start (L, H).

    score      (L, H) specialization: 0 for a head that looks everywhere alike, 1 for one that looks at one key only
    entropy    (L, H) of the weights of a query, in nats
    distance   (L, H) how many positions away the attended keys are
    shares     by kind of place, (L, H): the attention that goes there, over the queries that could look elsewhere
    offsets    (N,) key position − query position
    profile    (L, H, N) the share of the attention at each offset; sums to one
    received   (L, H, S) the share of the attention that each key position gets; sums to one
    expected   (S,) the same for a head without preference: under a causal mask, early keys are seen more often
    kinds      [L][H] the name of what the head does

        score = 1 − mean of entropy(weights of a query) / log(number of keys it may see)

    over the queries that may see at least two keys; a score without any such query is 0.

    A head is "broad" if its score is below 0.2; else, if some kind of place gets at least half of its attention, it is
    named after the place; else it is "selective": it picks keys by their content. "no choice": no query ever had one.
    """

    kind: str
    score: Array
    entropy: Array
    distance: Array
    shares: dict[str, Array]
    offsets: Array
    profile: Array
    received: Array
    expected: Array
    kinds: list[list[str]]

    def top_positions(self, count: int = 3) -> Array:
        """Return the key positions that each head attends to most on average, (L, H, count), the first first."""
        return np.argsort(-self.received, axis=-1, kind="stable")[..., :count]

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per head, ready for a table or JSON; layers and heads are counted from 0."""
        tops, rows = self.top_positions().tolist(), []
        for layer, head in np.ndindex(self.score.shape):
            numbers = {name: float(getattr(self, name)[layer, head]) for name in ("score", "entropy", "distance")}
            kind = {"layer": layer, "head": head, "kind": self.kinds[layer][head]}
            rows.append({**kind, **numbers, "top_positions": tops[layer][head]})
        return rows

    def result(self) -> Result:
        """Return a row for each head."""
        records = self.rows()
        columns = (">layer", ">head", "kind", ">how surely", ">entropy", ">distance", "looks most at")
        title = f"the heads of {self.kind} attention, layers and heads counted from 0"
        return Result(title, columns, [list(record.values()) for record in records], records=records, figure=self)


def head_statistics(seen: Run | Trace | Sequence[Trace], kind: str | None = None) -> HeadStatistics:
    """Describe every head of one kind of attention, over the examples of a run, or traces.

    `kind` is "encoder", "decoder" or "cross"; the first that the model has unless given.
    """
    traces = _traces(seen)
    name = traces[0].kinds[0] if kind is None else kind
    for one in traces:
        one.check_kind(name)
    return attention_statistics([(one.attention[name], one.allowed[name]) for one in traces], kind=name)


def _traces(seen: Run | Trace | Sequence[Trace]) -> list[Trace]:
    if isinstance(seen, Run):
        return [trace_of(seen, number) for number in range(len(seen.logits))]
    traces = [seen] if isinstance(seen, Trace) else list(seen)
    if not traces:
        raise LengthError("there is no example to describe", hint="trace at least one")
    return traces


def attention_statistics(examples: Sequence[tuple[Array, Array]], *, kind: str = "encoder") -> HeadStatistics:
    """Describe heads by weights (L, H, T, S) and the mask (T, S) of what was allowed, of one example or several."""
    longest, widest = (max(weights.shape[axis] for weights, _ in examples) for axis in (-2, -1))
    offsets = np.arange(-(longest - 1), widest)
    parts = [_sums(np.asarray(weights, dtype=np.float64), mask, offsets, widest, kind) for weights, mask in examples]
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    queries, choosing = total["queries"], total["choosing"]
    score = np.clip(1 - _ratio(total["relative entropy"], choosing), 0, 1) * (choosing > 0)
    shares = {place: _ratio(total[place], total[f"{place} queries"]) for place in PLACES}
    means = {name: _ratio(total[name], queries) for name in ("entropy", "distance", "profile", "received", "expected")}
    kinds = _names(score, shares, choosing, kind)
    return HeadStatistics(kind=kind, score=score, shares=shares, offsets=offsets, kinds=kinds, **means)


def _sums(weights: Array, allowed: Array, offsets: Array, widest: int, attention: str) -> dict[str, Any]:
    """Add up everything over the queries of one example."""
    T, S = allowed.shape
    keys = allowed.sum(axis=-1)  # (T,)
    chooses = keys > 1
    entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=-1)  # (L, H, T)
    offset = np.arange(S) - np.arange(T)[:, None]
    relative = np.divide(entropy, np.log(np.maximum(keys, 2)), out=np.zeros_like(entropy), where=chooses)
    # One column per offset: the weights are summed along the diagonals.
    profile = np.zeros((*weights.shape[:2], len(offsets)))
    for k in range(-(T - 1), S):
        profile[..., k - offsets[0]] = np.diagonal(weights, k, axis1=-2, axis2=-1).sum(axis=-1)
    spread = allowed / np.maximum(keys, 1)[:, None]
    wider = widest - S
    sums = {
        "queries": int(np.sum(keys > 0)),
        "choosing": int(np.sum(chooses)),
        "entropy": entropy.sum(axis=-1),
        "relative entropy": relative.sum(axis=-1),
        "distance": np.sum(weights * np.abs(offset), axis=(-2, -1)),
        "profile": profile,
        "received": np.pad(weights.sum(axis=-2), ((0, 0), (0, 0), (0, wider))),
        "expected": np.pad(spread.sum(axis=0), (0, wider)),
    }
    for place, there in _places(offset, attention).items():
        there = there & allowed & chooses[:, None]
        sums[place] = np.sum(weights * there, axis=(-2, -1))
        sums[f"{place} queries"] = int(there.any(axis=-1).sum())
    return sums


def _places(offset: Array, attention: str) -> dict[str, Array]:
    """Return where each kind of place is; the first and the last key count except for the query that stands there."""
    T, S = offset.shape
    first, last = (np.arange(S) == place for place in (0, S - 1))
    elsewhere = np.ones((T, S), dtype=bool) if attention == "cross" else offset != 0
    nearby = {"self": offset == 0, "previous token": offset == -1, "next token": offset == 1}
    return {**nearby, "first token": first & elsewhere, "last token": last & elsewhere}


def _names(score: Array, shares: dict[str, Array], choosing: int, attention: str) -> list[list[str]]:
    names = [_CROSS_NAMES.get(place, place) if attention == "cross" else place for place in PLACES]
    each = np.stack([shares[place] for place in PLACES])
    found = np.where(each.max(axis=0) >= DOMINANT, np.array(names)[each.argmax(axis=0)], "selective")
    return np.where(choosing == 0, "no choice", np.where(score < BROAD, "broad", found)).tolist()


def _ratio(total: Array, count: int) -> Array:
    return np.asarray(total, dtype=np.float64) / max(count, 1)


# --- layers -----------------------------------------------------------------------------------------------------------


class LayerStatistics(NamedTuple):
    """The numbers that leave one layer, over all tokens and features.

    rms      √(mean x²)
    zeros    the share of entries that are exactly zero
    norm     the mean length of a token's vector
    change   ‖x − x before‖ / ‖x before‖, averaged over tokens: how much of the vector this block wrote; 0 for the first
    """

    name: str
    mean: float
    std: float
    rms: float
    minimum: float
    maximum: float
    zeros: float
    norm: float
    change: float


def layer_statistics(seen: Run | Trace | Sequence[Trace], stack: str | None = None) -> list[LayerStatistics]:
    """Describe the embedding and the output of every block of one stack, over the examples of a run, or traces.

    `stack` is "encoder" or "decoder"; the last that the model has unless given.
    """
    traces = _traces(seen)
    name = list(traces[0].residual)[-1] if stack is None else stack
    check_known("there is no stack", name, traces[0].residual)
    return residual_statistics(np.concatenate([one.residual[name] for one in traces], axis=1))


def residual_statistics(residual: Array) -> list[LayerStatistics]:
    """Describe a residual stream (L + 1, T, D): the embedding, then the output of every block."""
    residual = np.asarray(residual, dtype=np.float64)
    if residual.ndim != 3 or residual.size == 0:
        fact = f"the residual stream has shape {residual.shape}, expected (layers + 1, tokens, width)"
        raise ShapeError(fact, hint="pass trace(...).residual")
    names = ["embedding", *(f"block {number}" for number in range(len(residual) - 1))]
    return Table(map(_describe, names, residual, [residual[0], *residual]))


def _describe(name: str, x: Array, before: Array) -> LayerStatistics:
    length = np.linalg.norm(before, axis=-1)
    moved = np.linalg.norm(x - before, axis=-1)
    return LayerStatistics(
        name=name,
        mean=float(x.mean()),
        std=float(x.std()),
        rms=float(np.sqrt(np.mean(x**2))),
        minimum=float(x.min()),
        maximum=float(x.max()),
        zeros=float(np.mean(x == 0)),
        norm=float(np.linalg.norm(x, axis=-1).mean()),
        change=float(np.mean(np.divide(moved, length, out=np.zeros_like(moved), where=length > 0))),
    )
