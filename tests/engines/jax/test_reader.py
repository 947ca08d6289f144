"""The engine jax: compiled programs with caches of fixed size write what NumPy writes, and few of them are compiled."""

import subprocess
import sys

import numpy as np
import pytest

from compare import assert_close
from glassformer.api.trained_model import TrainedModel
from glassformer.config import POSITION_NAMES
from glassformer.core import registry
from glassformer.core.dispatch import use_engine
from glassformer.core.errors import ConfigError, GlassformerError
from glassformer.core.tree import tree_map
from glassformer.engines.jax import programs as compiled
from glassformer.engines.jax import reader as reader_module
from glassformer.engines.jax.reader import JaxReader
from glassformer.generation import Sampling, beam_search, generate_steps
from glassformer.generation import sampling as host_sampling
from glassformer.generation.request import Request
from glassformer.layers import FeedForward
from glassformer.ops import ACTIVATIONS, register_activation
from glassformer.text import CharTokenizer
from sequences import model_of, prompts_of, written

pytestmark = pytest.mark.usefixtures("numpy_engine")  # what nobody lets the engine jax write

GREEDY = Sampling(temperature=0)
GROUPS_IN_A_WINDOW = {"kv_heads": 2, "window": 4}
# Positions that keys carry, and biases by distance, must also fit keys that have left a window.
CASES = [(positions, {}) for positions in POSITION_NAMES]
CASES += [(positions, GROUPS_IN_A_WINDOW) for positions in ("rotary", "relative", "alibi")]
CASES += [("rotary", {"kv_heads": 1}), ("learned", {"stride": 3})]
LENGTHS = (3, 9, 1, 24, 6)  # one of them as long as the context


def on_jax(model, params, prompts, **settings):
    with use_engine("jax"):
        return written(model, params, prompts, **settings)


def compiled_since(before):
    """How often each program was compiled since `before`."""
    counts = {}
    for (name, _), count in compiled.traces().items():
        counts[name] = counts.get(name, 0) + count
    for (name, _), count in before.items():
        counts[name] -= count
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize(("positions", "shape"), CASES, ids=str)
def test_a_batch_of_different_lengths_writes_what_numpy_writes_one_by_one(positions, shape):
    model, params = model_of(positions=positions, layers=1, **shape)
    prompts = prompts_of(*LENGTHS)
    settings = {"max_new_tokens": 14, "sampling": GREEDY}
    settings["stop_ids"] = [written(model, params, prompts, **settings)[0][0][4]]
    ids, finish = on_jax(model, params, prompts, **settings)
    assert finish[0] == "stop"
    for row, prompt in enumerate(prompts):
        assert written(model, params, [prompt], cache=False, **settings) == ([ids[row]], [finish[row]])


@pytest.mark.parametrize("positions", ["sinusoidal", "relative"])
def test_so_does_an_encoder_decoder_with_sources_of_different_lengths(positions):
    model, params = model_of("encoder-decoder", positions=positions, source_vocab=19, layers=1)
    sources, starts = prompts_of(5, 11, 1, 24, vocab=19), [[1], [1, 4, 2], [1], [1, 3]]
    settings = {"max_new_tokens": 9, "sampling": GREEDY, "stop_ids": [2]}
    ids, finish = on_jax(model, params, starts, sources=sources, **settings)
    for row in range(4):
        alone = written(model, params, [starts[row]], sources=[sources[row]], cache=False, **settings)
        assert alone == ([ids[row]], [finish[row]])


def test_samples_of_an_encoder_decoder_share_what_was_read_and_keys_keep_half_precision():
    model, params = model_of("encoder-decoder", positions="rotary", source_vocab=19, layers=1)
    settings = {"sources": prompts_of(5, 3, vocab=19), "max_new_tokens": 9, "n": 3, "seed": 1}
    expected = written(model, params, [[1], [1, 4]], **settings)
    assert on_jax(model, params, [[1], [1, 4]], **settings) == expected
    assert len({tuple(ids) for ids in expected[0]}) > 2

    model, params = model_of(layers=1, dtype=np.float32, compute="float16", positions="rotary")
    reader = JaxReader(model, params, [np.array([1, 2, 3])], None, room=3)
    expected, _ = model.forward(params, np.array([1, 2, 3]))
    assert reader.state.keys[0].dtype == np.float16
    assert_close(reader.logits[0].astype(np.float64), np.asarray(expected[-1], np.float64), 0.02)


