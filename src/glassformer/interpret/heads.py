"""Attention heads: what each of them looks at, how sharply, and what to call it.

    score = attention that goes to the places a kind of head looks at, averaged over the queries that have such a place

    previous token    the place before, for tokens that are new: with one that came before, a head may have other things
                      to do
    first token       the first place
    duplicate token   earlier places with the same token
    induction         places right after an earlier same token: "… A B … A" looks at B, which comes next (Olsson 2022)
    self, next token, last token    the places of these names
    positional        how far weights are from even on average, less how far they are from this average: 1 for a head
                      that looks at one place, whatever is there
    alignment         of cross-attention: the place of the source with the same number, one later, or one before

Random tokens that come twice have nothing in them but their repetition, so that `detect_heads` says what a head does by
itself; `head_scores` takes any run. `chance` is what a head without preference would score.

    found = detect_heads(model)["decoder"]
    found.named()        the heads that clearly are of a kind, the surest first
    found.kinds          one word for every head, [L][H]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, LengthError
from ..core.settings import check_count
from ..core.show import Map, Result, Tabled, Tables
from ..models import Batch, EncoderDecoder, Model
from ..weights.loaded_model import trained_or_pair
from .run import Run, watch
from .stream import attentions, example_tokens, stack_tokens, stacks, stacks_of

THRESHOLD = 0.4
"""The share of what chance leaves to 1 that a head must give to a kind of place to be named after it."""

TIMES_CHANCE = 10.0
"""A head is named as well if it gives a kind of place this many times what chance would, and at least LEAST."""

LEAST = 0.15
"""Attention below which no head is named."""

BROAD = 0.2
"""A head of no kind whose specialization is below this spreads its attention evenly."""

MOST_NAMED = 24
"""Heads that a notebook names."""

POSITIONAL = "positional"


class NamedHead(NamedTuple):
    """A head that clearly is of a kind."""

    kind: str
    layer: int
    head: int
    score: float

    def __str__(self) -> str:
        return f"{self.kind} {self.layer}.{self.head} ({self.score:.2f})"


class HeadStatistics(NamedTuple):
    """Averages over the queries that see a key; arrays start (L, H).

    specialization   0 for a head that looks everywhere alike, 1 for one that looks at one key only
    entropy          of the weights of a query, in nats
    distance         how many positions away the attended keys are
    offsets          (N,) key position − query position
    profile          (L, H, N) the share of the attention at each offset; sums to one
    received         (L, H, S) the share of the attention that each key position gets; sums to one
    expected         (S,) the same for a head without preference: under a causal mask, early keys are seen more often

        specialization = 1 − mean of entropy(weights of a query) / log(number of keys it may see)

    over the queries that may see at least two keys; without any such query it is 0.
    """

    specialization: Array
    entropy: Array
    distance: Array
    offsets: Array
    profile: Array
    received: Array
    expected: Array


@dataclass(frozen=True, eq=False, repr=False)
class HeadScores(Tabled):
    """The scores of every head of one kind of attention, (L, H) by kind of head, over all queries.

    chance    what a head without preference would score
    layers    the numbers of the L layers
    maps      of each layer, the weights (B, H, T, S); `allowed`, (B, T, S): which keys each query may see
    """

    scores: dict[str, Array]
    chance: dict[str, float]
    layers: tuple[int, ...]
    maps: list[Array]
    allowed: Array

    @cached_property
    def statistics(self) -> HeadStatistics:
        """How sharply and how far each head looks, whatever is there."""
        seen, offset = self.allowed.sum(axis=-1), _offsets(self.allowed)
        queries, choosing = max(int(np.sum(seen > 0)), 1), int(np.sum(seen > 1))
        even = self.allowed / np.maximum(seen, 1)[..., None]
        steps = offset - offset.min()
        rows = []
        for each in self.maps:
            weights = np.asarray(each, dtype=np.float64)
            entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=-1)  # (B, H, T)
            relative = np.where((seen > 1)[:, None], entropy / np.log(np.maximum(seen, 2))[:, None], 0.0)
            total = weights.sum(axis=0)  # (H, T, S)
            rows.append((
                np.clip(1 - relative.sum(axis=(0, 2)) / max(choosing, 1), 0, 1) * (choosing > 0),
                entropy.sum(axis=(0, 2)) / queries,
                np.sum(total * np.abs(offset), axis=(1, 2)) / queries,
                np.stack([np.bincount(steps.ravel(), weights=head.ravel()) for head in total]) / queries,
                total.sum(axis=1) / queries,
            ))  # fmt: skip
        specialization, entropy, distance, profile, received = (np.stack(column) for column in zip(*rows, strict=True))
        offsets = np.arange(offset.min(), offset.max() + 1)
        expected = even.sum(axis=(0, 1)) / queries
        return HeadStatistics(specialization, entropy, distance, offsets, profile, received, expected)

    def named(self, threshold: float = THRESHOLD) -> list[NamedHead]:
        """Return the heads that clearly are of a kind, the surest first.

        A score is clear when it is above chance by the share `threshold` of what is left to 1, or many times chance:
        among 60 keys, 0.2 is a lot.
        """
        found = []
        for kind, scores in self.scores.items():
            chance = self.chance[kind]
            clear = chance + threshold * (1 - chance)
            clear = min(clear, max(TIMES_CHANCE * chance, LEAST)) if chance else clear
            for row, head in np.argwhere(scores >= clear):
                found.append(NamedHead(kind, self.layers[row], int(head), float(scores[row, head])))
        return sorted(found, key=lambda one: -one.score)

    @cached_property
    def kinds(self) -> list[list[str]]:
        """The name of each head, [L][H]: the kind that it most surely is of, "positional" if it is of no other.

        Any other head is "broad" if its specialization is below 0.2, or else "selective": it picks keys by their
        content. "no choice": no query ever had one.
        """
        words: dict[tuple[int, int], str] = {}
        for one in sorted(self.named(), key=lambda one: one.kind == POSITIONAL):
            words.setdefault((one.layer, one.head), one.kind)
        rest = np.where(self.statistics.specialization < BROAD, "broad", "selective")
        rest = rest if self.scores else np.full(rest.shape, "no choice")
        return [
            [words.get((layer, head), str(word)) for head, word in enumerate(row)]
            for layer, row in zip(self.layers, rest, strict=True)
        ]

    def top_positions(self, count: int = 3) -> Array:
        """Return the key positions that each head attends to most on average, (L, H, count), the first first."""
        return np.argsort(-self.statistics.received, axis=-1, kind="stable")[..., :count]

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per head, ready for a table or JSON; layers and heads are counted from 0."""
        tops, kinds = self.top_positions().tolist(), self.kinds
        return [
            {
                "layer": self.layers[row],
                "head": head,
                "kind": kinds[row][head],
                "score": float(self.statistics.specialization[row, head]),
                "entropy": float(self.statistics.entropy[row, head]),
                "distance": float(self.statistics.distance[row, head]),
                "top_positions": tops[row][head],
            }
            for row, head in np.ndindex(self.statistics.specialization.shape)
        ]

    def __repr__(self) -> str:
        named = ", ".join(map(str, self.named()[:MOST_NAMED]))
        count = sum(weights.shape[1] for weights in self.maps)
        return f"<scores of {count} heads: {named or 'none is clearly of a kind'}>"

    def result(self) -> Result:
        """Return a row for each kind: how strong it is by chance, and in which head it is strongest."""
        rows: list[list[Any]] = []
        for kind, scores in self.scores.items():
            row, head = np.unravel_index(int(scores.argmax()), scores.shape)
            strongest = f"layer {self.layers[int(row)]}, head {head}"
            rows.append([kind, self.chance[kind], float(scores.max()), strongest, Map(scores, 1.0)])
        named = [str(one) for one in self.named()]
        more = [] if len(named) <= MOST_NAMED else [f"and {len(named) - MOST_NAMED:,} more"]
        clearly = f"clearly: {', '.join([*named[:MOST_NAMED], *more])}" if named else "no head is clearly of a kind"
        columns = ("kind", "by chance", "highest", "of", "all layers (down) and heads")
        return Result("what the heads look for", columns, rows, [clearly], records=self.rows(), figure=self)


