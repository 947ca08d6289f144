"""Past the context: what is written is what the model says of the tokens in the window, and of nothing else."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.api.trained_model import TrainedModel
from glassformer.config import POSITION_NAMES
from glassformer.core.dispatch import use_engine
from glassformer.core.errors import LengthError
from glassformer.generation import Sampling, beam_search
from glassformer.generation.reader import kept
from glassformer.text import ByteTokenizer, CharTokenizer, WordTokenizer
from runs import TINY
from sequences import model_of, prompts_of, written

GREEDY = Sampling(temperature=0)
WARM = Sampling(temperature=1.2, top_k=12, repetition_penalty=1.2, frequency_penalty=0.1)
LENGTHS = (3, 9, 1, 24, 6)  # one of them as long as the context
FAR = 52  # past two moves of a context of 24


def by_hand(model, params, prompt, count):
    """The likeliest tokens, one by one, each after a fresh read of the window."""
    window, ids = list(prompt), []
    for _ in range(count):
        logits, _ = model.forward(params, np.array(window))
        ids.append(int(np.argmax(logits[-1])))
        window.append(ids[-1])
        if len(window) > model.config.context:
            window = window[-(model.config.context // 2) :]
    return ids


@pytest.mark.parametrize("shape", [{}, {"kv_heads": 2, "window": 4}], ids=str)
@pytest.mark.parametrize("positions", POSITION_NAMES)
def test_a_window_that_moves_is_read_as_if_nothing_had_stood_before_it(positions, shape):
    model, params = model_of(positions=positions, **shape)
    prompts = prompts_of(3, 1, 24)
    ids, finish = written(model, params, prompts, max_new_tokens=FAR, sampling=GREEDY, slide=True, chunk=4)
    assert finish == ["length"] * len(prompts)
    for row, prompt in enumerate(prompts):
        assert ids[row] == by_hand(model, params, prompt, FAR)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_samples_are_the_same_with_and_without_a_cache_and_in_any_batch(positions):
    model, params = model_of(positions=positions)
    prompts = prompts_of(*LENGTHS)
    settings = {"max_new_tokens": 50, "sampling": WARM, "slide": True, "seed": 3, "n": 2, "stop_ids": [2]}
    ids, finish = written(model, params, prompts, **settings)
    for row, prompt in enumerate(prompts):
        both = slice(2 * row, 2 * row + 2)
        assert written(model, params, [prompt], cache=False, **settings) == (ids[both], finish[both])


def test_the_context_changes_nothing_before_its_end_and_moves_at_every_token():
    model, params = model_of(positions="rotary")
    [prompt] = prompts_of(9)
    (short,), finish = written(model, params, [prompt], max_new_tokens=FAR, sampling=GREEDY)
    (long,), _ = written(model, params, [prompt], max_new_tokens=FAR, sampling=GREEDY, slide=True)
    assert (len(short), finish) == (24 + 1 - 9, ["length"])
    assert long[: len(short)] == short
    assert len(long) == FAR

    model, params = model_of(context=1, positions="learned")
    assert kept(1) == 1
    (ids,), _ = written(model, params, [[3]], max_new_tokens=9, sampling=GREEDY, slide=True)
    for before, after in zip([3, *ids], ids, strict=False):
        assert after == int(np.argmax(model.forward(params, np.array([before]))[0][-1]))


def test_beams_go_on_too():
    model, params = model_of(positions="rotary")
    [prompt] = prompts_of(20)
    settings = {"max_new_tokens": 30, "slide": True}
    [best] = beam_search(model, params, prompt, beams=1, **settings)
    assert list(best.ids) == written(model, params, [prompt], sampling=GREEDY, **settings)[0][0]
    found = beam_search(model, params, prompt, beams=3, **settings)
    again = beam_search(model, params, prompt, beams=3, cache=False, **settings)
    assert [one.ids for one in found] == [one.ids for one in again]
    assert len(found[0].ids) == 30


def test_an_encoder_decoder_ends_at_its_context():
    model, params = model_of("encoder-decoder", positions="learned", source_vocab=19)
    settings = {"sources": prompts_of(5, vocab=19), "max_new_tokens": FAR, "sampling": GREEDY}
    assert written(model, params, [[1]], slide=True, **settings) == written(model, params, [[1]], **settings)


@pytest.mark.parametrize("engine", ["numpy", "cpu"])
def test_both_engines_of_the_host_agree(engine):
    model, params = model_of(positions="rotary", dtype=np.float32)
    prompts = prompts_of(4, 20)
    with use_engine(engine):
        ids, _ = written(model, params, prompts, max_new_tokens=FAR, sampling=GREEDY, slide=True)
    assert ids == [by_hand(model, params, prompt, FAR) for prompt in prompts]


@pytest.mark.parametrize("burst", [None, 1, 5])
def test_jax_writes_what_numpy_writes(jax, burst):
    model, params = model_of(positions="rotary", layers=1)
    prompts = prompts_of(4, 20, 24)
    settings = {"max_new_tokens": 40, "sampling": GREEDY, "slide": True}
    settings["stop_ids"] = [written(model, params, prompts[:1], **settings)[0][0][30]]
    with use_engine("jax"):
        found = written(model, params, prompts, burst=burst, **settings)
    assert found == written(model, params, prompts, **settings)


def of_bytes(**settings):
    """A decoder over bytes without special tokens, context 64."""
    model, params = model_of(vocab=256, context=64, **settings)
    return TrainedModel(model, params, ByteTokenizer())


def test_an_answer_and_a_stream_say_whether_they_go_past_the_context():
    model = of_bytes()
    longer, shorter = (model.generate("a" * 60, max_new_tokens=count) for count in (6, 5))
    assert (len(longer.ids), longer.slid) == (6, True)
    assert (len(shorter.ids), shorter.slid) == (5, False)
    assert longer.ids[:5] == shorter.ids
    ended = model.generate("a" * 60, max_new_tokens=100, slide=False)
    assert (ended.ids, ended.slid) == (shorter.ids, False)
    assert model.generate("a" * 60, max_new_tokens=9, beams=2).slid

    stream = model.stream("a" * 60, max_new_tokens=20)
    assert stream.generation is None
    text = "".join(stream)
    assert stream.generation == model.generate("a" * 60, max_new_tokens=20)
    assert stream.generation.text == text
    assert stream.generation.slid


def test_a_prompt_that_is_too_long_is_refused_or_cut_behind_its_start_token():
    model = of_bytes()
    with pytest.raises(LengthError, match="the prompt has 70 tokens but this model reads at most 64") as caught:
        model.generate("ab" * 35)
    assert "--truncate" in caught.value.hint
    settings = {"max_new_tokens": 8, "temperature": 0}
    assert model.generate("x" * 6 + "ab" * 32, truncate=True, **settings) == model.generate("ab" * 32, **settings)
    pieces = model.stream("x" * 6 + "ab" * 32, truncate=True, **settings)
    assert "".join(pieces) == model.generate("ab" * 32, **settings).text

    tokenizer = CharTokenizer("ab", specials=("<bos>", "<eos>"))
    model, params = model_of(vocab=tokenizer.size, context=8)
    known = TrainedModel(model, params, tokenizer, start_id=0)
    settings = {"max_new_tokens": 4, "temperature": 0}
    assert known.generate("abababab", truncate=True, **settings).ids == known.generate("bababab", **settings).ids
    with pytest.raises(LengthError, match="the prompt has 9 tokens but this model reads at most 8"):
        known.generate("abababab")


def test_without_a_prompt_a_model_starts_from_a_line_break():
    settings = {"max_new_tokens": 9, "temperature": 0}
    assert of_bytes().generate("", **settings) == of_bytes().generate("\n", **settings)
    tokenizer = WordTokenizer(["one", "two"])
    model, params = model_of(vocab=tokenizer.size)
    with pytest.raises(LengthError, match="neither a start token nor a line break"):
        TrainedModel(model, params, tokenizer).generate("")


def test_an_answer_ends_with_the_context_and_a_text_goes_on():
    sorter = gf.train("sort", **TINY["sort"], steps=1, show=False)
    assert not sorter.end_ids
    question = next(iter(sorter.task.prompts))
    room = sorter.config.context - len(question) + 1
    assert len(sorter.generate(question, max_new_tokens=99).ids) == room
    assert "".join(sorter.stream(question, max_new_tokens=99)) == sorter.generate(question, max_new_tokens=99).text
    assert len(sorter.generate(question, max_new_tokens=99, slide=True).ids) == 99
