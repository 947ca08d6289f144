"""What every op asks of its arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close
from glassformer.core.arrays import (
    cast,
    check_ids,
    check_length,
    check_width,
    is_integer,
    is_traced,
    namespace,
    unbroadcast,
    widen,
)
from glassformer.core.errors import DTypeError, LengthError, ShapeError


def test_arrays_name_their_library(jax):
    assert namespace(np.ones(1)) is np
    assert namespace(jax.numpy.ones(1)) is jax.numpy


@pytest.mark.parametrize("thing", [[1, 2], 3.0, None, "text"])
def test_what_is_no_array_is_refused(thing):
    with pytest.raises(DTypeError, match=f"expected an array, got {type(thing).__name__}(?s:.*)hint: wrap it first"):
        namespace(thing)


def test_only_half_precision_is_widened_and_a_cast_to_the_same_type_copies_nothing(jax):
    for dtype in ("float16", "bfloat16"):
        assert widen(jax.numpy.ones(2, dtype=dtype)).dtype == np.float32
    for dtype in ("float32", "float64", "complex128", "int16", "int64"):
        x = np.ones(2, dtype=dtype)
        assert widen(x) is x

    x = np.ones(2)
    assert cast(x, np.float64) is x
    assert cast(x, np.float32).dtype == np.float32


def test_integers_are_told_from_others_and_values_under_jit_are_unknown(jax):
    assert is_integer(np.ones(1, dtype=np.int8))
    assert is_integer(jax.numpy.ones(1, dtype="uint32"))
    assert not is_integer(np.ones(1, dtype=bool))
    assert not is_integer(jax.numpy.ones(1, dtype="bfloat16"))

    seen = []
    jax.jit(lambda x: seen.append(is_traced(x)) or x)(jax.numpy.ones(1))
    assert seen == [True]
    assert not is_traced(jax.numpy.ones(1))
    assert not is_traced(np.ones(1))


@st.composite
def broadcasts(draw):
    """A shape, and one that broadcasts to it."""
    whole = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    part = tuple(1 if draw(st.booleans()) else size for size in whole)
    return whole, part[draw(st.integers(0, len(part))) :]


@given(broadcasts())
def test_unbroadcast_is_the_transpose_of_broadcasting(shapes):
    whole, part = shapes
    rng = np.random.default_rng(0)
    x, dy = np.asarray(rng.standard_normal(part)), np.asarray(rng.standard_normal(whole))
    dx = unbroadcast(dy, part)
    assert np.shape(dx) == part
    assert_close(np.sum(dx * x), np.sum(dy * np.broadcast_to(x, whole)), 1e-13)


def test_lengths_and_widths_are_checked_and_ignored_ids_may_lie_outside():
    check_ids(np.array([0, -100]), 2, ignore=-100)
    check_ids(np.zeros(0, dtype=int), 2)

    check_length(4, 4)
    with pytest.raises(LengthError, match=r"the sequence is empty(?s:.*)hint: pass at least one token"):
        check_length(0, 4)
    with pytest.raises(LengthError, match=r"the prompt has 1,312 tokens but this model reads at most 1,024"):
        check_length(1312, 1024, what="the prompt")

    check_width(np.zeros((0, 3)), 3)
    with pytest.raises(ShapeError, match=r"the input has shape \(3, 2\), expected \(..., 3\)"):
        check_width(np.zeros((3, 2)), 3)
