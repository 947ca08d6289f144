"""The mathematics: every op as a pair of pure functions.

    y, saved = op(x, …, *, settings)
    grads = op_backward(dy, saved, *, settings)

`saved` is what the backward pass needs; gradients come in the order of the array arguments. An op asks its
arrays for their library (`namespace(x)`), and treats every axis before the ones it speaks of as one more batch axis.

dx is always the gradient of one number, the loss, for x: dx[i] = ∂loss/∂x[i], in the shape of x. A backward is handed
dy and applies the chain rule to its op alone, dx[i] = Σ_j dy[j] · ∂y[j]/∂x[i]. It never makes the matrix of all
∂y[j]/∂x[i], which has as many rows as y has numbers and as many columns as x: every op has a shorter way, and that way
is what its file is about. Three rules lead to nearly all of them:

    y = a + b       da = dy, db = dy: a sum hands its gradient on to each of its terms
    y = a · b       da = dy · b, db = dy · a: a factor gets dy times the other factor
    x used twice    its gradients add up; hence what was broadcast is summed, and what was looked up is scattered

Letters of shapes: B batch, T queries, S keys, D width, H heads, K heads of keys and values, C channels of a head,
F width inside a feed-forward layer, V vocabulary. To read all files, begin with linear, activation, norm and softmax,
each a few lines of calculus; attention is made of these, and loss is softmax once more; the rest in any order.
"""

from ..core.sources import snapshot
from .activation import (
    ACTIVATIONS,
    activation_pair,
    gated,
    gated_backward,
    gelu,
    gelu_backward,
    gelu_tanh,
    gelu_tanh_backward,
    register_activation,
    register_op,
    relu,
    relu_backward,
    silu,
    silu_backward,
)
from .arrange import (
    add,
    add_backward,
    astype,
    copy,
    copy_backward,
    join_ring,
    merge_heads,
    merge_heads_backward,
    prepend,
    prepend_backward,
    prepend_true,
    scale,
    scale_backward,
    split_heads,
    split_heads_backward,
    sum_to,
    take_first,
    take_first_backward,
    take_last,
    zeros_like,
)
from .attention import attention, attention_backward, attention_scores
from .attention_tiled import attention_tiled, attention_tiled_backward
from .dropout import dropout, dropout_backward, fold_key, keep_mask, new_key
from .embedding import embedding, embedding_backward, mean_pool, mean_pool_backward
from .linear import linear, linear_backward, quantized_product
from .loss import IGNORE, cross_entropy, cross_entropy_backward
from .mask import (
    CAUSAL,
    FULL,
    Pattern,
    both_masks,
    causal_mask,
    mask_of_keys,
    padding_mask,
    pattern_mask,
    pattern_tile,
)
from .norm import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from .position import (
    alibi_bias,
    alibi_slopes,
    next_positions,
    positions,
    relative_bias,
    relative_bias_backward,
    relative_buckets,
    ring_positions,
    rotary,
    rotary_angles,
    rotary_backward,
    sinusoidal,
    unpadded_positions,
)
from .softmax import log_softmax, log_softmax_backward, softmax, softmax_backward
from .update import adam_update, lion_update, sum_of_squares

__all__ = [
    "ACTIVATIONS", "CAUSAL", "FULL", "IGNORE", "Pattern", "activation_pair", "adam_update", "add", "add_backward",
    "alibi_bias", "alibi_slopes", "astype", "attention", "attention_backward", "attention_scores",
    "attention_tiled", "attention_tiled_backward", "both_masks", "causal_mask", "copy", "copy_backward",
    "cross_entropy", "cross_entropy_backward", "dropout", "dropout_backward", "embedding", "embedding_backward",
    "fold_key", "gated", "gated_backward", "gelu", "gelu_backward", "gelu_tanh", "gelu_tanh_backward", "join_ring",
    "keep_mask", "layer_norm", "layer_norm_backward", "linear", "linear_backward", "lion_update", "log_softmax",
    "log_softmax_backward", "mask_of_keys", "mean_pool", "mean_pool_backward", "merge_heads",
    "merge_heads_backward", "new_key", "next_positions", "padding_mask", "pattern_mask", "pattern_tile",
    "positions", "prepend", "prepend_backward", "prepend_true", "quantized_product", "register_activation",
    "register_op", "relative_bias", "relative_bias_backward", "relative_buckets", "relu", "relu_backward",
    "ring_positions", "rms_norm", "rms_norm_backward", "rotary", "rotary_angles", "rotary_backward", "scale",
    "scale_backward", "silu", "silu_backward", "sinusoidal", "softmax", "softmax_backward", "split_heads",
    "split_heads_backward", "sum_of_squares", "sum_to", "take_first", "take_first_backward", "take_last",
    "unpadded_positions", "zeros_like",
]  # fmt: skip
__dir__ = __all__.copy

snapshot("glassformer.core.arrays", "glassformer.core.quantized", __name__)