def repeated_tokens(vocab: int, length: int, examples: int = 8, *, seed: int = 0) -> Array:
    """Return random sequences that come twice, (examples, 2 · length); their halves repeat nothing if vocab allows."""
    if length < 2 or examples < 1:
        raise LengthError(f"{examples} sequences of {length} tokens", hint="use at least one, of at least two tokens")
    check_count("vocab", vocab, least=1)
    check_count("seed", seed, least=0)
    rng = np.random.default_rng(seed)
    half = np.stack([rng.choice(vocab, length, replace=vocab < length) for _ in range(examples)])
    return np.concatenate((half, half), axis=1)


@trained_or_pair
def detect_heads(
    model: Model, params: Tree, *, length: int | None = None, examples: int = 8, seed: int = 0
) -> dict[str, HeadScores]:
    """Score every head on repeated random tokens; by kind of attention: encoder, decoder and cross.

    A trained model stands for `model` and `params`. An encoder-decoder gets the same tokens as source and as target.
    `length` is that of the part that comes twice, half of what the model reads but at most 32 unless given.
    """
    config, has_source = model.config, isinstance(model, EncoderDecoder)
    length = min(32, config.context // 2) if length is None else length
    if 2 * length > config.context:
        raise LengthError(f"twice {length} tokens", hint=f"the model reads at most {config.context}")
    vocab = min(config.vocab, config.source_size) if has_source else config.vocab
    tokens = repeated_tokens(vocab, length, examples, seed=seed)
    return head_scores(watch(model, params, Batch(tokens, source=tokens if has_source else None)))


def head_scores(run: Run, *, layers: Sequence[int] | None = None) -> dict[str, HeadScores]:
    """Score every head on the data of a run, padding left out; by kind of attention: encoder, decoder and cross.

    layers   those to look at, all unless given; a kind of attention that has none of them is left out
    """
    found, names_of = Tables(), attentions(run)
    most = max(run.model.config.layers, getattr(run.model.config, "encoder_depth", 0))
    for number in layers or ():
        check_count("a layer", number, least=0, most=most - 1)
    for stack in stacks(run):
        if stack not in names_of:
            raise ConfigError(f"the {stack} has no attention", hint="there is no head to score")
    aligned = {stack: _aligned(run, stack) for stack in stacks(run)}
    for kind, names in names_of.items():
        chosen = tuple(number for number in range(len(names)) if layers is None or number in layers)
        if not chosen:
            continue
        (queries, is_query), (keys, is_key) = (aligned[stack] for stack in stacks_of(kind))
        example = np.arange(len(queries))[:, None, None]
        grid: Any = (example, slice(None), queries[..., None], keys[:, None])  # (B, T, S, H) of (B, H, T, S)
        real = is_query[..., None] & is_key[:, None]
        allowed = run[f"{names[0]}.attend.mask"][:, 0][example, queries[..., None], keys[:, None]] & real
        maps = [run[f"{names[number]}.attend.weights"] for number in chosen]
        if not real.all() or real.shape[1:] != maps[0].shape[2:]:  # some of it is padding
            maps = [np.moveaxis(weights[grid], -1, 1) * real[:, None] for weights in maps]
        tokens = np.take_along_axis(stack_tokens(run, stacks_of(kind)[0])[0], queries, axis=1)
        found[kind] = score_maps(maps, allowed, tokens, is_cross=kind == "cross", layers=chosen)
    return found


def _aligned(run: Run, stack: str) -> tuple[Array, Array]:
    """Return the positions of the tokens of each example, padding behind them, and which of these are tokens."""
    each = [example_tokens(run, stack, number)[0] for number in range(len(run.logits))]
    is_token = np.arange(max(map(len, each))) < np.array([[len(one)] for one in each])
    return np.stack([np.pad(one, (0, is_token.shape[1] - len(one))) for one in each]), is_token


def score_maps(
    maps: Sequence[Array],
    allowed: Array,
    tokens: Array | None = None,
    *,
    is_cross: bool = False,
    layers: tuple[int, ...] | None = None,
) -> HeadScores:
    """Score the heads of layers, each given by its weights (B, H, T, S).

    allowed   (B, T, S) which keys a query may see; none where there is no query
    tokens    (B, T) the ids of the queries, −1 for a learned vector; None: none of them came before
    """
    seen = allowed.sum(axis=-1)  # (B, T)
    offset = _offsets(allowed)
    even = allowed / np.maximum(seen, 1)[..., None]
    # A head has a choice only where it sees more than one key; a learned vector is no token.
    choice = allowed & ((seen > 1) & (True if tokens is None else tokens >= 0))[..., None]
    places = _places(allowed, offset, tokens, is_cross=is_cross)
    counts = {kind: int((there & choice).any(axis=-1).sum()) for kind, there in places.items()}
    places = {kind: there & choice for kind, there in places.items() if counts[kind]}
    chance = {kind: float(np.sum(even * there) / counts[kind]) for kind, there in places.items()}
    scores = {
        kind: np.stack([np.einsum("bhts,bts->h", weights, there) / counts[kind] for weights in maps])
        for kind, there in places.items()
    }
    if len(allowed) > 1 and places:
        even = even * choice.any(axis=-1, keepdims=True)
        scores[POSITIONAL], chance[POSITIONAL] = np.stack([_positional(weights, even) for weights in maps]), 0.0
    return HeadScores(scores, chance, tuple(range(len(maps))) if layers is None else layers, list(maps), allowed)


def _offsets(allowed: Array) -> Array:
    """Return key position − query position, (T, S)."""
    return np.arange(allowed.shape[2]) - np.arange(allowed.shape[1])[:, None]


def _places(allowed: Array, offset: Array, tokens: Array | None, *, is_cross: bool) -> dict[str, Array]:
    """Return where each kind of head looks, as masks (B, T, S) or (T, S)."""
    numbers = np.arange(allowed.shape[2])
    last = np.where(allowed.any(axis=1), numbers, -1).max(axis=-1)  # (B,): the last key that any query may see
    ends = {"first token": (numbers == 0)[None, None], "last token": (numbers == last[:, None])[:, None]}
    if is_cross:
        near = {"alignment": 0, "alignment to the next": 1, "alignment to the previous": -1}
        return {**{kind: offset == step for kind, step in near.items()}, **ends}
    same = np.zeros(allowed.shape, dtype=bool)
    if tokens is not None:
        same = (tokens[:, :, None] == tokens[:, None, :]) & (offset < 0)  # an earlier token like the query's own
    after = np.zeros_like(same)
    after[:, :, 1:] = same[:, :, :-1]
    elsewhere = offset != 0
    return {
        "previous token": ~same.any(axis=-1, keepdims=True) & (offset == -1),
        "first token": ends["first token"] & elsewhere,
        "duplicate token": same,
        "induction": after & elsewhere,
        "self": offset == 0,
        "next token": offset == 1,
        "last token": ends["last token"] & elsewhere,
    }


def _positional(weights: Array, even: Array) -> Array:
    """Return Σ (½ Σ |mean − even| − ½ Σ |weights − mean|) / Σ (1 − 1 / keys), at least 0: (H,)."""
    chooses = even.any(axis=-1)[:, None, :]  # (B, 1, T)
    counts = np.maximum(chooses.sum(axis=0), 1)[..., None]
    mean = np.sum(weights * chooses[..., None], axis=0, keepdims=True) / counts  # padding does not count
    fixed = np.abs(mean - even[:, None]).sum(axis=-1) - np.abs(weights - mean).sum(axis=-1)  # (B, H, T)
    most = np.sum(1 - even.max(axis=-1), where=chooses[:, 0])
    return np.clip(np.sum(fixed / 2 * chooses, axis=(0, 2)) / max(most, 1e-12), 0, 1)
