"""Head detectors: what each head looks for, scored on sequences made for it.

    score = attention that goes to the places a kind of head looks at, averaged over the queries that have such a place

    previous token    the place before, for tokens that are new: with one that came before, a head may have other things
                      to do
    first token       the first place
    duplicate token   earlier places with the same token
    induction         places right after an earlier same token: "… A B … A" looks at B, which comes next (Olsson 2022)
    positional        how far weights are from even on average, less how far they are from this average: 1 for a head
                      that looks at one place, whatever is there
    alignment         of cross-attention: the place of the source with the same number, or one later

Random tokens that come twice have nothing in them but their repetition, so that a score says what a head does by
itself. `chance` is what a head without preference would score.

    found = detect_heads(model)["decoder"]
    found.named()        the heads that clearly are of a kind, the surest first
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, LengthError
from ..core.settings import check_count
from ..core.show import Map, Result, Tabled, Tables
from ..models import Batch, EncoderDecoder, Model
from ..weights.loaded_model import trained_or_pair
from .run import Run, watch
from .stream import attentions, stack_tokens, stacks

THRESHOLD = 0.4
"""The share of what chance leaves to 1 that a head must give to a kind of place to be named after it."""

TIMES_CHANCE = 10.0
"""A head is named as well if it gives a kind of place this many times what chance would, and at least LEAST."""

LEAST = 0.15
"""Attention below which no head is named."""

MOST_NAMED = 24
"""Heads that a notebook names."""


class NamedHead(NamedTuple):
    """A head that clearly is of a kind."""

    kind: str
    layer: int
    head: int
    score: float

    def __str__(self) -> str:
        return f"{self.kind} {self.layer}.{self.head} ({self.score:.2f})"


@dataclass(frozen=True, eq=False)
class HeadScores(Tabled):
    """The scores of every head of one kind of attention, (L, H) by kind of head, and those that chance would give.

    layers   the numbers of the L layers; None: 0, 1, …
    """

    scores: dict[str, Array]
    chance: dict[str, float]
    layers: tuple[int, ...] | None = None

    def _layer(self, row: Any) -> int:
        return int(row) if self.layers is None else self.layers[row]

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
                found.append(NamedHead(kind, self._layer(row), int(head), float(scores[row, head])))
        return sorted(found, key=lambda one: -one.score)

    def __repr__(self) -> str:
        named = ", ".join(map(str, self.named()[:MOST_NAMED]))
        count = max((scores.size for scores in self.scores.values()), default=0)
        return f"<scores of {count} heads: {named or 'none is clearly of a kind'}>"

    def result(self) -> Result:
        """Return a row for each kind: how strong it is by chance, and in which head it is strongest."""
        rows: list[list[Any]] = []
        for kind, scores in self.scores.items():
            layer, head = np.unravel_index(int(scores.argmax()), scores.shape)
            strongest = f"layer {self._layer(layer)}, head {head}"
            rows.append([kind, self.chance[kind], float(scores.max()), strongest, Map(scores, 1.0)])
        named = [str(one) for one in self.named()]
        more = [] if len(named) <= MOST_NAMED else [f"and {len(named) - MOST_NAMED:,} more"]
        clearly = f"clearly: {', '.join([*named[:MOST_NAMED], *more])}" if named else "no head is clearly of a kind"
        columns = ("kind", "by chance", "highest", "of", "all layers (down) and heads")
        return Result("what the heads look for", columns, rows, [clearly], figure=self)


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
    """Score every head on the data of a run; by kind of attention. `layers` are those to look at, all unless given."""
    found = Tables()
    most = max(run.model.config.layers, getattr(run.model.config, "encoder_depth", 0))
    for number in layers or ():
        check_count("a layer", number, least=0, most=most - 1)
    for kind, names in attentions(run).items():
        tokens, real = stack_tokens(run, "decoder" if kind == "cross" else kind)
        if kind == "cross":
            query, key = np.arange(tokens.shape[1])[:, None], np.arange(np.asarray(run.batch.source).shape[1])
            places = {"alignment": key == query, "alignment to the next": key == query + 1}
        else:
            places = _places(tokens)
        found[kind] = _scores(run, names, real, places, layers)
    for stack in stacks(run):
        if stack not in found:
            raise ConfigError(f"the {stack} has no attention", hint="there is no head to score")
    return found


def _places(tokens: Array) -> dict[str, Array]:
    """Return where each kind of head looks, as masks (B, T, T) or (T, T): the query's row, the key's column."""
    query, key = np.arange(tokens.shape[1])[:, None], np.arange(tokens.shape[1])
    same = (tokens[:, :, None] == tokens[:, None, :]) & (key < query)  # an earlier token like the query's own
    after = np.zeros_like(same)
    after[:, :, 1:] = same[:, :, :-1]
    is_new = ~same.any(axis=-1, keepdims=True)
    return {
        "previous token": is_new & (key == query - 1),
        "first token": (key == 0) & (query > 0),
        "duplicate token": same,
        "induction": after & (key != query),
    }


def _scores(
    run: Run, names: list[str], real: Array, places: dict[str, Array], given: Sequence[int] | None
) -> HeadScores:
    layers = tuple(number for number in range(len(names)) if given is None or number in given)
    if not layers:
        return HeadScores({}, {})
    names = [names[number] for number in layers]
    weights = np.stack([run[f"{name}.attend.weights"] for name in names])  # (L, B, H, T, S)
    allowed = run[f"{names[0]}.attend.mask"][:, 0]  # (B, T, S)
    # A head has a choice only where it sees more than one key; queries that are padding do not count.
    allowed = allowed & (allowed.sum(axis=-1, keepdims=True) > 1) & real[..., None]
    even = allowed / np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
    scores, chance = {}, {}
    for name, there in places.items():
        there = there & allowed
        queries = int(there.any(axis=-1).sum())
        if queries:
            scores[name] = np.einsum("lbhts,bts->lh", weights, there) / queries
            chance[name] = float(np.sum(even * there) / queries)
    if len(run.logits) > 1:
        scores["positional"], chance["positional"] = _positional(weights, even), 0.0
    return HeadScores(scores, chance, layers)


def _positional(weights: Array, even: Array) -> Array:
    """Return Σ (½ Σ |mean − even| − ½ Σ |weights − mean|) / Σ (1 − 1 / keys), at least 0: (L, H)."""
    chooses = even.any(axis=-1)[:, None, :]  # (B, 1, T)
    counts = np.maximum(chooses.sum(axis=0), 1)[..., None]
    mean = np.sum(weights * chooses[..., None], axis=1, keepdims=True) / counts  # padding does not count
    fixed = np.abs(mean - even[:, None]).sum(axis=-1) - np.abs(weights - mean).sum(axis=-1)  # (L, B, H, T)
    most = np.sum(1 - even.max(axis=-1), where=chooses[:, 0])
    return np.clip(np.sum(fixed / 2 * chooses, axis=(1, 3)) / max(most, 1e-12), 0, 1)
