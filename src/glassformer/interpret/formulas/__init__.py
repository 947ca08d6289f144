"""What one entry of a value, or of a gradient, is made of: a table with a row for every step of a run.

    linear      y[n,t,j] = Σ_k x[n,t,k] · w[k,j] + b[j]
    linear, x   dx[n,t,k] = Σ_j dy[n,t,j] · w[k,j]
    linear, w   dw[k,j] = Σ_n,t x[n,t,k] · dy[n,t,j]

A row is a pair, as an op is. It is given the step and the index of an entry, backward also the name that the array has
in the step, and returns the formula with its numbers. It reads the few rows and columns that the entry depends on, and
nothing else. A backward row says what this one reader sends back: an array with several gets the sum of all.

Letters: n the example, t the query, s the key, h the head, c the channel; i, j, k are features, f those inside a
feed-forward layer, v a token; g is a head of keys and values that several heads share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..formula import Formula, Index
from ..graph import Step
from . import activations, attention, matrices, norms, sums
from .operands import GradientReader, OperandReader


class Row(NamedTuple):
    """How a step makes an entry, and what it sends back for an entry that it read."""

    forward: Callable[[OperandReader, Step, Index], Formula]
    backward: Callable[[GradientReader, Step, str, Index], Formula] | None


TABLE: dict[str, Row] = {
    "linear": Row(matrices.linear, matrices.linear_backward),
    "embedding": Row(matrices.embedding, matrices.embedding_backward),
    "relative_bias": Row(matrices.relative_bias, matrices.relative_bias_backward),
    "layer_norm": Row(norms.layer_norm, norms.layer_norm_backward),
    "rms_norm": Row(norms.rms_norm, norms.rms_norm_backward),
    "mean": Row(norms.mean, None),  # the norm's own gradient holds what statistics send back
    "rstd": Row(norms.root, None),
    "rrms": Row(norms.root, None),
    "scores": Row(attention.scores, attention.scores_backward),
    "softmax": Row(attention.softmax, attention.softmax_backward),
    "mix": Row(attention.mix, attention.mix_backward),
    "rotary": Row(attention.rotary, attention.rotary_backward),
    "activation": Row(activations.activation, activations.activation_backward),
    "gated": Row(activations.gated, activations.gated_backward),
    "add": Row(sums.total, sums.total_backward),
    "split_heads": Row(sums.placed, sums.placed_backward),
    "merge_heads": Row(sums.placed, sums.placed_backward),
    "copy": Row(sums.copy, sums.copy_backward),
    "scale": Row(sums.scale, sums.scale_backward),
    "take_first": Row(sums.first, sums.first_backward),
    "prepend": Row(sums.prepend, sums.prepend_backward),
    "mean_pool": Row(sums.mean_pool, sums.mean_pool_backward),
    "dropout": Row(sums.dropout, sums.dropout_backward),
}

__all__ = ["TABLE", "GradientReader", "Row", "OperandReader"]
