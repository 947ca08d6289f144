"""One token through all blocks in one call: what the blocks give one after the other."""

import gc
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import error
from draws import draws
from glassformer.core.dispatch import use_engine
from glassformer.core.quantized import FORMS as QUANTIZED
from glassformer.core.quantized import quantize
from glassformer.core.tree import tree_map
from glassformer.engines.cpu.decode import MOST_SEQUENCES, _plans
from glassformer.generation.storage import stored
from glassformer.layers import FeedForward, Linear
from glassformer.models import build

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
    return cache in _plans and _plans[cache].tables is not None


def assert_both_ways_agree(model, params, tokens, *, taken=True, **chunks):
    with use_engine("numpy"):
        expected, _ = read_all(model, params, tokens, **chunks)
    found, cache = read_all(model, params, tokens, **chunks)
    assert is_taken(cache) == taken
    assert found.dtype == expected.dtype
    assert error(found, expected) <= LIMIT


@draws(times=2)
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
    sequences=st.integers(1, 5).filter(lambda count: count <= MOST_SEQUENCES),
)
def test_every_kind_of_decoder_is_read_as_by_its_layers(
    norm, norm_bias, positions, biases, weights, sequences, **settings
):
    settings |= {"norm": norm, "attention_bias": biases[0], "feed_forward_bias": biases[1], "positions": positions}
    if positions in ("halves", "interleaved"):
        settings |= {"positions": "rotary", "rotary_pairing": positions}
    if norm == "layer":
        settings["norm_bias"] = norm_bias
    model, params = model_of(**settings)
    tokens = np.random.default_rng(2).integers(0, 19, (sequences, LENGTH))
    assert_both_ways_agree(model, stored(params, weights), tokens)


ODD = st.sampled_from([1, 2, 3, 5, 15, 16, 17, 31, 33])


@draws(times=2)
@given(
    width=ODD,
    hidden=ODD,
    channels=ODD,
    heads=st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2)]),
    gated=st.booleans(),
    layers=st.integers(1, 3),
    sequences=st.integers(1, MOST_SEQUENCES),
    seed=st.integers(0, 2**32 - 1),
)
def test_decoders_of_any_size_are_read_as_by_their_layers(
    width, hidden, channels, heads, gated, layers, sequences, seed
):
    changes = {"width": width, "feed_forward": hidden, "head_width": channels, "layers": layers, "gated": gated}
    model, params = model_of(heads=heads[0], kv_heads=heads[1], norm="rms", **changes)
    rng = np.random.default_rng(seed)
    params = stored(params, "float32")
    for block in params["blocks"]:  # each matrix in a kind of its own, as files may have them
        for part in (*block["attention"].values(), *block["feed_forward"].values()):
            kind = (None, *QUANTIZED)[rng.integers(len(QUANTIZED) + 1)]
            part["w"] = part["w"] if kind is None else quantize(part["w"].T, kind).T
    assert_both_ways_agree(model, params, rng.integers(0, 19, (sequences, 5)))


@draws(times=0.6)
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


def test_a_sequence_without_a_batch_axis_is_read_and_the_memory_grows_as_it_must(rng):
    model, params = model_of()
    assert_both_ways_agree(model, stored(params, "int8"), rng.integers(0, 19, LENGTH))

    model, params = model_of(context=200)
    tokens = rng.integers(0, 19, (1, 150))
    found, cache = read_all(model, stored(params, "float32"), tokens, (1,) * 150)
    assert is_taken(cache)
    assert cache.length == 150
    assert error(found, model.forward(params, tokens)[0]) <= LIMIT


def test_engines_may_change_in_the_middle_and_a_selected_sequence_goes_on_alone(rng):
    model, params = model_of(positions="rotary")
    params, tokens = stored(params, "int4"), rng.integers(0, 19, (1, LENGTH))
    cache, logits = model.new_cache(), []
    for place in range(LENGTH):
        with use_engine(("cpu", "numpy")[place % 2]):
            logits.append(model.read(params, tokens[:, place : place + 1], cache))
    expected, _ = model.forward(params, tokens)
    assert error(np.concatenate(logits, axis=1), expected) <= LIMIT

    model, params = model_of(positions="rotary", window=6)
    params, tokens = stored(params, "int8"), rng.integers(0, 19, (3, LENGTH))
    cache = model.new_cache()
    model.read(params, tokens[:, :12], cache)
    cache.select(np.array([2]))
    for place in range(12, LENGTH):
        logits = model.read(params, tokens[2:, place : place + 1], cache)
    assert is_taken(cache)
    assert error(logits[0, 0], model.forward(params, tokens[2:])[0][0, -1]) <= LIMIT


REPLACED = {
    "an array": lambda blocks: blocks[1]["attention"]["value"].update(w=2 * blocks[1]["attention"]["value"]["w"]),
    "a matrix in blocks": lambda blocks: blocks[0]["feed_forward"]["up"].update(
        w=quantize(np.ones((80, 48), np.float32), "Q8_0").T
    ),
    "a layer": lambda blocks: blocks[0]["feed_forward"].update(down=blocks[1]["feed_forward"]["down"]),
    "a block": lambda blocks: blocks.__setitem__(0, blocks[1]),
    "the order": lambda blocks: blocks.reverse(),
    "numbers in place": lambda blocks: blocks[0]["attention_norm"]["gamma"].__imul__(3),
}


