"""Sums and rearrangements."""

import numpy as np
import pytest

from compare import assert_close, assert_equals_torch
from glassformer import ops


def test_sums_splits_and_first_positions_give_their_gradients(torch, rng):
    pair = (ops.add, ops.add_backward)
    assert_equals_torch(pair, torch.add, (rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 4))))
    assert_equals_torch(pair, torch.add, (rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4))))

    x = rng.standard_normal((2, 5, 8))
    heads, _ = ops.split_heads(x, heads=4)
    assert heads.shape == (2, 4, 5, 2)
    np.testing.assert_array_equal(heads[:, 1], x[:, :, 2:4])
    np.testing.assert_array_equal(ops.merge_heads(heads, heads=4)[0], x)
    np.testing.assert_array_equal(ops.split_heads_backward(heads, None, heads=4), x)
    np.testing.assert_array_equal(ops.merge_heads_backward(x, None, heads=4), heads)

    pair = (ops.take_first, ops.take_first_backward)
    assert_equals_torch(pair, lambda x: x[..., 0, :], (rng.standard_normal((2, 3, 4)),))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (0, 3, 4)])
def test_a_vector_before_every_sequence_collects_from_each(torch, rng, shape):
    def prepend(first, x):
        return torch.cat((first.expand(*x.shape[:-2], 1, 4), x), dim=-2)

    assert_equals_torch(
        (ops.prepend, ops.prepend_backward), prepend, (rng.standard_normal(4), rng.standard_normal(shape))
    )


def test_a_copy_is_another_array(rng):
    x = rng.standard_normal(3)
    y, saved = ops.copy(x)
    assert not np.shares_memory(x, y)
    np.testing.assert_array_equal(ops.copy_backward(y, saved), x)


@pytest.mark.parametrize("shape", [(4,), (2, 4), (1, 4), (3, 1, 4)])
def test_vectors_are_summed_to_the_ids_that_served_several(torch, rng, shape):
    dy, ids = rng.standard_normal((3, 2, 4, 5)), rng.integers(0, 9, shape)
    rows = torch.zeros((*shape, 5), dtype=torch.float64, requires_grad=True)
    (rows * torch.asarray(dy)).sum().backward()
    assert_close(ops.sum_to(dy, ids), rows.grad)


def test_masks_ids_and_constants_are_made_in_the_type_and_library_of_other_arrays(jax):
    mask = np.array([[True, False], [False, False]])
    np.testing.assert_array_equal(ops.prepend_true(mask), [[True, True, False], [True, False, False]])
    np.testing.assert_array_equal(ops.prepend_true(mask[0]), [True, True, False])
    assert isinstance(ops.prepend_true(jax.numpy.asarray(mask)), jax.Array)
    zeros = ops.zeros_like(np.array([[3, 1, 4]], dtype=np.uint16))
    assert (zeros.tolist(), zeros.dtype) == ([[0, 0, 0]], np.uint16)
    table = np.array([0.1, 0.7])
    assert ops.astype(table, np.ones(1), dtype=np.float64) is table
    assert ops.astype(table, np.ones(1), dtype=np.float32).dtype == np.float32
    assert isinstance(ops.astype(table, jax.numpy.ones(1), dtype=np.float32), jax.Array)
