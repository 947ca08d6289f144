"""The mathematics: every op as a pair of pure functions.

    y, saved = op(x, …, *, settings)
    grads = op_backward(dy, saved, *, settings)

`saved` is what the backward pass needs; gradients come in the order of the array arguments. Ops run on NumPy and on JAX
arrays alike, and treat every axis before the ones they speak of as one more batch axis.
"""

from .activation import (
    ACTIVATIONS,
    activation_pair,
    gated,
    gated_backward,
    gelu,
    gelu_backward,
    gelu_tanh,
    gelu_tanh_backward,
    relu,
    relu_backward,
    silu,
    silu_backward,
)
from .attention import attention, attention_backward, attention_scores
from .attention_tiled import attention_tiled, attention_tiled_backward
from .dropout import dropout, dropout_backward, fold_key, keep_mask, new_key
from .embedding import embedding, embedding_backward, mean_pool, mean_pool_backward
from .linear import linear, linear_backward
from .loss import IGNORE, cross_entropy, cross_entropy_backward
from .mask import CAUSAL, FULL, Pattern, causal_mask, padding_mask, prefix_mask, strided_mask, window_mask
from .norm import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from .position import (
    alibi_bias,
    alibi_slopes,
    relative_bias,
    relative_bias_backward,
    relative_buckets,
    rotary,
    rotary_angles,
    rotary_backward,
    sinusoidal,
)
from .quantized import quantized_product
from .softmax import log_softmax, log_softmax_backward, softmax, softmax_backward
from .update import adam_update, lion_update, sum_of_squares

__all__ = [
    "ACTIVATIONS",
    "CAUSAL",
    "FULL",
    "IGNORE",
    "Pattern",
    "activation_pair",
    "adam_update",
    "alibi_bias",
    "alibi_slopes",
    "attention",
    "attention_backward",
    "attention_scores",
    "attention_tiled",
    "attention_tiled_backward",
    "causal_mask",
    "cross_entropy",
    "cross_entropy_backward",
    "dropout",
    "dropout_backward",
    "embedding",
    "embedding_backward",
    "fold_key",
    "gated",
    "gated_backward",
    "gelu",
    "gelu_backward",
    "gelu_tanh",
    "gelu_tanh_backward",
    "keep_mask",
    "layer_norm",
    "layer_norm_backward",
    "linear",
    "linear_backward",
    "lion_update",
    "log_softmax",
    "log_softmax_backward",
    "mean_pool",
    "mean_pool_backward",
    "new_key",
    "padding_mask",
    "prefix_mask",
    "quantized_product",
    "relative_bias",
    "relative_bias_backward",
    "relative_buckets",
    "relu",
    "relu_backward",
    "rms_norm",
    "rms_norm_backward",
    "rotary",
    "rotary_angles",
    "rotary_backward",
    "silu",
    "silu_backward",
    "sinusoidal",
    "softmax",
    "softmax_backward",
    "strided_mask",
    "sum_of_squares",
    "window_mask",
]
