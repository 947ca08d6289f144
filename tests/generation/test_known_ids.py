"""A vocabulary may be padded: ids that the tokenizer does not have are never written, on any way."""

import numpy as np
import pytest

from glassformer.api.trained_model import TrainedModel
from glassformer.core.dispatch import use_engine
from glassformer.generation import Sampling, beam_search
from glassformer.text import CharTokenizer
from sequences import model_of, prompts_of, written

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

    model, params = model_of(seed=2)
    padded = TrainedModel(model, params, CharTokenizer("abcdefghijk"))
    assert padded.tokenizer.size == KNOWN < model.config.vocab
    answers = [padded.generate("abc", max_new_tokens=12, temperature=t, seed=s) for t in (0, 2.0) for s in range(3)]
    answers.append(padded.generate("abc", max_new_tokens=6, beams=2))
    assert all(set(answer.text) <= set("abcdefghijk") and answer.text for answer in answers)
    assert "".join(padded.stream("abc", max_new_tokens=12, temperature=0)) == answers[0].text
