"""Products with matrices in blocks, and with floats that are read once: those of the ops, to float32's rounding."""

import os
import platform
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.cpu.kernel_cases import KERNELS
from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.core.quantized import BLOCK, FORMS, quantize
from glassformer.core.threads import at_most
from glassformer.engines.cpu import cores
from glassformer.engines.cpu.cores import WORTHWHILE, on_all_cores
from glassformer.engines.cpu.linear import MOST_ROWS, MOST_ROWS_OF, described, multiply, multiply_few, workspace
from glassformer.engines.cpu.quantized_rows import CODES, F32, unpack

LIMIT = 1e-5
"""How far a product may be from the op's, by the largest number of the result."""
SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 96, 100])
ROWS = st.sampled_from([1, 2, 3, 4, 16, 17, MOST_ROWS, MOST_ROWS + 1])


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def assert_equals_op(x, w):
    with use_engine("numpy"):
        expected = ops.quantized_product(x, w)
    before = x.copy()
    found = KERNELS["quantized_product"](x, w)
    assert found is not NotImplemented
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert np.abs(found - expected).max(initial=0) <= LIMIT * np.abs(expected).max(initial=0)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("form", FORMS)
@given(outputs=SIZES, inputs=SIZES, rows=ROWS, seed=st.integers(0, 2**32 - 1))
def test_the_kernel_quantized_product_equals_its_op(form, outputs, inputs, rows, seed):
    rng = np.random.default_rng(seed)
    assert_equals_op(normal(rng, rows, inputs), quantize(normal(rng, outputs, inputs), form).T)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(768,), (1, 1, 768), (2, 0, 768), (0, 768), (3, 5, 768)])
def test_so_it_does_with_any_axes_before(rng, form, shape):
    assert_equals_op(normal(rng, *shape), quantize(normal(rng, 50, 768), form).T)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("outlier", [1e-30, 1e3, 1e6])
def test_one_large_number_does_not_drown_the_others(rng, form, outlier):
    x = normal(rng, 1, 256)
    x[0, 7] = outlier
    assert_equals_op(x, quantize(normal(rng, 64, 256), form).T)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_the_largest_numbers_do_not_overflow(form, sign):
    assert_equals_op(np.full((1, 320), sign, np.float32), quantize(np.full((8, 320), -0.5, np.float32), form).T)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_come_out_as_such(rng, form, value):
    x = normal(rng, 2, 96)
    x[1, 40] = value
    y = multiply_few(x, quantize(normal(rng, 12, 96), form).T)
    assert np.isfinite(y[0]).all()
    assert not np.isfinite(y[1]).any()


def test_damaged_scales_come_out_as_such(rng):
    w = quantize(normal(rng, 8, 64), "Q8_0")
    w.blocks[0, 1, :2] = np.array([np.nan], np.float16).view(np.uint8)  # of row 0
    y = multiply_few(normal(rng, 1, 64), w.T)
    assert np.isnan(y[0, 0])
    assert np.isfinite(y[0, 1:]).all()


@pytest.mark.parametrize("form", ["Q8_0", "Q4_0", "Q4_1"])
@given(rows=SIZES, columns=SIZES)
def test_blocks_are_turned_into_their_values(form, rows, columns):
    w = quantize(normal(np.random.default_rng(rows), rows, columns), form)
    found = np.empty((4 * len(w.blocks), BLOCK * w.blocks.shape[1]), np.float32)
    unpack(CODES[form], w.address, w.blocks.shape[1], found)
    np.testing.assert_allclose(found[:rows, :columns], w.dequantize(), rtol=0, atol=1e-6)


def test_other_processors_get_the_same_products(rng, tmp_path):
    # Neither has instructions for products of bytes.
    older = "haswell" if platform.machine().lower() in ("x86_64", "amd64") else "cortex-a72"
    x, table = normal(rng, 2, 100), normal(rng, 14, 100)
    np.savez(tmp_path / "given.npz", x=x, table=table)
    program = """
import numpy as np
from glassformer.engines.cpu.linear import multiply_few
from glassformer.core.quantized import FORMS, quantize
given = np.load("given.npz")
np.savez("found.npz", **{form: multiply_few(given["x"], quantize(given["table"], form).T) for form in FORMS})
"""
    variables = {**os.environ, "NUMBA_CPU_NAME": older}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=variables, check=True)
    found = np.load(tmp_path / "found.npz")
    for form in FORMS:
        expected = x @ quantize(table, form).dequantize().T
        assert np.abs(found[form] - expected).max() <= LIMIT * np.abs(expected).max()


