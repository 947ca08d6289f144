"""The affine map, by arrays and by matrices in blocks."""

import numpy as np
import pytest

from compare import assert_close, assert_equals_torch
from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.core.errors import DTypeError, ShapeError
from glassformer.core.quantized import FORMS, quantize
from glassformer.ops import linear, linear_backward


@pytest.fixture(params=["numpy", "cpu"])
def engine(request):
    with use_engine(request.param):
        yield request.param


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (70,), (0,)])
def test_linear_equals_linear_with_the_values(rng, engine, form, lead):
    w = quantize(rng.standard_normal((6, 40)).astype(np.float32), form).T
    x, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((*lead, 40), (6,)))
    for bias in (None, b):
        y, saved = ops.linear(x, w, bias)
        expected, _ = ops.linear(x, w.dequantize(), bias)
        assert saved.w is w
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5 * np.abs(expected).max(initial=1))


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_types_of_x_are_multiplied_by_the_values(rng, engine, dtype):
    w = quantize(rng.standard_normal((6, 40)).astype(np.float32), "Q8_0").T
    x = rng.standard_normal((2, 40)).astype(dtype)
    np.testing.assert_array_equal(ops.quantized_product(x, w), (x @ w.dequantize()).astype(dtype))


def test_jax_multiplies_by_the_values(rng, jax):
    w = quantize(rng.standard_normal((6, 40)).astype(np.float32), "Q8_0").T
    x = rng.standard_normal((2, 40)).astype(np.float32)
    y, _ = ops.linear(jax.numpy.asarray(x), w)
    np.testing.assert_allclose(np.asarray(y), x @ w.dequantize(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_embedding_looks_rows_up(rng, engine, form):
    table, ids = quantize(rng.standard_normal((9, 40)).astype(np.float32), form), np.array([[3, 8], [0, 3]])
    y, _ = ops.embedding(table, ids, scale=2.0)
    np.testing.assert_array_equal(y, 2 * table.dequantize()[ids])


def test_shapes_that_do_not_fit_and_gradients_are_refused(rng, engine):
    w = quantize(rng.standard_normal((6, 40)).astype(np.float32), "Q8_0").T
    with pytest.raises(ShapeError, match=r"expected \(\.\.\., 40\)"):
        ops.linear(np.zeros((2, 39), dtype=np.float32), w)
    with pytest.raises(ShapeError, match="the weights have shapes"):
        ops.linear(np.zeros((2, 40), dtype=np.float32), w, np.zeros(5, dtype=np.float32))

    table = quantize(rng.standard_normal((6, 40)).astype(np.float32), "Q4_1")
    y, saved = ops.linear(rng.standard_normal((2, 40)).astype(np.float32), table.T)
    with pytest.raises(DTypeError, match=r"4-bit blocks, .* write but not learn"):
        ops.linear_backward(y, saved)
    y, saved = ops.embedding(table, np.array([1, 2]))
    with pytest.raises(DTypeError, match='load the model with weights="float32"'):
        ops.embedding_backward(y, saved)


PAIR = (linear, linear_backward)


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (2, 2, 5, 3), (0, 3)])
def test_linear_equals_pytorch(torch, rng, shape):
    arrays = rng.standard_normal(shape), rng.standard_normal((3, 4)), rng.standard_normal(4)
    assert_equals_torch(PAIR, lambda x, w, b: torch.nn.functional.linear(x, w.T, b), arrays)


def test_without_a_bias_it_has_no_gradient_and_leading_axes_add_up(torch, rng):
    arrays = rng.standard_normal((5, 3)), rng.standard_normal((3, 4))
    assert_equals_torch(PAIR, lambda x, w: x @ w, arrays)
    y, saved = linear(*arrays)
    assert linear_backward(y, saved)[2] is None
    x, w, dy = rng.standard_normal((2, 3, 4)), rng.standard_normal((4, 5)), rng.standard_normal((2, 3, 5))
    _, dw, db = linear_backward(dy, linear(x, w, np.zeros(5))[1])
    assert_close(dw, np.einsum("bti,bto->io", x, dy))
    assert_close(db, np.einsum("bto->o", dy))
