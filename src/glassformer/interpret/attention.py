"""Attention of a run: the maps of its heads, followed through all layers, weighed by what it carries, and unscaled.

    maps = attention_maps(run)["decoder"]
    maps.weights[2, 1]           (T, S): which keys each query of head 1 of layer 2 looks at
    maps.queries, maps.keys      the names of the tokens

Attention rollout (Abnar and Zuidema 2020) takes every layer for an even mixture of what the stream was and of what
attention brought, averaged over heads, and follows the mixtures down to the tokens:

    R ← (1 − share) R + share · A R          from R = identity, for every attention A in turn

In the decoder of an encoder-decoder, cross-attention mixes in the encoder's rollout over the source. Rows over
all tokens together sum to one.

Value-weighted attention (Kobayashi et al. 2020) measures how much a head moves, not only where it looks. A weight on a
short vector is a way not to look at all:

    weight · ‖v w‖        v the value at the key, w the rows of the output matrix that belong to the head
"""

from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.settings import check_known
from ..core.show import html_of
from ..core.tree import flatten
from ..ops.attention import default_scale
from .run import Run
from .stream import ATTENTIONS, attentions, chosen_stack, example_tokens, stacks, stacks_of, sublayers


class AttentionMaps(NamedTuple):
    """The maps of all heads of one kind of attention, for one example without its padding.

    weights         (L, H, T, S): the weight that query t gives to key s; each row sums to one
    allowed         (T, S): True where the query may look at the key
    queries, keys   the names of the tokens that look, and of those that are looked at
    """

    weights: Array
    allowed: Array
    queries: list[str]
    keys: list[str]

    def _repr_html_(self) -> str:
        layers = {f"layer {number}": heads for number, heads in enumerate(self.weights)}
        return html_of(f"attention of {' '.join(self.queries)!r:.60}", layers)


def attention_maps(run: Run, example: int = 0) -> dict[str, AttentionMaps]:
    """Return the attention of one example of a run by kind: encoder, decoder and cross."""
    tokens = {stack: example_tokens(run, stack, example) for stack in stacks(run)}
    found = {}
    for kind, names in attentions(run).items():
        (rows, queries), (columns, keys) = (tokens[stack] for stack in stacks_of(kind))
        grid: Any = np.ix_(rows, columns)
        weights = np.stack([run[f"{name}.attend.weights"][example][(..., *grid)] for name in names])
        found[kind] = AttentionMaps(weights, run[f"{names[0]}.attend.mask"][example, 0][grid], queries, keys)
    return found


def full_and_causal(run: Run, kind: str = "decoder", example: int = 0) -> tuple[Array, Array]:
    """Return the weights (L, H, T, T) twice, from the same scores: every token visible, and only those before.

    full = softmax(scores)      causal = softmax(scores where key ≤ query)
    """
    known = attentions(run)
    check_known("this model has no attention of kind", kind, known)
    if kind == "cross":
        raise ConfigError("a causal mask has no meaning between two sequences", hint='use "encoder" or "decoder"')
    rows, _ = example_tokens(run, kind, example)
    grid: Any = (..., *np.ix_(rows, rows))
    scores = np.stack([run[f"{name}.attend.scores"][example][grid] for name in known[kind]])
    return ops.softmax(scores)[0], ops.softmax(scores, mask=ops.causal_mask(scores.shape[-1]))[0]


class Rollout(NamedTuple):
    """Where the vectors at the end of a stack come from.

    own      (B, T, T) of each token of the same sequence
    source   (B, T, S) of each token of the source; None but in the decoder of an encoder-decoder
    """

    own: Array
    source: Array | None

    def _repr_html_(self) -> str:
        found = {name: value for name, value in self._asdict().items() if value is not None}
        return html_of("where the vectors come from", found)


def attention_rollout(run: Run, stack: str | None = None, *, share: float = 0.5) -> Rollout:
    """Follow attention from the last block of a stack to its tokens; `share` is what attention is of the mixture."""
    if not 0 <= share <= 1:
        raise ConfigError(f"the share of attention is {share}", hint="use a number from 0 to 1")
    own: Array | None = None
    source: Array | None = None
    name = chosen_stack(run, stack)
    for one in sublayers(run, name, ATTENTIONS):
        weights = run[f"{one.name}.attend.weights"].mean(axis=1)
        if own is None:
            own = np.broadcast_to(np.eye(weights.shape[1]), (len(weights), *[weights.shape[1]] * 2))
        if one.kind == "attention":
            blind = weights.sum(axis=-1, keepdims=True) == 0  # a token that may see nothing keeps what it has
            weights = np.where(blind, np.eye(weights.shape[-1]), weights)
            own = (1 - share) * own + share * weights @ own
            source = None if source is None else (1 - share) * source + share * weights @ source
            continue
        read = weights @ attention_rollout(run, "encoder", share=share).own
        own = (1 - share) * own
        source = share * read if source is None else (1 - share) * source + share * read
    if own is None:
        raise ConfigError(f"the {name} has no attention", hint="look at its feed-forward layers")
    return Rollout(own, source)


def value_weighted_attention(run: Run, name: str) -> Array:
    """Return weight · ‖v w‖ (B, H, T, S) for an attention by its name, such as blocks.0.attention."""
    weights, v = run[f"{name}.attend.weights"], run[f"{name}.attend.v"]  # (B, H, T, S), (B, K, S, C)
    heads = weights.shape[1]
    v = np.repeat(v, heads // v.shape[1], axis=1)  # heads may share values
    w = flatten(run.params)[f"{name}.output.w"].reshape(heads, v.shape[-1], -1)  # (H, C, D)
    carried = np.linalg.norm(np.einsum("bhsc,hcd->bhsd", v, w), axis=-1)
    return weights * carried[:, :, None, :]


def products(run: Run, name: str) -> Array:
    """Return q kᵀ (B, H, T, S) of an attention by its name, such as blocks.0.attention: before scale, bias and mask.

    scores = q kᵀ · scale + bias      weights = softmax(scores)
    """
    return ops.attention_scores(run[f"{name}.attend.q"], run[f"{name}.attend.k"], scale=1.0)


def score_scale(run: Run, name: str) -> float:
    """Return the factor that an attention of a run has on its products."""
    q = run[f"{name}.attend.q"]
    call = run.calls[run.addresses[f"{name}.attend.weights"].number]
    while call.parent is not None and call.name != "attention":
        call = call.parent
    scale = call.settings.get("scale")
    return float(default_scale(q) if scale is None else scale)