def test_several_blocks_chunks_and_bursts_change_nothing():
    model, params = model_of(positions="rotary", kv_heads=2)
    prompts = prompts_of(23, 5, 17)
    settings = {"max_new_tokens": 7, "sampling": GREEDY}
    expected = written(model, params, prompts, **settings)
    for changes in ({}, {"burst": 1}, {"burst": 3}, {"chunk": 12}):
        assert on_jax(model, params, prompts, **settings, **changes) == expected
    assert on_jax(model, params, prompts[1:2], **settings) == (expected[0][1:2], expected[1][1:2])


@pytest.mark.parametrize("ahead", [False, True])
def test_more_tokens_than_one_burst(monkeypatch, ahead):
    monkeypatch.setattr(reader_module, "runs_ahead", lambda: ahead)
    new = 2 * compiled.BURST + 7
    model, params = model_of(layers=1, context=new + 1, positions="alibi")
    settings = {"max_new_tokens": new, "sampling": Sampling(temperature=1.1), "seed": 2}
    ids, finish = on_jax(model, params, [[3], [1, 2]], **settings)
    assert [len(row) for row in ids] == [new, new]
    assert (ids, finish) == written(model, params, [[3], [1, 2]], **settings)


@pytest.mark.parametrize("ahead", [False, True])
def test_samples_are_those_of_numpy_for_the_same_seed(monkeypatch, ahead):
    monkeypatch.setattr(reader_module, "runs_ahead", lambda: ahead)
    model, params = model_of(layers=1)
    prompts = prompts_of(3, 5, 2)
    for sampling in (Sampling(temperature=1.2, top_k=12, top_p=0.95, min_p=0.01), Sampling()):
        for seed in (0, 1):
            settings = {"max_new_tokens": 10, "n": 3, "seed": seed, "sampling": sampling, "stop_ids": [4]}
            ids, finish = on_jax(model, params, prompts, **settings)
            assert (ids, finish) == written(model, params, prompts, **settings)
            assert {*finish} == {"stop", "length"}  # some end in the middle, the others go on


def test_penalties_and_log_probabilities_are_those_of_numpy():
    model, params = model_of(layers=1, positions="rotary")
    settings = {"max_new_tokens": 8, "log_probabilities": 3, "n": 2, "stop_ids": [2]}
    settings["sampling"] = Sampling(repetition_penalty=1.3, frequency_penalty=0.2, top_p=0.9)
    expected = list(generate_steps(model, params, prompts_of(3, 7, 20), **settings))
    with use_engine("jax"):
        found = list(generate_steps(model, params, prompts_of(3, 7, 20), **settings))
    for step, other in zip(found, expected, strict=True):
        assert step.ids.tolist() == other.ids.tolist()
        assert step.finish == other.finish
        assert step.top_ids.tolist() == other.top_ids.tolist()
        np.testing.assert_allclose(step.log_probabilities, other.log_probabilities, atol=1e-12)
        np.testing.assert_allclose(step.top_log_probabilities, other.top_log_probabilities, atol=1e-12)


def test_beam_search_finds_the_same_sequences():
    model, params = model_of(layers=1, positions="rotary", window=5)
    settings = {"beams": 3, "max_new_tokens": 8, "stop_ids": [2, 7]}
    expected = beam_search(model, params, [1, 2, 3], **settings)
    with use_engine("jax"):
        found = beam_search(model, params, [1, 2, 3], **settings)
    assert [one.ids for one in found] == [one.ids for one in expected]
    assert_close(np.array([one.score for one in found]), np.array([one.score for one in expected]))


