"""The cache of fixed size: what is not filled yet and what is padding is never seen, and the next place is a number."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.core.tree import like
from glassformer.engines.jax.programs import FixedCache, State
from glassformer.ops import CAUSAL, FULL, Pattern
from sequences import model_of

PLACES = 8


def cache_of(jnp, *, layers=1, padding=(0, 3), seen=4, shape=(4, PLACES, 4)):
    keys, values = ([jnp.zeros((len(padding), *shape)) for _ in range(layers)] for _ in range(2))
    return FixedCache(State(keys, values, None, None, jnp.asarray(padding), jnp.asarray(seen)))


@pytest.mark.parametrize(
    "pattern",
    [FULL, CAUSAL, Pattern(causal=True, window=3), Pattern(causal=True, stride=2), Pattern(window=2)],
    ids=str,
)
def test_new_tokens_see_what_the_pattern_allows_of_what_is_filled(jax, pattern):
    kept = cache_of(jax.numpy).blocks[0].attention
    allowed = np.asarray(kept.allowed(pattern, 2))
    rows, columns = np.array([4, 5]), np.arange(PLACES)
    assert allowed.tolist() == (pattern.tile(rows, columns) & (columns <= rows[:, None])).tolist()
    assert not allowed[:, 6:].any()


def test_keys_and_values_are_written_at_the_next_places(jax, rng):
    kept = cache_of(jax.numpy).blocks[0].attention
    k, v = rng.standard_normal((2, 2, 4, 2, 4))
    all_k, all_v = kept.append(jax.numpy.asarray(k), jax.numpy.asarray(v))
    assert int(kept.seen) == 6
    for whole, new in ((all_k, k), (all_v, v)):
        assert whole.shape == (2, 4, PLACES, 4)
        assert np.array_equal(whole[:, :, 4:6], new)
        assert not np.delete(np.asarray(whole), [4, 5], axis=2).any()


def test_padding_is_masked_and_stands_at_the_first_position(jax):
    cache = cache_of(jax.numpy, seen=2)
    assert np.asarray(cache.key_mask(1))[:, 0].tolist() == [[True] * 8, [False] * 3 + [True] * 5]
    assert np.asarray(cache.rows(3)).tolist() == [2, 3, 4]
    assert np.asarray(cache.positions(3, context=4)).tolist() == [[2, 3, 3], [0, 0, 1]]


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "relative", "alibi"])
def test_tables_give_positions_that_are_not_known_yet_what_formulas_give_known_ones(jax, positions, rng):
    model, params = model_of(positions=positions, layers=1)
    params = like(params, jax.numpy)
    tokens = rng.integers(0, 17, (2, 3))

    def read(seen):
        cache = cache_of(jax.numpy, padding=(0, 1), seen=seen)
        return model.read(params, jax.numpy.asarray(tokens), cache, positions=cache.positions(3, 24))

    assert_close(jax.jit(read)(4), read(4))
