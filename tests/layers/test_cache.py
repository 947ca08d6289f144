"""The cache: reading in any chunks gives the logits of reading at once, and memory is what was read."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close, error
from draws import draws
from glassformer.config import POSITION_NAMES
from glassformer.core.errors import LengthError, ShapeError
from glassformer.core.tree import tree_map
from glassformer.layers.cache import FIRST_CAPACITY, Cache
from glassformer.models import build

LENGTH = 13
SHAPES = {"mha": {}, "gqa": {"kv_heads": 2}, "window": {"window": 4}, "stride": {"stride": 3}}
LIMITS = {np.float64: 1e-12, np.float32: 1e-5}
SIZES = {"vocab": 17, "width": 16, "heads": 4, "layers": 2, "context": 24, "relative_buckets": 8}
SMALL = {**SIZES, "activation": "gelu_tanh"}


def model_of(architecture, positions, shape, dtype):
    preset = {"decoder": "tiny-decoder", "encoder-decoder": "tiny-seq2seq"}[architecture]
    model = build(preset, **{**SMALL, "positions": positions, **SHAPES[shape]})
    rng = np.random.default_rng(1)
    # Larger than at the start of training, so that every part of the model matters to the logits.
    params = tree_map(lambda x: (x + 0.3 * rng.standard_normal(x.shape)).astype(dtype), model.init(0))
    return model, params


def whole(model, params, tokens, source):
    """The logits of reading everything at once, and a fresh cache."""
    given = (tokens,) if source is None else (source, tokens)
    return model.forward(params, *given)[0], fresh_cache(model, params, source)


def fresh_cache(model, params, source):
    return model.new_cache() if source is None else model.new_cache(params, source)


def chunks_of(sizes, length):
    """Cut a length into chunks of the given sizes, the rest one by one."""
    bounds = [0]
    for size in [*sizes, *[1] * length]:
        if bounds[-1] < length:
            bounds.append(min(bounds[-1] + size, length))
    return list(itertools.pairwise(bounds))


# Either type stands beside the other architecture next time, so that every value meets any two of the others.
WAYS = [
    (architecture, positions, shape, list(LIMITS)[(i + j + k) % 2])
    for i, architecture in enumerate(["decoder", "encoder-decoder"])
    for j, positions in enumerate(POSITION_NAMES)
    for k, shape in enumerate(SHAPES)
]


@pytest.mark.parametrize(("architecture", "positions", "shape", "dtype"), WAYS)
def test_cached_is_uncached_in_any_chunks(architecture, positions, shape, dtype):
    model, params = model_of(architecture, positions, shape, dtype)
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, 17, size=(2, LENGTH))
    source = None if architecture == "decoder" else rng.integers(0, 17, size=(2, 6))
    expected, _ = whole(model, params, tokens, source)

    @draws(times=0.25)
    @given(st.lists(st.integers(1, LENGTH), max_size=5))
    def check(sizes):
        cache = fresh_cache(model, params, source)
        for start, stop in chunks_of(sizes, LENGTH):
            logits = model.read(params, tokens[:, start:stop], cache)
            assert logits.dtype == dtype
            assert error(logits, expected[:, start:stop]) <= LIMITS[dtype]
        assert cache.length == LENGTH

    check()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("positions", POSITION_NAMES)
def test_left_padding_changes_nothing(positions, shape):
    model, params = model_of("decoder", positions, shape, np.float64)
    tokens = np.random.default_rng(3).integers(0, 17, size=(1, LENGTH))
    expected, cache = whole(model, params, tokens, None)
    for pad in (1, 6, 15):  # with 15 places of padding the cache is longer than the context of 24
        padded = np.concatenate([np.full((1, pad), 5), tokens], axis=1)
        mask = np.arange(LENGTH + pad)[None] >= pad
        places = np.maximum(np.arange(LENGTH + pad)[None] - pad, 0)
        cache = model.new_cache()
        for start, stop in chunks_of([5, 1, 4, 7], LENGTH + pad):
            part = slice(start, stop)
            logits = model.read(params, padded[:, part], cache, mask=mask[:, part], positions=places[:, part])
            own = slice(max(start - pad, 0), max(stop - pad, 0))
            assert_close(logits[mask[:, part]], expected[0, own])


@pytest.mark.parametrize("positions", POSITION_NAMES)
def test_a_padded_source_changes_nothing(positions):
    model, params = model_of("encoder-decoder", positions, "mha", np.float64)
    rng = np.random.default_rng(4)
    source, tokens = rng.integers(0, 17, size=(1, 5)), rng.integers(0, 17, size=(1, 6))
    expected, _ = whole(model, params, tokens, source)
    longer = np.concatenate([source, np.full((1, 4), 9)], axis=1)
    cache = model.new_cache(params, longer, source_mask=np.arange(9)[None] < 5)
    assert_close(model.read(params, tokens, cache), expected)


def test_selected_rows_go_on_as_if_alone():
    model, params = model_of("encoder-decoder", "rotary", "window", np.float64)
    rng = np.random.default_rng(5)
    source, tokens = rng.integers(0, 17, size=(3, 5)), rng.integers(0, 17, size=(3, 9))
    _, cache = whole(model, params, tokens, source)
    model.read(params, tokens[:, :8], cache)
    rows = np.array([2, 0, 2])
    cache.select(rows)
    expected, _ = whole(model, params, tokens[rows], source[rows])
    assert_close(model.read(params, tokens[rows, 8:], cache), expected[:, 8:])


def test_only_the_last_logits_are_computed_on_request():
    model, params = model_of("decoder", "learned", "mha", np.float64)
    tokens = np.arange(8)[None]
    expected, cache = whole(model, params, tokens, None)
    last = model.read(params, tokens, cache, last=True)
    assert last.shape == (1, 1, 17)
    assert_close(last, expected[:, -1:])


def read_one_by_one(model, params, length):
    """The memory of the cache after each token."""
    cache, sizes = model.new_cache(), []
    for token in range(length):
        model.read(params, np.array([[token % 17]]), cache)
        sizes.append(cache.nbytes)
    return sizes


def test_memory_grows_with_what_was_read_and_never_to_the_maximum_at_once():
    model, params = model_of("decoder", "rotary", "gqa", np.float32)
    model = type(model)(model.config.replace(context=100_000))
    assert model.new_cache().nbytes == 0
    sizes = read_one_by_one(model, params, 300)
    per_token = 2 * 2 * 2 * 4 * 4  # keys and values, layers, key heads, channels, bytes
    needed = per_token * np.arange(1, 301)
    assert sizes == sorted(sizes)
    assert sizes[0] == per_token * FIRST_CAPACITY
    # The buffer doubles: at most twice what is needed, but for the first.
    assert all(need <= size <= max(2 * need, sizes[0]) for need, size in zip(needed, sizes, strict=True))


def test_memory_under_a_window_is_bounded_by_it_and_that_of_a_source_computed_once():
    model, params = model_of("decoder", "rotary", "window", np.float32)
    model = type(model)(model.config.replace(context=100_000, window=100))
    sizes = read_one_by_one(model, params, 350)
    assert max(sizes) == 2 * 2 * 4 * 4 * 4 * 100
    cache = model.new_cache()
    model.read(params, np.zeros((1, 1000), dtype=int), cache)
    assert cache.nbytes == max(sizes)

    model, params = model_of("encoder-decoder", "relative", "mha", np.float64)
    cache = model.new_cache(params, np.zeros((1, 7), dtype=int))
    kept = [block.memory for block in cache.blocks]
    assert cache.nbytes == 2 * 2 * 16 * 7 * 8
    model.read(params, np.zeros((1, 1), dtype=int), cache)
    assert all(block.memory is memory for block, memory in zip(cache.blocks, kept, strict=True))


def test_reading_past_the_context_or_another_batch_is_refused():
    model, params = model_of("decoder", "rotary", "mha", np.float64)
    cache = model.new_cache()
    model.read(params, np.zeros((1, 24), dtype=int), cache)
    with pytest.raises(LengthError, match="25 tokens but this model reads at most 24"):
        model.read(params, np.zeros((1, 1), dtype=int), cache)

    model, params = model_of("decoder", "rotary", "mha", np.float64)
    cache = model.new_cache()
    model.read(params, np.zeros((2, 3), dtype=int), cache)
    with pytest.raises(ShapeError, match="the cache holds"):
        model.read(params, np.zeros((3, 1), dtype=int), cache)

    cache = Cache(3)
    assert cache.length == 0
    assert cache.nbytes == 0
    assert cache.key_mask(4) is None