@pytest.mark.parametrize("what", REPLACED)
def test_what_is_replaced_among_the_parameters_is_seen_at_the_next_token(rng, what):
    model, params = model_of()
    params, tokens = stored(params, "float32"), rng.integers(0, 19, (1, 6))
    for block in params["blocks"]:
        block["attention_norm"]["gamma"] = block["attention_norm"]["gamma"].copy()
    caches = model.new_cache(), model.new_cache()
    for token in tokens[:, :5].T:
        for cache in caches:
            model.read(params, token[:, None], cache)
    REPLACED[what](params["blocks"])
    found = model.read(params, tokens[:, 5:], caches[0])
    with use_engine("numpy"):
        expected = model.read(params, tokens[:, 5:], caches[1])
    assert is_taken(caches[0])
    assert error(found, expected) <= LIMIT


def test_plans_go_with_their_caches():
    model, params = model_of()
    cache = model.new_cache()
    model.read(stored(params, "int8"), np.array([[3]]), cache)
    before = len(_plans)
    del cache
    gc.collect()
    assert len(_plans) == before - 1


@pytest.mark.parametrize(
    "changes",
    [{"norm_position": "post"}, {"positions": "alibi"}, {"positions": "relative"}, {"stride": 3}],
    ids=str,
)
def test_what_the_loops_do_not_know_is_read_by_the_layers(rng, changes):
    model, params = model_of(**changes)
    assert_both_ways_agree(model, stored(params, "int8"), rng.integers(0, 19, (1, 8)), taken=False)


def test_so_are_many_sequences_float64_and_matrices_in_the_other_order(rng):
    model, params = model_of()
    tokens = rng.integers(0, 19, (MOST_SEQUENCES + 1, 6))
    assert_both_ways_agree(model, stored(params, "int8"), tokens, taken=False)
    assert_both_ways_agree(model, params, tokens[:1], taken=False)
    assert_both_ways_agree(model, tree_map(lambda x: x.astype(np.float64), params), tokens[:1], taken=False)


@dataclass(frozen=True)
class Gentle(FeedForward):
    """A feed-forward layer of one's own."""

    def forward(self, params, x):
        y, saved = super().forward(params, x)
        return y / 2, saved


class Doubled(Linear):
    """A linear map of one's own."""

    def forward(self, params, x):
        y, saved = super().forward(params, x)
        return 2 * y, saved


def with_gentle_layer(block):
    settings = [getattr(block.feed_forward, field.name) for field in fields(FeedForward)]
    return replace(block, feed_forward=Gentle(*settings))


def with_doubled_output(block):
    block = replace(block, attention=replace(block.attention))  # with linear maps of its own
    block.attention.parts["output"] = Doubled(48, 48)
    return block


@pytest.mark.parametrize("change", [with_gentle_layer, with_doubled_output])
def test_a_layer_of_ones_own_is_read_by_itself(rng, change):
    model, params = model_of()
    params, x = stored(params, "float32"), rng.standard_normal((1, 1, 48)).astype(np.float32)
    own = change(model.stack.block)
    stack, cache = replace(model.stack, block=own), model.new_cache()
    found = stack.read(params, x, cache)
    assert not is_taken(cache)
    with use_engine("numpy"):
        assert error(found, stack.read(params, x, model.new_cache())) <= LIMIT


def test_positions_of_several_tokens_are_left_to_the_layers():
    model, params = model_of(positions="rotary")
    params, token, places = stored(params, "float32"), np.array([[3]]), np.arange(3)
    found = model.read(params, token, model.new_cache(), positions=places)
    with use_engine("numpy"):
        expected = model.read(params, token, model.new_cache(), positions=places)
    assert found.shape == expected.shape
    assert error(found, expected) <= LIMIT


@pytest.mark.parametrize("settings", [{}, {"positions": "rotary"}, {"positions": "rotary", "window": 6}], ids=str)
def test_sequences_of_different_lengths_are_read_as_if_each_were_alone(rng, settings):
    model, params = model_of(**settings)
    params, tokens = stored(params, "int8"), rng.integers(0, 19, (3, LENGTH))
    places, padding = np.arange(LENGTH), np.array([[0], [2], [9]])
    real, places, cache = places >= padding, np.maximum(places - padding, 0), model.new_cache()
    for place in range(LENGTH):
        one = slice(place, place + 1)
        logits = model.read(params, tokens[:, one], cache, mask=real[:, one], positions=places[:, one])
    cache.select(np.array([2, 0]))
    after = model.read(params, np.array([[3], [4]]), cache, positions=np.array([[LENGTH - 9], [LENGTH]]))
    assert is_taken(cache)
    for row, start in enumerate((0, 2, 9)):
        assert error(logits[row, 0], model.forward(params, tokens[row, start:])[0][-1]) <= LIMIT
    for row, own in enumerate(([*tokens[2, 9:], 3], [*tokens[0], 4])):
        assert error(after[row, 0], model.forward(params, np.array(own))[0][-1]) <= LIMIT
