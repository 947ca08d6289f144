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


class FormulaPair(NamedTuple):
    """How a step makes an entry, and what it sends back for an entry that it read."""

    forward: Callable[[OperandReader, Step, Index], Formula]
    backward: Callable[[GradientReader, Step, str, Index], Formula] | None


TABLE: dict[str, FormulaPair] = {
    "linear": FormulaPair(matrices.linear, matrices.linear_backward),
    "embedding": FormulaPair(matrices.embedding, matrices.embedding_backward),
    "relative_bias": FormulaPair(matrices.relative_bias, matrices.relative_bias_backward),
    "layer_norm": FormulaPair(norms.layer_norm, norms.layer_norm_backward),
    "rms_norm": FormulaPair(norms.rms_norm, norms.rms_norm_backward),
    "mean": FormulaPair(norms.mean, None),  # the norm's own gradient holds what statistics send back
    "rstd": FormulaPair(norms.root, None),
    "rrms": FormulaPair(norms.root, None),
    "scores": FormulaPair(attention.scores, attention.scores_backward),
    "softmax": FormulaPair(attention.softmax, attention.softmax_backward),
    "mix": FormulaPair(attention.mix, attention.mix_backward),
    "rotary": FormulaPair(attention.rotary, attention.rotary_backward),
    "activation": FormulaPair(activations.activation, activations.activation_backward),
    "gated": FormulaPair(activations.gated, activations.gated_backward),
    "add": FormulaPair(sums.total, sums.total_backward),
    "split_heads": FormulaPair(sums.placed, sums.placed_backward),
    "merge_heads": FormulaPair(sums.placed, sums.placed_backward),
    "copy": FormulaPair(sums.copy, sums.copy_backward),
    "scale": FormulaPair(sums.scale, sums.scale_backward),
    "take_first": FormulaPair(sums.first, sums.first_backward),
    "prepend": FormulaPair(sums.prepend, sums.prepend_backward),
    "mean_pool": FormulaPair(sums.mean_pool, sums.mean_pool_backward),
    "dropout": FormulaPair(sums.dropout, sums.dropout_backward),
}

__all__ = ["TABLE", "GradientReader", "FormulaPair", "OperandReader"]
