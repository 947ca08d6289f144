"""Fused layers: how one call is compared with the layer as written, and which kernels did the work."""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
from hypothesis import strategies as st

from compare import assert_same
from engines.cpu.kernel_cases import normal
from glassformer.dispatch import use_engine
from glassformer.engines.cpu import ENGINE
from glassformer.engines.cpu.cores import at_most
from glassformer.layers import FeedForward
from glassformer.ops import CAUSAL, Pattern, rotary_angles
from glassformer.tree import tree_map

LIMITS = {"float32": 1e-5, "float64": 1e-12}

SIZES = st.sampled_from([1, 2, 3, 5, 8])
BATCHES = st.sampled_from([0, 1, 3])
LENGTHS = st.sampled_from([1, 2, 3, 15, 16, 17, 33, 129])  # few keys, short and long sequences go different ways
SPANS = st.sampled_from([Pattern(), CAUSAL, Pattern(causal=True, window=5), Pattern(causal=True, prefix=3)])
PAIRINGS = st.sampled_from([None, "halves", "interleaved"])
SEEDS = st.integers(0, 2**32 - 1)


def in_kind(tree, kind):
    return tree_map(lambda x: x.astype(kind) if getattr(x, "dtype", np.dtype(int)).kind == "f" else x, tree)


@dataclass(frozen=True)
class Gentle(FeedForward):
    """A feed-forward layer of one's own."""

    def forward(self, params, x):
        y, saved = super().forward(params, x)
        return y / 2, saved


@contextmanager
def noted_calls():
    """Note which kernels of layers are asked inside a `with` block, and whether they did the work."""
    used = []

    def noted(name, right):
        def run(*arguments, **settings):
            result = right(*arguments, **settings)
            used.append((name, result is not NotImplemented))
            return result

        return run

    with ExitStack() as stack:
        for name, found in ENGINE.table.items():
            if "." in name:
                stack.enter_context(mock.patch.object(found, "function", noted(name, found.function)))
        stack.enter_context(use_engine("cpu"))
        yield used


def done(used):
    """The names of those that did the work."""
    return {name for name, worked in used if worked}


@pytest.fixture
def calls():
    with noted_calls() as used:
        yield used


def assert_one_call_equals_the_layer(name, layer, shape, channels, kind, seed, *, pairing, mask=None):
    """Compare result, record and gradients with the layer as written, and each one's record with the other's backward.

    The kernels of the class `name` must be what computes, unless there is nothing to compute.
    """
    rng = np.random.default_rng(seed)
    params = tree_map(lambda p: p + normal(rng, p.shape, kind) / 10, layer.init(1, dtype=kind))
    x, dy = normal(rng, (2, *shape), kind)
    given = {}
    if pairing is not None:
        given["rotation"] = tuple(t.astype(kind) for t in rotary_angles(np.arange(shape[-2]), channels))
    if mask is not None:
        given["mask"] = mask
    with noted_calls() as used, at_most(1):  # several cores would share out the heads of a long sequence
        y, saved = layer.forward(params, x, **given)
        grads = layer.backward(params, saved, dy)
    expected = [f"{name}.backward"] if mask is not None else [f"{name}.forward", f"{name}.backward"]
    assert done(used) & {f"{name}.forward", f"{name}.backward"} == (set(expected) if x.size else set())
    with use_engine("numpy"):
        want, want_saved = layer.forward(params, x, **given)
        want_grads = layer.backward(params, want_saved, dy)
        crossed = layer.backward(params, saved, dy)
    assert_same((y, saved), (want, want_saved), LIMITS[kind])
    for found in (grads, crossed, layer.backward(params, want_saved, dy)):
        assert_same(found, want_grads, LIMITS[kind])
