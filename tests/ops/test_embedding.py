"""Table lookup, pooling, sums and rearrangements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close, assert_equals_torch
from glassformer import ops
from glassformer.ops import embedding, embedding_backward, mean_pool, mean_pool_backward
from glassformer.ops.embedding import scatter_add


@pytest.mark.parametrize("ids", [2, [1, 4, 1], [[0, 0], [0, 4]], [[[3]]]])
def test_embedding_equals_pytorch(torch, rng, ids):
    ids = np.array(ids)
    pair = (embedding, embedding_backward)
    function = torch.nn.functional.embedding
    assert_equals_torch(pair, lambda t: function(torch.tensor(ids), t), [rng.standard_normal((5, 3))], extra=(ids,))


def test_the_scale_multiplies_values_and_gradients(rng):
    table, ids = rng.standard_normal((5, 4)), np.array([[1, 1], [3, 0]])
    y, saved = embedding(table, ids, scale=2.0)
    assert_close(y, 2 * table[ids])
    plain = embedding_backward(y, embedding(table, ids)[1])
    assert_close(embedding_backward(y, saved, scale=2.0), 2 * plain)


@given(st.lists(st.integers(0, 3), max_size=12))
def test_rows_collect_the_gradients_of_all_their_uses(ids):
    ids = np.array(ids, dtype=int)
    dy = np.random.default_rng(0).standard_normal((len(ids), 2))
    dtable = embedding_backward(dy, embedding(np.zeros((4, 2)), ids)[1])
    for row in range(4):
        assert_close(dtable[row], dy[ids == row].sum(0))


def test_pooling_averages_the_real_positions_alone(torch, rng):
    x, mask = rng.standard_normal((2, 3, 4)), np.array([[True, True, False], [True, False, False]])
    keep = torch.tensor(mask)[..., None]
    assert_equals_torch((mean_pool, mean_pool_backward), lambda x: (x * keep).sum(-2) / keep.sum(-2), [x], mask=mask)
    assert_equals_torch((mean_pool, mean_pool_backward), lambda x: x.mean(-2), [x])
    x = rng.standard_normal((3, 4))
    padded = np.concatenate((x, 1e6 * rng.standard_normal((2, 4))))
    assert_close(mean_pool(padded, mask=np.arange(5) < 3)[0], mean_pool(x)[0])
    x = rng.standard_normal((2, 3, 4))
    y, saved = mean_pool(x, mask=np.zeros((2, 3), dtype=bool))
    assert not y.any()
    assert not mean_pool_backward(np.ones_like(y), saved).any()


@given(st.lists(st.integers(0, 4), max_size=9))
def test_scatter_add_sums_rows_that_share_an_id(ids):
    ids = np.array(ids, dtype=int)
    rows = np.random.default_rng(0).standard_normal((len(ids), 3))
    onehot = np.equal.outer(np.arange(5), ids)
    assert_close(scatter_add(rows, ids, shape=(5, 3)), onehot @ rows, 1e-14)


def test_scatter_add_takes_any_leading_axes_and_both_libraries(jax, rng):
    ids, rows = rng.integers(0, 5, (2, 3)), rng.standard_normal((2, 3, 4))
    table = scatter_add(rows, ids, shape=(5, 4))
    assert_close(table, scatter_add(rows.reshape(6, 4), ids.reshape(6), shape=(5, 4)), 0)
    assert_close(scatter_add(jax.numpy.asarray(rows), jax.numpy.asarray(ids), shape=(5, 4)), table, 1e-15)


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
