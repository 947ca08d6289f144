"""Attention followed through all layers, weighed by what it carries, and before it is scaled.

Attention rollout (Abnar and Zuidema 2020) takes every layer for an even mixture of what the stream was and of what
attention brought, averaged over heads, and follows the mixtures down to the tokens:

    R ← (1 − share) R + share · A R          from R = identity, for every attention A in turn

In the decoder of an encoder-decoder, cross-attention mixes in the encoder's rollout over the source. Rows over
all tokens together sum to one.

Value-weighted attention (Kobayashi et al. 2020) measures how much a head moves, not only where it looks. A weight on a
short vector is a way not to look at all:

    weight · ‖v w‖        v the value at the key, w the rows of the output matrix that belong to the head
"""

from typing import NamedTuple

import numpy as np

from .. import ops
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.show import html_of
from ..core.tree import flatten
from ..ops.attention import default_scale
from .run import Run
from .stream import ATTENTIONS, chosen_stack, sublayers


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