@pytest.mark.parametrize(("dtype", "limit"), [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_the_logits_of_every_step_equal_uncached_ones(dtype, limit):
    model, params = model_of(dtype=dtype, positions="rotary", window=5, kv_heads=2)
    prompts = [np.array(prompt) for prompt in prompts_of(2, 7, 4)]
    ids = np.array(written(model, params, prompts, max_new_tokens=6)[0])
    reader = JaxReader(model, params, prompts, None, room=7)
    for step in range(6):
        assert reader.logits.dtype == dtype
        for row, prompt in enumerate(prompts):
            expected, _ = model.forward(params, np.array([*prompt, *ids[row][:step]]))
            assert_close(reader.logits[row], expected[-1], limit)
        reader.read(ids[:, step])


def test_sequences_are_kept_left_out_and_kept_twice_and_looking_at_logits_changes_nothing():
    model, params = model_of(layers=1)
    prompts = [np.array(prompt) for prompt in prompts_of(2, 7, 4)]
    reader = JaxReader(model, params, prompts, None, room=5)
    now = [list(prompt) for prompt in prompts]
    for rows in ([2, 0], [1, 0], [0, 1, 0], [2, 1]):
        reader.select(np.array(rows))
        now = [now[row] + [row + 3] for row in rows]
        reader.read(np.array([row + 3 for row in rows]))
        for logits, tokens in zip(reader.logits, now, strict=True):
            assert_close(logits, model.forward(params, np.array(tokens))[0][-1])

    model, params = model_of(layers=1, positions="rotary")
    expected = np.array(written(model, params, prompts, max_new_tokens=6, sampling=GREEDY)[0])
    reader = JaxReader(model, params, prompts, None, room=6)
    for step in (0, 3):
        assert reader.logits.argmax(axis=-1).tolist() == expected[:, step].tolist()
        ids = reader.write(3, np.full(3, 6 - step), (), Request(prompts=prompts, max_new_tokens=6, sampling=GREEDY))
        assert ids.T.tolist() == expected[:, step : step + 3].tolist()


def test_prompts_of_one_bucket_and_all_numbers_share_one_compilation():
    model, params = model_of(layers=1, context=64, vocab=23)
    before = compiled.traces()
    for length in (3, 5, 9, 12, 17):  # all but the last token are read at first
        on_jax(model, params, prompts_of(length), max_new_tokens=9, sampling=GREEDY)
    assert compiled_since(before) == {"begin": 1, "write": 1}
    for temperature, top_p, stops, burst in ((0.5, 0.9, [], None), (0.9, 0.5, [4], None), (1.5, 0.7, [3, 4], 1)):
        sampling = Sampling(temperature=temperature, top_p=top_p)
        on_jax(model, params, prompts_of(8), max_new_tokens=12, sampling=sampling, stop_ids=stops, burst=burst)
    assert compiled_since(before) == {"begin": 1, "write": 2}  # drawing is another program than the likeliest
    for rows in (3, 4):
        on_jax(model, params, prompts_of(*range(2, 2 + rows)), max_new_tokens=9, sampling=GREEDY)
    assert compiled_since(before) == {"begin": 2, "write": 3}  # as is a batch of four, which three are too


def test_keys_are_written_where_they_stand():
    model, params = model_of(layers=1)
    reader = JaxReader(model, params, [np.array([1, 2, 3])], None, room=5)
    before = reader.state
    places = [x.unsafe_buffer_pointer() for x in (*before.keys, *before.values)]
    assert reader.logits.shape == (1, 17)
    assert [x.unsafe_buffer_pointer() for x in (*reader.state.keys, *reader.state.values)] == places
    assert all(x.is_deleted() for x in before.keys)
    reader.write(4, np.array([5]), (), Request(prompts=[[1, 2, 3]], max_new_tokens=5, sampling=GREEDY))
    assert [x.unsafe_buffer_pointer() for x in (*reader.state.keys, *reader.state.values)] == places


def test_logits_that_are_no_numbers_are_refused_and_the_engine_counts_when_it_is_asked():
    model, params = model_of(layers=1)
    broken = tree_map(lambda x: x * np.nan, params)
    with pytest.raises(GlassformerError, match="logits are not finite"):
        on_jax(model, broken, [[1, 2]], max_new_tokens=3, sampling=GREEDY)

    model, params = model_of(layers=1)
    expected = written(model, params, [[1, 2]], max_new_tokens=5, sampling=GREEDY)[0][0]
    with use_engine("jax"):
        steps = generate_steps(model, params, [[1, 2]], max_new_tokens=5, sampling=GREEDY)
    assert [int(step.ids[0]) for step in steps] == expected

    subprocess.run([sys.executable, "-c", WITHOUT_JAX], check=True)


WITHOUT_JAX = """
import sys
import glassformer as gf
from glassformer.generation import beam_search, generate_steps
model = gf.build("tiny-decoder")
list(generate_steps(model, model.init(0), [[1, 2]], max_new_tokens=2))
assert "jax" not in sys.modules
"""


@pytest.fixture(scope="module")
def letters():
    model, params = model_of(layers=1)
    return TrainedModel(
        model, params, CharTokenizer("abcdefghijklmno", specials=("<bos>", "<eos>")), start_id=0, end_ids=(1,)
    )


def test_text_is_the_same_with_stop_strings_and_as_a_stream(letters):
    prompts = ["abc", "o", "hijklmnoabc", "n"]
    free = letters.generate(prompts, max_new_tokens=12, seed=4)
    longest = max(range(4), key=lambda row: len(free[row].text))
    settings = {"max_new_tokens": 12, "seed": 4, "stop": [free[longest].text[3:5], "zz"]}
    expected = letters.generate(prompts, **settings)
    assert 0 < len(expected[longest].text) < len(free[longest].text)
    with use_engine("jax"):
        assert letters.generate(prompts, **settings) == expected
        pieces = list(letters.stream(prompts[longest], **settings))
    assert len(pieces) > 1
    assert "".join(pieces) == expected[longest].text


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "float16"])
def test_weights_move_to_the_device_as_asked_for(letters, jax, weights):
    with use_engine("jax"):
        there = letters.kept_as(weights)
        table = there.params["embedding"]["tokens"]["table"]
        assert isinstance(table, jax.Array)
        assert table.dtype == weights
        reader = JaxReader(there.model, there.params, [np.array([1, 2, 3])], None, room=1)
    assert reader.state.keys[0].dtype == weights
    expected = letters.model.forward(letters.params, np.array([1, 2, 3]))[0][-1]
    limit = {"float32": 1e-5, "bfloat16": 0.1, "float16": 0.02}[weights]
    assert_close(reader.logits[0].astype(np.float64), expected, limit)


