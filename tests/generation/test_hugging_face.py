"""What we write is what Hugging Face writes: greedy, with penalties, and by beam search; and the same processors."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.generation import Sampling, TokenHistory, beam_search, distribution, generate_steps
from hf_weights import END, FAMILIES, START, VOCAB, pair
from oracles import require

LENGTHS = (7, 3, 12)
NEW = 12


@pytest.fixture(scope="module", params=FAMILIES)
def models(request):
    """The families, each in float64 with a few sets of weights."""
    return request.param, [pair(request.param, seed=seed) for seed in range(2)]


def prompts_of(seed):
    rng = np.random.default_rng(100 + seed)
    return [rng.integers(2, VOCAB, size=length) for length in LENGTHS]


def theirs_of(family, found, prompt, ends=(END,), **settings):
    """The new ids and the score of each answer of Hugging Face to one prompt, without padding."""
    torch = require("torch")
    output = found.theirs.generate(
        torch.tensor(prompt)[None], attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64), do_sample=False,
        max_new_tokens=NEW, eos_token_id=list(ends), pad_token_id=END, return_dict_in_generate=True,
        output_scores=True, **settings,
    )  # fmt: skip
    skip = 1 if family == "t5" else len(prompt)
    answers = [until(row, ends) for row in output.sequences[:, skip:].tolist()]
    scores = getattr(output, "sequences_scores", None)
    return answers, None if scores is None else scores.numpy()


def until(row, ends):
    """The ids up to the first that ends an answer."""
    return row[: next((place + 1 for place, token in enumerate(row) if token in ends), len(row))]


def ours_of(family, found, prompts, **settings):
    """Our new ids for a batch of prompts."""
    sources = prompts if family == "t5" else None
    starts = [[START]] * len(prompts) if family == "t5" else prompts
    answers = [[] for _ in prompts]
    for step in generate_steps(
        found.model, found.params, starts, sources=sources, max_new_tokens=NEW, stop_ids=[END], **settings
    ):
        for answer, token in zip(answers, step.ids.tolist(), strict=True):
            answer += [token] if token >= 0 else []
    return answers


def test_greedy_answers_to_a_batch_in_any_precision_and_with_penalties(models):
    family, found = models
    for seed, one in enumerate(found):
        prompts = prompts_of(seed)
        expected = [theirs_of(family, one, prompt, num_beams=1)[0][0] for prompt in prompts]
        assert ours_of(family, one, prompts, sampling=Sampling(temperature=0)) == expected

    family, _ = models
    one = pair(family, seed=7, dtype="float32")
    prompts = prompts_of(7)
    expected = [theirs_of(family, one, prompt, num_beams=1)[0][0] for prompt in prompts]
    assert ours_of(family, one, prompts, sampling=Sampling(temperature=0)) == expected

    for seed, one in enumerate(found):
        prompts = prompts_of(seed)
        expected = [theirs_of(family, one, p, num_beams=1, repetition_penalty=1.7)[0][0] for p in prompts]
        sampling = Sampling(temperature=0, repetition_penalty=1.7)
        assert ours_of(family, one, prompts, sampling=sampling) == expected


THREE = (END, 2, 6)
# Every value meets every value of the others.
SEARCHES = [
    (2, 0.5, False, (END,)),
    (2, 1.0, True, THREE),
    (2, 2.0, False, THREE),
    (3, 0.5, True, THREE),
    (3, 1.0, False, (END,)),
    (3, 2.0, True, (END,)),
    (4, 0.5, False, THREE),
    (4, 1.0, True, (END,)),
    (4, 2.0, True, THREE),
]


@pytest.mark.parametrize(("beams", "length_penalty", "early_stopping", "ends"), SEARCHES)
def test_beam_search(models, beams, length_penalty, early_stopping, ends):
    family, found = models
    settings = {"length_penalty": length_penalty, "early_stopping": early_stopping}
    for seed, one in enumerate(found):
        prompt = prompts_of(seed)[seed]  # a long one for the first weights, a short one for the others
        expected, scores = theirs_of(family, one, prompt, ends, num_beams=beams, num_return_sequences=beams, **settings)
        start, source = ([START], prompt) if family == "t5" else (prompt, None)
        ours = beam_search(
            one.model, one.params, start, source=source, beams=beams, max_new_tokens=NEW, stop_ids=ends, **settings
        )
        assert [list(answer.ids) for answer in ours] == expected
        assert_close(np.array([answer.score for answer in ours]), scores, 1e-5)


PROCESSORS = {
    "temperature": ({"temperature": 0.7}, [("TemperatureLogitsWarper", 0.7)]),
    "top_k": ({"top_k": 5}, [("TopKLogitsWarper", 5)]),
    "top_p": ({"top_p": 0.8}, [("TopPLogitsWarper", 0.8)]),
    "top_p small": ({"top_p": 0.05}, [("TopPLogitsWarper", 0.05)]),
    "min_p": ({"min_p": 0.1}, [("MinPLogitsWarper", 0.1)]),
    "repetition": ({"repetition_penalty": 1.3}, [("RepetitionPenaltyLogitsProcessor", 1.3)]),
    "reward": ({"repetition_penalty": 0.6}, [("RepetitionPenaltyLogitsProcessor", 0.6)]),
    "all": (
        {"repetition_penalty": 1.2, "temperature": 1.4, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
        [
            ("RepetitionPenaltyLogitsProcessor", 1.2),
            ("TemperatureLogitsWarper", 1.4),
            ("TopKLogitsWarper", 20),
            ("TopPLogitsWarper", 0.9),
            ("MinPLogitsWarper", 0.05),
        ],
    ),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_distributions_equal_those_of_the_processors(name, torch, rng):
    transformers = require("transformers")
    settings, processors = PROCESSORS[name]
    logits, ids = 3 * rng.standard_normal((40, 50)), rng.integers(0, 50, size=(40, 12))
    scores = torch.tensor(logits)
    for processor, value in processors:
        scores = getattr(transformers, processor)(value)(torch.tensor(ids), scores)
    history = TokenHistory.of(ids[:, :7], 50, written=ids[:, 7:])
    assert_close(distribution(logits, history, Sampling(**settings)), torch.softmax(scores, dim=-1).numpy())
