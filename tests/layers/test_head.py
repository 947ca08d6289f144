"""From vectors to logits over the vocabulary."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.core.tree import flatten
from glassformer.layers import LayerNorm, TokenHead
from glassformer.ops import gelu

T, D, V = 4, 6, 5


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, T, D))


@pytest.fixture
def table(rng):
    return rng.standard_normal((V, D))


def test_a_tied_head_compares_with_every_row_of_the_embedding_and_a_free_one_has_its_own_matrix(x, table):
    head = TokenHead(D, V)
    assert head.specs() == {}
    logits, _ = head.forward({}, x, table)
    assert logits.shape == (2, T, V)
    assert_close(logits[1, 2, 3], x[1, 2] @ table[3])

    head = TokenHead(D, V, tied=False, bias=True)
    params = head.init(0, np.float64)
    assert {name: p.shape for name, p in params.items()} == {"w": (D, V), "b": (V,)}
    assert_close(head.forward(params, x)[0], x @ params["w"] + params["b"])


def test_a_scale_and_a_transform_stand_before_the_bias(x, table):
    head = TokenHead(D, V, bias=True, scale=0.25)
    bias = np.arange(V, dtype=float)
    assert_close(head.forward({"b": bias}, x, table)[0], 0.25 * x @ table.T + bias)

    head = TokenHead(D, V, transform=LayerNorm(D))
    params = head.init(0, np.float64)
    assert set(flatten(params)) == {f"transform.{name}" for name in ("linear.w", "linear.b", "norm.gamma", "norm.beta")}
    inner = params["transform"]
    bent, _ = gelu(x @ inner["linear"]["w"] + inner["linear"]["b"])
    expected, _ = head.transform.forward(inner["norm"], bent)
    assert_close(head.forward(params, x, table)[0], expected @ table.T)


def test_only_a_tied_head_has_a_gradient_for_the_embedding_and_first_logits_are_nearly_even(x, table):
    dy = np.ones((2, T, V))
    tied, free = TokenHead(D, V), TokenHead(D, V, tied=False)
    read, grads = tied.backward({}, tied.forward({}, x, table)[1], dy, table)
    assert grads == {}
    assert_close(read.table, np.broadcast_to(x.sum(axis=(0, 1)), (V, D)))
    params = free.init(0, np.float64)
    read, grads = free.backward(params, free.forward(params, x)[1], dy)
    assert read.table is None
    assert grads.keys() == {"w"}

    head = TokenHead(D, V, tied=False)
    logits, _ = head.forward(head.init(0, np.float64), x)
    assert np.abs(logits).max() < 0.5
