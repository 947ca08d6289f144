"""Attention forward and backward, as contenders do it: ours in every way, PyTorch's and JAX's."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.core.arrays import Array
from glassformer.core.dispatch import use_engine
from glassformer.ops import (
    CAUSAL,
    Pattern,
    attention,
    attention_backward,
    attention_tiled,
    attention_tiled_backward,
    causal_mask,
)

from .memory import peak, resident
from .worker import find

WINDOW = 256
SAMPLE = 16
"""So many numbers of each result tell whether two contenders computed the same."""

Pass = Callable[[Array], Sequence[Array]]
"""A backward pass: from dy to dq, dk and dv."""


def pattern_of(way: str, length: int) -> Pattern:
    """Return who sees whom: everything before, the last 256, or a stride of √T."""
    if way == "window":
        return Pattern(causal=True, window=WINDOW)
    return Pattern(causal=True, stride=math.isqrt(length)) if way == "strided" else CAUSAL


class Attention:
    """Causal attention of one example in float32 at several lengths, one after the other in every step."""

    def __init__(self, *, lengths: Sequence[int], heads: int, channels: int) -> None:
        self.forward: dict[int, list[float]] = {length: [] for length in lengths}
        self.backward: dict[int, list[float]] = {length: [] for length in lengths}
        self.inputs = {length: self.prepared(draw(length, heads, channels)) for length in lengths}
        self.sample: list[list[float]] = []

    def prepared(self, inputs: list[Array]) -> Any:
        """Return q, k, v and dy as the library wants them."""
        return inputs

    def attend(self, length: int, inputs: Any) -> tuple[Array, Pass]:
        """Return the result, and what computes the gradients."""
        raise NotImplementedError

    def step(self) -> float:
        """Attend at every length; return the seconds of all forward passes."""
        total = 0.0
        for length, inputs in self.inputs.items():
            began = time.perf_counter()
            y, backward = self.attend(length, inputs)
            middle = time.perf_counter()
            grads = backward(inputs[3])
            end = time.perf_counter()
            self.forward[length].append(middle - began)
            self.backward[length].append(end - middle)
            total += middle - began
            if not self.sample:
                self.sample = [[float(x) for x in some(np.asarray(array))] for array in (y, *grads)]
        return total

    def facts(self) -> dict[str, Any]:
        """Return the seconds of every pass so far by length, and some numbers of the first results."""
        passes = {"forward": self.forward, "backward": self.backward}
        return {"sample": self.sample, **{name: list(of.items()) for name, of in passes.items()}}


class Ours(Attention):
    """This library: dense, whole (dense, computing what the mask hides as well), tiled, window or strided."""

    def __init__(self, *, way: str, engine: str, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.way, self.engine = way, engine

    def attend(self, length: int, inputs: Any) -> tuple[Array, Pass]:
        q, k, v, _ = inputs
        pattern = pattern_of(self.way, length)
        with use_engine(self.engine):
            if self.way == "whole":
                y, saved = attention(q, k, v, mask=causal_mask(length))
                return y, lambda dy: attention_backward(dy, saved)[:3]
            if self.way == "dense":
                y, saved = attention(q, k, v, pattern=pattern)
                return y, lambda dy: attention_backward(dy, saved, pattern=pattern)[:3]
            y, tiled = attention_tiled(q, k, v, pattern=pattern)
            return y, lambda dy: attention_tiled_backward(dy, tiled, pattern=pattern)[:3]


class Torch(Attention):
    """PyTorch's scaled_dot_product_attention."""

    def prepared(self, inputs: list[Array]) -> Any:
        import torch

        return [torch.tensor(np.ascontiguousarray(x), requires_grad=number < 3) for number, x in enumerate(inputs)]

    def attend(self, length: int, inputs: Any) -> tuple[Array, Pass]:
        import torch

        y = torch.nn.functional.scaled_dot_product_attention(*inputs[:3], is_causal=True)

        def backward(dy: Any) -> list[Array]:
            y.backward(dy)
            grads = [x.grad for x in inputs[:3]]
            for x in inputs[:3]:
                x.grad = None
            return grads

        return y.detach(), backward


class Jax(Attention):
    """JAX's dot_product_attention, compiled, and its gradient by jax.vjp."""

    def prepared(self, inputs: list[Array]) -> Any:
        import jax

        def attended(*inputs: Array) -> Array:
            q, k, v = (x.swapaxes(1, 2) for x in inputs)
            return jax.nn.dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2)

        self.attended = jax.jit(attended)
        return [jax.numpy.asarray(np.ascontiguousarray(x)) for x in inputs]

    def attend(self, length: int, inputs: Any) -> tuple[Array, Pass]:
        import jax

        y, backward = jax.vjp(self.attended, *inputs[:3])
        return jax.block_until_ready(y), lambda dy: jax.block_until_ready(backward(dy))


def draw(length: int, heads: int, channels: int) -> list[Array]:
    """Return q, k, v and dy (1, H, T, C) that lie by position, as layers make them; the same for everyone."""
    rng = np.random.default_rng(length)
    return [rng.standard_normal((1, length, heads, channels), dtype=np.float32).swapaxes(1, 2) for _ in range(4)]


def some(x: Array) -> Array:
    """Return a few numbers of an array, from its beginning to its end."""
    return x.reshape(-1)[np.linspace(0, x.size - 1, SAMPLE).astype(int)]


def grown(*, build: str, settings: dict[str, Any], length: int) -> int:
    """Return by how many bytes a step at one length lets this process grow, inputs and all code loaded before."""
    make = find(build)
    make(**settings, lengths=[64]).step()
    stepper = make(**settings, lengths=[length])
    gc.collect()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # Linux: forget the peak so far
    before = resident()
    stepper.step()
    return max(0, peak() - before)