@pytest.mark.parametrize("weights", ["int8", "int4", "as-stored"])
def test_weights_in_blocks_are_not_made_for_the_device(letters, weights):
    with use_engine("jax"), pytest.raises(ConfigError, match=f"the engine jax does not keep weights as {weights}"):
        letters.kept_as(weights)


def test_weights_that_are_in_blocks_already_become_numbers(letters):
    with use_engine("numpy"):
        blocks = TrainedModel(
            letters.model,
            tree_map(lambda x: x.astype(np.float32), letters.params),
            letters.tokenizer,
            start_id=0,
            end_ids=(1,),
        ).kept_as("int8")
        expected = blocks.generate("abc", max_new_tokens=5, temperature=0)
    with use_engine("jax"):
        assert blocks.generate("abc", max_new_tokens=5, temperature=0) == expected


def assert_jax_follows_numpy(change, **settings):
    """Let both engines write the same, before and after something is changed."""
    model, params = model_of(layers=1, **settings)
    arguments = {"max_new_tokens": 6, "sampling": Sampling(temperature=0.8, top_k=9), "seed": 1}
    before = on_jax(model, params, prompts_of(3), **arguments)
    assert before == written(model, params, prompts_of(3), **arguments)
    change()
    after = on_jax(model, params, prompts_of(3), **arguments)
    assert after == written(model, params, prompts_of(3), **arguments)
    assert after != before


def test_an_activation_registered_anew_is_compiled_anew(monkeypatch):
    monkeypatch.setattr(registry, "_own", {family: dict(parts) for family, parts in registry._own.items()})
    register_activation("linear_ramp", lambda x: (x, x), lambda dy, x: dy)
    try:
        assert_jax_follows_numpy(
            lambda: register_activation("linear_ramp", lambda x: (-9 * x, x), lambda dy, x: -9 * dy),
            activation="linear_ramp",
        )
    finally:
        del ACTIVATIONS["linear_ramp"]


def test_a_replaced_layer_is_compiled_anew(monkeypatch):
    forward = FeedForward.forward

    def opposite(self, params, x):
        y, saved = forward(self, params, x)
        return -9 * y, saved

    assert_jax_follows_numpy(lambda: monkeypatch.setattr(FeedForward, "forward", opposite))


def test_a_replaced_choice_of_tokens_is_used(monkeypatch):
    assert_jax_follows_numpy(lambda: monkeypatch.setattr(host_sampling, "draw", lambda p, rng: int(np.argmax(p))))
