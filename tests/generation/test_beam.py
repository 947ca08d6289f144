"""Beam search against every possible sequence, and against a plain second implementation."""

import itertools
from functools import cache

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.generation import Sampling, beam_search
from sequences import model_of, prompts_of, written

VOCAB, END = 4, 1
CASES = list(itertools.product([0.0, 0.5, 1.0, 2.0, -1.0], [False, True]))


def log_p(model, params, prompt, ids, source=None):
    """The log-probability of each of `ids` after the prompt, from one forward pass."""
    tokens = np.array([*prompt, *ids])[:-1]
    logits, _ = model.forward(params, tokens) if source is None else model.forward(params, np.array(source), tokens)
    logits = logits[-len(ids) :]
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return logs[np.arange(len(ids)), ids]


def every_sequence(length):
    """All sequences that end with END, or after `length` tokens."""
    for size in range(1, length + 1):
        for ids in itertools.product(range(VOCAB), repeat=size):
            if END not in ids[:-1] and (ids[-1] == END or size == length):
                yield ids


@cache
def known(seed):
    """A decoder, its prompt, and the log-probability of any sequence after it, computed from scratch but once."""
    model, params = model_of(vocab=VOCAB, positions="rotary", window=3, seed=seed)
    prompt = prompts_of(3, seed=seed, vocab=VOCAB)[0]
    return model, params, prompt, cache(lambda ids: float(log_p(model, params, prompt, ids).sum()))


@cache
def all_sequences(architecture):
    """A model, its source, and the log-probabilities of all sequences of up to four tokens after [2, 3]."""
    model, params = model_of(architecture, vocab=VOCAB)
    source = [2, 3, 0, 1] if architecture == "encoder-decoder" else None
    every = {ids: float(log_p(model, params, [2, 3], ids, source).sum()) for ids in every_sequence(4)}
    return model, params, source, every


def reference(total_of, *, beams, length, penalty, early):
    """Beam search without a cache of keys: `total_of` gives the log-probability of any candidate."""
    live, done = [()], []
    for size in range(1, length + 1):
        scored = []
        for ids in live:
            scored += [(total_of((*ids, token)), (*ids, token)) for token in range(VOCAB)]
        scored.sort(key=lambda pair: -pair[0])
        ended = [pair for pair in scored[:beams] if pair[1][-1] == END or size == length]
        done = sorted(done + [(total / size**penalty, ids) for total, ids in ended], key=lambda pair: -pair[0])[:beams]
        going = [pair for pair in scored if pair[1][-1] != END][:beams]
        live = [ids for _, ids in going]
        if len(done) == beams and (early or going[0][0] / size**penalty <= done[-1][0]):
            break
    return done


@pytest.mark.parametrize("penalty", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("architecture", ["decoder", "encoder-decoder"])
def test_enough_beams_find_the_best_of_all_sequences(architecture, penalty):
    model, params, source, every = all_sequences(architecture)
    assert sum(np.exp(total) for total in every.values()) == pytest.approx(1)
    found = beam_search(
        model, params, [2, 3], source=source, beams=len(every), max_new_tokens=4, length_penalty=penalty, stop_ids=[END]
    )
    expected = sorted(((total / len(ids) ** penalty, ids) for ids, total in every.items()), reverse=True)
    assert [one.ids for one in found] == [ids for _, ids in expected]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-12)


@pytest.mark.parametrize(("penalty", "early"), CASES)
@pytest.mark.parametrize("beams", [1, 2, 3, 5])
def test_fewer_beams_find_what_a_plain_search_finds(beams, penalty, early):
    for seed in range(2):
        model, params, prompt, total_of = known(seed)
        found = beam_search(
            model, params, prompt, beams=beams, max_new_tokens=6, length_penalty=penalty, early_stopping=early,
            stop_ids=[END],
        )  # fmt: skip
        expected = reference(total_of, beams=beams, length=6, penalty=penalty, early=early)
        assert [one.ids for one in found] == [ids for _, ids in expected]
        assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-12)


def test_one_beam_is_greedy():
    for architecture, seed in itertools.product(("decoder", "encoder-decoder"), range(5)):
        model, params = model_of(architecture, seed=seed)
        source = None if architecture == "decoder" else prompts_of(7, seed=seed)[0]
        sources = None if source is None else [source]
        for prompt in prompts_of(1, 4, seed=seed):
            settings = {"max_new_tokens": 15, "stop_ids": [3, 5]}
            greedy = written(model, params, [prompt], sources=sources, sampling=Sampling(temperature=0), **settings)
            (found,) = beam_search(model, params, prompt, source=source, beams=1, **settings)
            assert ([list(found.ids)], [found.finish]) == greedy


@pytest.mark.parametrize("positions", ["learned", "alibi"])
def test_the_cache_changes_nothing(positions):
    model, params = model_of(positions=positions, kv_heads=2)
    prompt = prompts_of(9)[0]
    settings = {"beams": 4, "max_new_tokens": 10, "stop_ids": [3]}
    cached = beam_search(model, params, prompt, chunk=2, **settings)
    plain = beam_search(model, params, prompt, cache=False, **settings)
    assert [one.ids for one in cached] == [one.ids for one in plain]
    assert [one.score for one in cached] == pytest.approx([one.score for one in plain], abs=1e-12)


def test_scores_are_penalized_sums_and_the_context_or_a_caller_ends_a_search():
    model, params = model_of()
    for one in beam_search(model, params, [1, 2], beams=4, max_new_tokens=8, length_penalty=0.7, stop_ids=[3]):
        assert list(one.log_probabilities) == pytest.approx(list(log_p(model, params, [1, 2], one.ids)), abs=1e-12)
        assert one.score == pytest.approx(sum(one.log_probabilities) / len(one.ids) ** 0.7)
        assert one.finish == ("stop" if one.ids[-1] == 3 else "length")

    found = beam_search(model, params, prompts_of(22)[0], beams=3, max_new_tokens=100)
    assert [len(one.ids) for one in found] == [3, 3, 3]
    assert {one.finish for one in found} == {"length"}
    found = beam_search(model, params, [1], beams=3, max_new_tokens=9, ends=lambda ids: len(ids) == 2)
    assert {(len(one.ids), one.finish) for one in found} == {(2, "stop")}


@pytest.mark.parametrize("settings", [{"beams": 0}, {"length_penalty": float("nan")}])
def test_settings_without_meaning_are_refused(settings):
    model, params = model_of()
    with pytest.raises(ConfigError, match="beams is"):
        beam_search(model, params, [1], **{"beams": 2, "max_new_tokens": 3, **settings})


@pytest.mark.parametrize("penalty", [1e308, -3000.0])
def test_a_penalty_beyond_all_numbers_is_refused(penalty):
    model, params = model_of()
    with pytest.raises(ConfigError, match=r"length_penalty is .*, too much for answers of up to 3 tokens"):
        beam_search(model, params, [1], beams=2, max_new_tokens=3, length_penalty=penalty)
    assert beam_search(model, params, [1], beams=2, max_new_tokens=3, length_penalty=-200.0)[0].score < 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampling": Sampling(temperature=0.5)}, "beam search takes the likeliest answer and draws none"),
        ({"n": 3}, "n is 3, but the search has 2 beams"),
        ({"log_probabilities": 1}, "keeps the log-probabilities of the chosen tokens only"),
        ({"beam": 2}, "generation has no setting 'beam'"),
    ],
)
def test_settings_that_mean_nothing_in_a_search_are_refused(settings, message):
    model, params = model_of()
    with pytest.raises(ConfigError, match=message):
        beam_search(model, params, [1], beams=2, max_new_tokens=3, **settings)