@pytest.mark.parametrize("form", FORMS)
@given(sign=st.sampled_from([1, -1]), low=st.booleans())
def test_the_largest_bytes_and_digits_do_not_overflow(form, sign, low):
    x = np.full((1, 320), sign * (1 - 2.0**-24 if low else 1), np.float32)
    w = quantize(np.where(np.arange(320) % 32 < 31, 1, -1)[None].repeat(8, 0).astype(np.float32), form)
    assert_equals_op(x, w.T)
    assert_equals_op(-x, w.T)


@pytest.mark.parametrize("order", ["C", "F"])
@given(outputs=SIZES, inputs=SIZES, rows=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_floats_in_either_order_equal_a_matrix_product(order, outputs, inputs, rows, seed):
    rng = np.random.default_rng(seed)
    w, x = np.asarray(normal(rng, inputs, outputs), order=order), normal(rng, rows, inputs)
    found, expected = multiply_few(x, w), x @ w
    if found is not NotImplemented:
        assert found.shape == expected.shape
        assert np.abs(found - expected).max(initial=0) <= LIMIT * np.abs(expected).max(initial=0)
    assert (found is NotImplemented) <= (rows > 1)


@pytest.mark.parametrize("inputs", [16, 48, 768])
def test_four_outputs_at_once_are_the_same_to_the_bit_as_each_alone(rng, inputs):
    x, w = normal(rng, 3, inputs), np.asfortranarray(normal(rng, inputs, 11))
    alone = np.concatenate([multiply_few(x, np.asfortranarray(w[:, [o]])) for o in range(11)], axis=1)
    np.testing.assert_array_equal(multiply_few(x, w), alone)


@pytest.mark.parametrize("inputs", [16, 40, 768])
def test_many_rows_at_once_are_the_same_to_the_bit_as_each_alone(rng, monkeypatch, inputs):
    monkeypatch.setitem(MOST_ROWS_OF, F32, 7)  # with more than some, BLAS is faster
    x, w = normal(rng, 7, inputs), np.asfortranarray(normal(rng, inputs, 11))
    np.testing.assert_array_equal(multiply_few(x, w), np.concatenate([multiply_few(row[None], w) for row in x]))


@pytest.mark.parametrize("form", [*FORMS, "C", "F"])
def test_rows_that_do_not_lie_side_by_side_are_put_so(rng, form):
    w = quantize(normal(rng, 12, 33), form).T if form in FORMS else np.asarray(normal(rng, 33, 12), order=form)
    values = w.dequantize() if form in FORMS else w
    for x in (normal(rng, 2, 66)[:1, ::2], normal(rng, 33, 1).T, normal(rng, 2, 33)[::2]):
        found, expected = multiply_few(x, w), x @ values
        assert np.abs(found - expected).max() <= LIMIT * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_linear_takes_this_way_for_large_matrices(rng, dtype, order, rows):
    w = np.asarray(rng.standard_normal((300, 400)).astype(dtype), order=order)
    x, b = rng.standard_normal((rows, 1, 300)).astype(dtype), rng.standard_normal(400).astype(dtype)
    y, saved = ops.linear(x, w, b)
    expected = x @ w + b
    assert (y.shape, y.dtype) == (expected.shape, dtype)
    assert saved.w is w
    np.testing.assert_allclose(y, expected, rtol=0, atol={4: 1e-5, 8: 1e-12}[y.itemsize] * np.abs(expected).max())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_several_matrices_are_multiplied_at_once_on_any_number_of_cores(rng, number):
    x = normal(rng, 2, 96)
    matrices = [quantize(normal(rng, rows, 96), form).T for rows, form in ((5, "Q8_0"), (8, "Q4_1"), (6, "F16"))]
    matrices.append(np.asfortranarray(normal(rng, 96, 7)))
    tables = np.array([described(w) for w in matrices])
    y = np.empty(2 * int(tables[:, 3].sum()), np.float32)
    with at_most(number):
        on_all_cores(multiply, x, tables, y, workspace(2, 96), size=WORTHWHILE)
    start = 0
    for w, room in zip(matrices, tables[:, 3], strict=True):
        expected = x @ w
        found = y[start : start + 2 * room].reshape(2, room)[:, : w.shape[1]]
        assert np.abs(found - expected).max() <= LIMIT * np.abs(expected).max()
        start += 2 * room


def test_results_do_not_depend_on_who_else_computes(rng):
    x, w = normal(rng, 1, 512), quantize(normal(rng, 300, 512), "Q4_1").T
    expected = multiply_few(x, w)
    found = []
    threads = [threading.Thread(target=lambda: found.append(multiply_few(x, w))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found += cores.each([lambda: multiply_few(x, w)] * 2)
    assert len(found) == 6
    for y in found:
        np.testing.assert_array_equal(y, expected)
