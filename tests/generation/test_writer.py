"""One engine for all prompts: neither the cache, nor the batch, nor the chunks change what is written."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.api.trained_model import TrainedModel
from glassformer.config import POSITION_NAMES
from glassformer.core.dispatch import use_engine
from glassformer.core.errors import ConfigError, LengthError, ShapeError, TokenError
from glassformer.generation import Sampling, beam_search, generate_steps
from glassformer.generation.reader import CachedReader
from glassformer.models import build
from glassformer.text import CharTokenizer
from sequences import model_of, prompts_of, written

GREEDY = Sampling(temperature=0)
WARM = Sampling(temperature=1.2, top_k=12, top_p=0.95, repetition_penalty=1.2, frequency_penalty=0.1)
SHAPES = {"mha": {}, "gqa": {"kv_heads": 2}, "window": {"window": 4}, "stride": {"stride": 3}}
LENGTHS = (3, 9, 1, 24, 6)  # one of them as long as the context


# By turns the likeliest and drawn ones: every value meets every other.
WAYS = [
    pytest.param(
        positions, shape, (GREEDY, WARM)[(i + j) % 2], id=f"{positions}-{shape}-{('greedy', 'sampled')[(i + j) % 2]}"
    )
    for i, positions in enumerate(POSITION_NAMES)
    for j, shape in enumerate(SHAPES)
]


@pytest.mark.parametrize(("positions", "shape", "sampling"), WAYS)
def test_a_batch_with_a_cache_writes_what_single_runs_without_one_write(positions, shape, sampling):
    model, params = model_of(positions=positions, **SHAPES[shape])
    prompts = prompts_of(*LENGTHS)
    settings = {"max_new_tokens": 14, "sampling": sampling, "stop_ids": [2, 5], "seed": 3}
    ids, finish = written(model, params, prompts, chunk=4, **settings)
    for row, prompt in enumerate(prompts):
        assert written(model, params, [prompt], cache=False, **settings) == ([ids[row]], [finish[row]])
        assert written(model, params, [prompt], **settings) == ([ids[row]], [finish[row]])


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "sampled"])
@pytest.mark.parametrize("positions", POSITION_NAMES)
def test_so_does_an_encoder_decoder_with_sources_of_different_lengths(positions, sampling):
    model, params = model_of("encoder-decoder", positions=positions, source_vocab=19)
    sources, starts = prompts_of(5, 11, 1, 8, vocab=19), [[1], [1, 4, 2], [1], [1, 3]]
    settings = {"max_new_tokens": 9, "sampling": sampling, "stop_ids": [2]}
    ids, finish = written(model, params, starts, sources=sources, **settings)
    for row in range(4):
        alone = written(model, params, [starts[row]], sources=[sources[row]], cache=False, **settings)
        assert alone == ([ids[row]], [finish[row]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cached_logits_equal_uncached_ones_at_every_step(dtype):
    model, params = model_of(dtype=dtype, positions="rotary", window=5)
    prompts = prompts_of(2, 7, 4)
    (ids, _), limit = written(model, params, prompts, max_new_tokens=12), {np.float32: 1e-5, np.float64: 1e-12}[dtype]
    reader = CachedReader(model, params, [np.array(prompt) for prompt in prompts], None, chunk=3)
    for step in range(12):
        for row, prompt in enumerate(prompts):
            expected, _ = model.forward(params, np.array([*prompt, *ids[row][:step]]))
            assert_close(reader.logits[row], expected[-1], limit)
        reader.read(np.array([row[step] for row in ids]))


def test_samples_differ_and_the_seed_brings_them_back():
    model, params = model_of()
    prompts = prompts_of(3, 5)
    ids, _ = written(model, params, prompts, max_new_tokens=10, n=4, seed=1)
    assert len({tuple(row) for row in ids[:4]}) == 4
    assert written(model, params, prompts, max_new_tokens=10, n=4, seed=1)[0] == ids
    assert written(model, params, prompts, max_new_tokens=10, n=4, seed=2)[0] != ids
    # Sample 0 is the one that a run without `n` gives, and prompt 1 stands from sequence 4 on.
    assert written(model, params, prompts, max_new_tokens=10, seed=1)[0] == [ids[0], ids[4]]
    assert written(model, params, prompts[1:], max_new_tokens=10, n=2, seed=1)[0] == ids[4:6]


def test_a_full_context_a_stop_id_and_a_caller_end_a_sequence():
    model, params = model_of()
    ids, finish = written(model, params, prompts_of(24, 20, 2), max_new_tokens=8)
    assert [len(row) for row in ids] == [1, 5, 8]  # the last token needs no room: it is not read
    assert finish == ["length"] * 3

    prompts = prompts_of(3, 4, 5)
    free, _ = written(model, params, prompts, max_new_tokens=12, sampling=GREEDY)
    stops = {free[0][4], free[2][1]}
    ids, finish = written(model, params, prompts, max_new_tokens=12, sampling=GREEDY, stop_ids=stops)
    for row, whole in zip(ids, free, strict=True):
        end = next((i + 1 for i, token in enumerate(whole) if token in stops), len(whole))
        assert row == whole[:end]
    assert finish == ["stop" if row[-1] in stops else "length" for row in ids]
    assert finish[0] == "stop"

    seen = []
    ids, finish = written(
        model, params, prompts_of(3, 4), max_new_tokens=6, ends=lambda row, token: seen.append((row, token)) or row == 1
    )
    assert ([len(row) for row in ids], finish) == ([6, 1], ["length", "stop"])
    assert [token for row, token in seen if row == 0] == ids[0]


def test_ended_sequences_take_no_more_reading():
    model, params = model_of()
    sizes = []

    class Watched(type(model)):
        def read(self, params, tokens, *args, **settings):
            sizes.append(tokens.shape)
            return super().read(params, tokens, *args, **settings)

    steps = generate_steps(
        Watched(model.config), params, prompts_of(3, 10, 22), max_new_tokens=5, chunk=8, ends=lambda row, _: row == 0
    )
    list(steps)
    assert sizes == [(3, 8), (3, 8), (3, 6), (2, 1), (2, 1), (1, 1), (1, 1)]


def test_tokens_come_as_they_are_made():
    model, params = model_of()
    steps = generate_steps(model, params, prompts_of(3), max_new_tokens=20, sampling=None)
    first = next(steps)
    assert first.finish == (None,)
    assert first.log_probabilities is None
    assert next(steps).ids.shape == (1,)


def test_log_probabilities_are_those_of_the_model_whatever_the_sampling():
    model, params = model_of()
    prompts = prompts_of(3, 23)
    settings = {"max_new_tokens": 4, "log_probabilities": 3, "sampling": Sampling(temperature=0.3, top_k=2)}
    steps = list(generate_steps(model, params, prompts, **settings))
    read = list(prompts[0])
    for step in steps:
        logits, _ = model.forward(params, np.array(read))
        expected = logits[-1] - np.log(np.exp(logits[-1]).sum())
        assert_close(step.log_probabilities[0], expected[step.ids[0]])
        order = np.argsort(-expected)[:3]
        assert step.top_ids[0].tolist() == order.tolist()
        assert_close(step.top_log_probabilities[0], expected[order])
        read.append(int(step.ids[0]))
    assert np.isnan(steps[-1].log_probabilities[1])  # that sequence had ended
    chosen = next(generate_steps(model, params, prompts, max_new_tokens=1, log_probabilities=0))
    assert chosen.top_ids is None
    assert chosen.log_probabilities.shape == (2,)


@pytest.mark.parametrize(
    ("prompts", "settings", "error", "message"),
    [
        ([[1] * 25], {}, LengthError, "the prompt has 25 tokens but this model reads at most 24"),
        ([[]], {}, LengthError, "the prompt is empty"),
        ([], {}, LengthError, "there are no prompts"),
        ([[17]], {}, TokenError, "the ids of the prompt hold 17"),
        ([[[1]]], {}, ShapeError, r"the prompt has shape \(1, 1\)"),
        ([[1]], {"max_new_tokens": 0}, ConfigError, "max_new_tokens is 0"),
        ([[1]], {"n": 0}, ConfigError, "n is 0"),
        ([[1]], {"seed": -1}, ConfigError, "seed is -1"),
        ([[1]], {"chunk": 0}, ConfigError, "chunk is 0"),
        ([[1]], {"sources": [[1]]}, ConfigError, "a decoder has no source"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_first_step(prompts, settings, error, message):
    model, params = model_of()
    with pytest.raises(error, match=message):
        generate_steps(model, params, prompts, **{"max_new_tokens": 3, **settings})


def test_an_encoder_decoder_needs_a_source_for_each_prompt_and_an_encoder_does_not_write():
    model, params = model_of("encoder-decoder")
    with pytest.raises(ConfigError, match="needs a source"):
        generate_steps(model, params, [[1]], max_new_tokens=3)
    with pytest.raises(ShapeError, match="1 prompts but 2 sources"):
        generate_steps(model, params, [[1]], sources=[[1], [2]], max_new_tokens=3)
    with pytest.raises(LengthError, match="the source is empty"):
        generate_steps(model, params, [[1]], sources=[[]], max_new_tokens=3)

    model = build("majority")
    with pytest.raises(ConfigError, match="an encoder does not write text"):
        generate_steps(model, model.init(0), [[1]], max_new_tokens=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stop": "."}, "generation has no setting 'stop'"),
        ({"beams": 2}, "generate_steps has no beams"),
        ({"length_penalty": 2.0}, "length_penalty and early_stopping belong to beam search"),
    ],
)
def test_settings_that_do_not_apply_are_refused(settings, message):
    model, params = model_of()
    with pytest.raises(ConfigError, match=message):
        generate_steps(model, params, [[1]], max_new_tokens=3, **settings)


KNOWN = 11
SAMPLING = {
    "greedy": Sampling(temperature=0),
    "drawn": Sampling(temperature=1.5),
    "filtered": Sampling(temperature=1.5, top_k=14, top_p=0.99),
    "penalized": Sampling(temperature=1.5, repetition_penalty=1.3, presence_penalty=0.2),
}


@pytest.fixture(params=["numpy", "jax"])
def engine(request):
    if request.param == "jax":
        request.getfixturevalue("jax")
    with use_engine(request.param):
        yield


@pytest.mark.parametrize("name", SAMPLING)
def test_only_known_ids_are_written(engine, name):
    model, params = model_of(seed=2)
    prompts, settings = prompts_of(3, 5, vocab=KNOWN), {"max_new_tokens": 16, "sampling": SAMPLING[name], "n": 2}
    free, _ = written(model, params, prompts, **settings)
    assert max(map(max, free)) >= KNOWN  # there is something to forbid
    ids, _ = written(model, params, prompts, known=KNOWN, **settings)
    assert max(map(max, ids)) < KNOWN


def test_neither_a_search_nor_a_text_writes_an_id_that_is_not_known(engine):
    model, params = model_of(seed=2)
    (prompt,) = prompts_of(3, vocab=KNOWN)
    settings = {"beams": 3, "max_new_tokens": 8}
    assert max(max(found.ids) for found in beam_search(model, params, prompt, **settings)) >= KNOWN
    found = beam_search(model, params, prompt, known=KNOWN, **settings)
    assert max(max(one.ids) for one in found) < KNOWN
    assert all(np.isfinite(one.score) for one in found)

    padded = TrainedModel(model, params, CharTokenizer("abcdefghijk"))
    assert padded.tokenizer.size == KNOWN < model.config.vocab
    answers = [padded.generate("abc", max_new_tokens=12, temperature=t, seed=s) for t in (0, 2.0) for s in range(3)]
    answers.append(padded.generate("abc", max_new_tokens=6, beams=2))
    assert all(set(answer.text) <= set("abcdefghijk") and answer.text for answer in answers)
    assert "".join(padded.stream("abc", max_new_tokens=12, temperature=0)) == answers[0].text
