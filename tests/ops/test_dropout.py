"""Dropout: the same mask everywhere for the same key, the right rate, and no pattern one could see."""

import math

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops

SIZE = (400, 500)


def mask(key, rate=0.5, shape=SIZE):
    return ops.keep_mask(key, np.arange(shape[0]), np.arange(shape[1]), rate=rate)


def z_of_share(hits, share):
    """How many standard deviations the share of True lies from the expected one."""
    return (hits.mean() - share) * math.sqrt(hits.size / (share * (1 - share)))


def agreement(a, b):
    """How many standard deviations two fair masks agree more often than by chance."""
    return z_of_share(a == b, 0.5)


def test_kept_entries_are_scaled_and_rate_zero_keeps_everything(rng):
    x = rng.standard_normal((3, 4, 5))
    y, keep = ops.dropout(x, ops.new_key(1), rate=0.3)
    assert_close(y, np.where(keep, x / 0.7, 0), 1e-15)
    assert_close(ops.dropout_backward(x, keep, rate=0.3), y, 0)
    x = rng.standard_normal((3, 4))
    np.testing.assert_array_equal(ops.dropout(x, ops.new_key(1), rate=0.0)[0], x)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.999])
def test_numpy_and_jax_drop_the_same_entries(jax, rate):
    key = ops.fold_key(ops.new_key(2**40 + 5), 3)
    moved = ops.fold_key(jax.numpy.asarray(ops.new_key(2**40 + 5)), 3)
    np.testing.assert_array_equal(key, moved)
    x = np.ones((2, 3, 7))
    y, _ = ops.dropout(x, key, rate=rate)
    traced = jax.jit(lambda x, key: ops.dropout(x, key, rate=rate)[0])
    np.testing.assert_array_equal(y, traced(jax.numpy.asarray(x), moved))


def test_a_tile_of_the_mask_is_that_of_the_whole_and_the_same_seed_gives_the_same():
    key, rows, columns = ops.new_key(3), np.arange(7, 30), np.arange(11, 50)
    np.testing.assert_array_equal(ops.keep_mask(key, rows, columns, rate=0.4), mask(key, 0.4)[7:30, 11:50])
    key = ops.new_key(4)
    _, keep = ops.dropout(np.ones((4, 5, 6)), key, rate=0.5)
    np.testing.assert_array_equal(keep.reshape(20, 6), mask(key, 0.5, (20, 6)))

    np.testing.assert_array_equal(mask(ops.new_key(5)), mask(ops.new_key(5)))
    for other in (6, 5 + 2**32, 5 + 2**63):
        assert (mask(ops.new_key(5)) != mask(ops.new_key(other))).mean() > 0.4


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_the_share_that_is_kept_is_one_minus_the_rate(rate, seed):
    assert abs(z_of_share(mask(ops.new_key(seed), rate), 1 - rate)) < 4


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_every_row_and_column_keeps_its_share(seed):
    keep = mask(ops.new_key(seed))
    for axis in (0, 1):
        n = keep.shape[axis]
        z = (keep.mean(axis) - 0.5) * math.sqrt(4 * n)
        assert np.abs(z).max() < 5
        assert abs(z.std() - 1) < 0.2


@pytest.mark.parametrize("seed", [0, 1, 12345])
@pytest.mark.parametrize("step", [1, 2, 3, 16, 64])
def test_neighbors_are_unrelated(seed, step):
    keep = mask(ops.new_key(seed))
    assert abs(agreement(keep[step:], keep[:-step])) < 4
    assert abs(agreement(keep[:, step:], keep[:, :-step])) < 4
    assert abs(agreement(keep[step:, step:], keep[:-step, :-step])) < 4


def test_seeds_and_child_keys_are_unrelated_and_the_mean_stays():
    parent = ops.new_key(9)
    keys = [parent, ops.new_key(10), *(ops.fold_key(parent, n) for n in range(8))]
    keys += [ops.fold_key(keys[2], n) for n in range(4)]
    keys += [ops.fold_key(ops.new_key(10), 0)]
    masks = [mask(key) for key in keys]
    worst = max(abs(agreement(a, b)) for i, a in enumerate(masks) for b in masks[:i])
    assert worst < 4.5

    key = ops.new_key(0)
    children = {tuple(map(int, ops.fold_key(key, n))) for n in range(5000)}
    assert len(children) == 5000
    assert tuple(map(int, key)) not in children
    y, _ = ops.dropout(np.ones(SIZE), ops.new_key(11), rate=0.3)
    assert abs(y.mean() - 1) < 0.01
