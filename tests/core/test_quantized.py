"""Matrices in blocks: byte for byte those of GGUF's own library, and never an array by accident."""

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from gguf.quants import quantize as library_quantize
from hypothesis import given
from hypothesis import strategies as st

from glassformer.core.errors import ConfigError, DTypeError, ShapeError
from glassformer.core.quantized import BLOCK, FORMS, Quantized, quantize, read_rows, row_size, write_rows
from glassformer.core.tree import count, flatten, tree_map

SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 31, 32, 33, 64, 70])
ERRORS = {"F16": 2**-12, "Q8_0": 1 / 254, "Q4_0": 1 / 8, "Q4_1": 1 / 15}
"""What rounding may change, by the largest number of a block: half a step; all of one where q − 8 would be 8."""


def normal(rows, columns, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
def test_bytes_and_values_are_those_of_the_library(form):
    x = normal(40, 96)
    x[3], x[4, :BLOCK], x[5] = 0, 1.5, -x[5]
    theirs = library_quantize(x, gguf.GGMLQuantizationType[form])
    np.testing.assert_array_equal(write_rows(form, x), theirs.view(np.uint8).reshape(40, -1))
    np.testing.assert_array_equal(quantize(x, form).dequantize(), dequantize(theirs, gguf.GGMLQuantizationType[form]))
    assert row_size(form, 96) == theirs.view(np.uint8).reshape(40, -1).shape[1]


@pytest.mark.parametrize("form", FORMS)
@given(rows=SIZES, columns=SIZES, seed=st.integers(0, 99))
def test_rounding_changes_no_more_than_it_must(form, rows, columns, seed):
    x = normal(rows, columns, seed)
    found = quantize(x, form).dequantize()
    assert (found.shape, found.dtype) == (x.shape, np.float32)
    # Scales are themselves rounded, to float16's 11 bits.
    assert np.abs(found - x).max(initial=0) <= (ERRORS[form] + 2**-11) * np.abs(x).max(initial=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-38, 1e-30, 1e-8])
def test_numbers_that_hardly_differ_from_zero_become_zero_or_stay_small(form, size):
    found = quantize(np.array([[size, -size, 0.0] * 11], np.float32), form).dequantize()
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 2 * max(size, 2**-24)  # float16's smallest


@pytest.mark.parametrize("form", FORMS)
@given(rows=SIZES, columns=SIZES)
def test_stored_rows_are_kept_whatever_their_number(form, rows, columns):
    stored = write_rows(form, normal(rows, columns))
    kept = Quantized.of_rows(form, stored, columns)
    np.testing.assert_array_equal(kept.dequantize(), read_rows(form, stored, columns))
    assert kept.shape == (rows, columns)
    assert kept.nbytes >= stored.nbytes


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_looked_up_as_in_an_array(form):
    table = quantize(normal(11, 40), form)
    array = table.dequantize()
    for ids in (3, np.array([[0, 10, 4], [4, 7, -1]]), np.zeros((2, 0), dtype=int), np.array(5)):
        np.testing.assert_array_equal(table[ids], array[ids])
    with pytest.raises(IndexError):
        table[np.array([11])]


def test_a_transpose_lies_on_the_same_blocks_and_large_matrices_are_converted_in_parts():
    table = quantize(normal(6, 32), "Q8_0")
    assert table.T.shape == (32, 6)
    assert table.T.blocks is table.T.T.blocks is table.blocks
    np.testing.assert_array_equal(table.T.dequantize(), table.dequantize().T)
    with pytest.raises(DTypeError, match="columns of a matrix in blocks cannot be looked up"):
        table.T[np.array([1])]

    x = normal(5000, 33)
    kept = quantize(x, "Q8_0")
    np.testing.assert_array_equal(kept.dequantize()[4090:4100], quantize(x[4090:4100], "Q8_0").dequantize())


def test_it_is_a_leaf_among_parameters():
    params = {"linear": {"w": quantize(normal(8, 32), "Q4_1").T, "b": np.zeros(8, dtype=np.float32)}}
    assert tree_map(lambda leaf: leaf, params)["linear"]["w"] is params["linear"]["w"]
    assert list(flatten(params)) == ["linear.w", "linear.b"]
    assert count(params) == 8 * 32 + 8
    assert repr(params["linear"]["w"]) == "Quantized(Q4_1, 32 × 8)"


@pytest.mark.parametrize(
    "use",
    [np.asarray, list, lambda w: np.stack([w, w]), lambda w: np.zeros((4, 32)) + w, lambda w: w * 2],
    ids=range(5),
)
def test_nothing_makes_an_array_of_it_by_accident(use):
    with pytest.raises((DTypeError, TypeError)):
        use(quantize(normal(4, 32), "Q8_0"))
    with pytest.raises(DTypeError, match="held as 8-bit blocks, from which a model can write but not learn"):
        np.asarray(quantize(normal(4, 32), "Q8_0"))


def test_products_with_it_are_products_with_its_values_and_wrong_shapes_are_named():
    w, x = quantize(normal(6, 40), "Q4_0").T, normal(3, 40, seed=1)
    np.testing.assert_array_equal(x @ w, x @ w.dequantize())

    with pytest.raises(ConfigError, match="no blocks of the kind 'Q8_1'"):
        quantize(normal(2, 2), "Q8_1")
    with pytest.raises(ShapeError, match="only matrices"):
        quantize(np.zeros(3, dtype=np.float32), "Q8_0")
    with pytest.raises(ShapeError, match="cannot hold rows of 64 numbers"):
        Quantized.of_rows("Q8_0", np.zeros((2, 34), dtype=np.uint8), 64)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_weights_that_float16_cannot_hold_are_refused(form, value):
    x = normal(2, 32)
    x[1, 3] = value
    with pytest.raises(DTypeError, match="cannot be stored"):
        quantize(x, form)
