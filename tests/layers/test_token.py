"""The kernel `read_token`: one call for all blocks gives what the blocks give one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare import error
from glassformer.engine import use_engine
from glassformer.errors import GlassformerError
from glassformer.generation.storage import stored
from glassformer.models import build
from glassformer.quantized import KINDS as QUANTIZED
from glassformer.quantized import quantize
from glassformer.tree import tree_map

LENGTH = 20
LIMIT = 1e-5
KINDS = ("float32", "float16", "int8", "int4")
SMALL = {"vocab": 19, "width": 48, "heads": 4, "layers": 2, "context": 64, "feed_forward": 80}


def model_of(**changes):
    """A small decoder whose parts all matter to the logits, in float32."""
    model = build("tiny-decoder", **{**SMALL, **changes})
    rng = np.random.default_rng(1)
    return model, tree_map(lambda x: (x + 0.2 * rng.standard_normal(x.shape)).astype(np.float32), model.init(0))


def read_all(model, params, tokens, sizes=(1,) * LENGTH):
    """The logits of reading tokens (..., T) in chunks, and the cache."""
    cache, logits, start = model.new_cache(), [], 0
    for size in sizes:
        if start < tokens.shape[-1]:
            logits.append(model.read(params, tokens[..., start : start + size], cache))
            start += size
    return np.concatenate(logits, axis=-2), cache


def is_taken(cache):
    return cache.plan is not None and cache.plan.tables is not None


def assert_both_ways_agree(model, params, tokens, *, taken=True, **chunks):
    with use_engine("numpy"):
        expected, _ = read_all(model, params, tokens, **chunks)
    found, cache = read_all(model, params, tokens, **chunks)
    assert is_taken(cache) == taken
    assert found.dtype == expected.dtype
    assert error(found, expected) <= LIMIT


@settings(max_examples=40)
@given(
    norm=st.sampled_from(["layer", "rms"]),
    norm_bias=st.booleans(),
    positions=st.sampled_from(["learned", "sinusoidal", "halves", "interleaved"]),
    activation=st.sampled_from(["relu", "gelu", "gelu_tanh", "silu"]),
    gated=st.booleans(),
    biases=st.tuples(st.booleans(), st.booleans()),
    kv_heads=st.sampled_from([1, 2, 4]),
    head_width=st.sampled_from([None, 2, 10, 16, 20]),
    window=st.sampled_from([None, 1, 5, 32]),
    weights=st.sampled_from(KINDS),
)
def test_every_kind_of_decoder_is_read_as_by_its_layers(norm, norm_bias, positions, biases, weights, **settings):
    settings |= {"norm": norm, "attention_bias": biases[0], "feed_forward_bias": biases[1], "positions": positions}
    if positions in ("halves", "interleaved"):
        settings |= {"positions": "rotary", "rotary_pairing": positions}
    if norm == "layer":
        settings["norm_bias"] = norm_bias
    model, params = model_of(**settings)
    tokens = np.random.default_rng(2).integers(0, 19, (1, LENGTH))
    assert_both_ways_agree(model, stored(params, weights), tokens)


ODD = st.sampled_from([1, 2, 3, 5, 15, 16, 17, 31, 33])


@settings(max_examples=40)
@given(
    width=ODD,
    hidden=ODD,
    channels=ODD,
    heads=st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2)]),
    gated=st.booleans(),
    layers=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_decoders_of_any_size_are_read_as_by_their_layers(width, hidden, channels, heads, gated, layers, seed):
    changes = {"width": width, "feed_forward": hidden, "head_width": channels, "layers": layers, "gated": gated}
    model, params = model_of(heads=heads[0], kv_heads=heads[1], norm="rms", **changes)
    rng = np.random.default_rng(seed)
    params = stored(params, "float32")
    for block in params["blocks"]:  # each matrix in a kind of its own, as files may have them
        for part in (*block["attention"].values(), *block["feed_forward"].values()):
            kind = (None, *QUANTIZED)[rng.integers(len(QUANTIZED) + 1)]
            part["w"] = part["w"] if kind is None else quantize(part["w"].T, kind).T
    assert_both_ways_agree(model, params, rng.integers(0, 19, (1, 5)))


@settings(max_examples=12)
@pytest.mark.parametrize("weights", KINDS)
@given(st.lists(st.integers(1, 9), max_size=6))
def test_chunks_before_and_after_change_nothing(weights, sizes):
    model, params = model_of(positions="rotary", window=7)
    tokens = np.random.default_rng(3).integers(0, 19, (1, LENGTH))
    params = stored(params, weights)
    chunks = (*sizes, *[1] * LENGTH)
    found, _ = read_all(model, params, tokens, chunks)
    expected, _ = model.forward(params, tokens)
    assert error(found, expected) <= LIMIT


def test_a_sequence_without_a_batch_axis_is_read(rng):
    model, params = model_of()
    assert_both_ways_agree(model, stored(params, "int8"), rng.integers(0, 19, LENGTH))


def test_the_memory_grows_as_it_must(rng):
    model, params = model_of(context=200)
    tokens = rng.integers(0, 19, (1, 150))
    found, cache = read_all(model, stored(params, "float32"), tokens, (1,) * 150)
    assert is_taken(cache)
    assert cache.length == 150
    assert error(found, model.forward(params, tokens)[0]) <= LIMIT


def test_engines_may_change_in_the_middle(rng):
    model, params = model_of(positions="rotary")
    params, tokens = stored(params, "int4"), rng.integers(0, 19, (1, LENGTH))
    cache, logits = model.new_cache(), []
    for place in range(LENGTH):
        with use_engine(("cpu", "numpy")[place % 2]):
            logits.append(model.read(params, tokens[:, place : place + 1], cache))
    expected, _ = model.forward(params, tokens)
    assert error(np.concatenate(logits, axis=1), expected) <= LIMIT


def test_a_sequence_selected_from_several_goes_on_alone(rng):
    model, params = model_of(positions="rotary", window=6)
    params, tokens = stored(params, "int8"), rng.integers(0, 19, (3, LENGTH))
    cache = model.new_cache()
    model.read(params, tokens[:, :12], cache)
    cache.select(np.array([2]))
    for place in range(12, LENGTH):
        logits = model.read(params, tokens[2:, place : place + 1], cache)
    assert is_taken(cache)
    assert error(logits[0, 0], model.forward(params, tokens[2:])[0][0, -1]) <= LIMIT


def test_other_parameters_get_a_plan_of_their_own(rng):
    model, params = model_of()
    first, second = stored(params, "int8"), stored(tree_map(lambda x: 2 * x, params), "int8")
    cache, token = model.new_cache(), np.array([[3]])
    model.read(first, token, cache)
    one = cache.plan
    model.read(second, token, cache)
    assert cache.plan is not one
    model.read(second, token, cache)
    assert cache.plan.blocks is second["blocks"]


@pytest.mark.parametrize(
    "changes",
    [{"norm_position": "post"}, {"positions": "alibi"}, {"positions": "relative"}, {"stride": 3}],
    ids=str,
)
def test_what_the_kernel_does_not_know_is_read_by_the_layers(rng, changes):
    model, params = model_of(**changes)
    assert_both_ways_agree(model, stored(params, "int8"), rng.integers(0, 19, (1, 8)), taken=False)


def test_so_are_several_sequences_float64_and_matrices_in_the_other_order(rng):
    model, params = model_of()
    tokens = rng.integers(0, 19, (2, 6))
    assert_both_ways_agree(model, stored(params, "int8"), tokens, taken=False)
    assert_both_ways_agree(model, params, tokens[:1], taken=False)
    assert_both_ways_agree(model, tree_map(lambda x: x.astype(np.float64), params), tokens[:1], taken=False)


WRONG = {
    "a matrix with too few columns": ("feed_forward", "up", "w", (79, 48)),
    "a matrix with too few rows": ("feed_forward", "down", "w", (48, 79)),
    "a bias that is too short": ("attention", "query", "b", (47,)),
}


@pytest.mark.parametrize("what", WRONG)
def test_arrays_that_do_not_fit_never_reach_the_kernel(what):
    model, params = model_of()
    params = stored(params, "float32")
    part, name, leaf, shape = WRONG[what]
    wrong = np.zeros(shape, np.float32)
    params["blocks"][1][part][name][leaf] = wrong.T if leaf == "w" else wrong
    cache = model.new_cache()
    with pytest.raises(GlassformerError, match=r"expected|shape"):
        model.read(params, np.array([[3]]), cache)
    assert not is_taken(cache)


def test_so_do_norms_and_blocks_that_are_missing(rng):
    model, params = model_of(norm="rms")
    params = stored(params, "float32")
    short = {**params, "blocks": params["blocks"][:1]}
    cache = model.new_cache()
    with pytest.raises((GlassformerError, ValueError)):
        model.read(short, np.array([[3]]), cache)
    assert not is_taken(cache)


def test_positions_of_several_tokens_are_left_to_the_layers():
    model, params = model_of(positions="rotary")
    params, token, places = stored(params, "float32"), np.array([[3]]), np.arange(3)
    found = model.read(params, token, model.new_cache(), positions=places)
    with use_engine("numpy"):
        expected = model.read(params, token, model.new_cache(), positions=places)
    assert found.shape == expected.shape
    assert error(found, expected) <= LIMIT


def test_padding_is_read_by_the_layers(rng):
    model, params = model_of()
    params, tokens = stored(params, "int8"), rng.integers(0, 19, (1, 6))
    cache = model.new_cache()
    padded = np.concatenate([[[5, 5]], tokens], axis=1)
    places, real = np.maximum(np.arange(8) - 2, 0)[None], np.arange(8)[None] >= 2
    for place in range(8):
        one = slice(place, place + 1)
        logits = model.read(params, padded[:, one], cache, mask=real[:, one], positions=places[:, one])
    assert error(logits[0, 0], model.forward(params, tokens)[0][0, -1]) <= LIMIT
