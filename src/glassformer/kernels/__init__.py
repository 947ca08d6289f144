"""Compiled kernels of the engine `cpu`: each stands for the op of its name, with the same arguments and results.

A kernel answers NotImplemented where it does not apply; see `engine.accelerated`.
"""

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from .activation import (
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
from .attention import (
    attention,
    attention_backward,
    self_attention,
    self_attention_backward,
    whole_block,
    whole_block_backward,
)
from .attention_tiled import attention_tiled, attention_tiled_backward
from .decode import read_token
from .dropout import dropout, dropout_backward, fold_key
from .embedding import embedding, embedding_backward
from .linear import linear, linear_backward
from .loss import cross_entropy, cross_entropy_backward
from .memory import keep_freed_memory
from .norm import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from .position import rotary, rotary_backward
from .quantized import quantized_product
from .softmax import soften, softmax, softmax_backward
from .together import adam_together, squares_together
from .update import adam_update, lion_update, sum_of_squares

KERNELS: dict[str, Callable[..., Any]] = {
    kernel.__name__: kernel
    for kernel in (
        adam_update,
        attention,
        attention_backward,
        attention_tiled,
        attention_tiled_backward,
        cross_entropy,
        cross_entropy_backward,
        dropout,
        dropout_backward,
        embedding,
        embedding_backward,
        fold_key,
        gated,
        gated_backward,
        gelu,
        gelu_backward,
        gelu_tanh,
        gelu_tanh_backward,
        layer_norm,
        layer_norm_backward,
        linear,
        linear_backward,
        lion_update,
        quantized_product,
        relu,
        relu_backward,
        rms_norm,
        rms_norm_backward,
        rotary,
        rotary_backward,
        silu,
        silu_backward,
        softmax,
        softmax_backward,
        sum_of_squares,
    )
}

RUNS: dict[str, Callable[..., Any]] = {
    kernel.__name__: kernel
    for kernel in (
        adam_together,
        read_token,
        self_attention,
        self_attention_backward,
        squares_together,
        whole_block,
        whole_block_backward,
    )
}
"""Kernels that stand for a run of ops; who uses one says what it stands for."""


def load() -> dict[str, Callable[..., Any]]:
    """Return the kernels by name, ready for use; say so when they must be compiled first."""
    keep_freed_memory()
    _announce()
    return {**KERNELS, **RUNS}


@cache
def _announce() -> None:
    """Say, once, that kernels are still to be compiled."""
    if not any(Path(soften._cache.cache_path).glob("*.nbi")):
        logging.getLogger("glassformer").warning(
            "compiling kernels for this machine: each takes about a second when first used, once"
        )


__all__ = ["KERNELS", "RUNS", "load"]
