"""The attentions of a run as a page asks for them: names, words along the sides, what kind of head each one is."""

import numpy as np
import pytest

from browser import state
from glassformer.core.errors import ConfigError, LengthError
from glassformer.interpret import head_scores, products
from glassformer.web.router import ask
from glassformer.web.state import read_state

KINDS = {"encoder": ["encoder"], "decoder": ["decoder"], "encoder-decoder": ["encoder", "decoder", "cross"]}
every = pytest.mark.parametrize("architecture", list(KINDS))


@every
def test_all_kinds_of_attention_are_named_with_their_tokens(explorer, architecture):
    question = {"state": state(architecture)}
    run = explorer.session(read_state(question["state"])).run
    found = ask(explorer, "attention", question)["kinds"]
    assert [one["kind"] for one in found] == KINDS[architecture]
    for one in found:
        assert len(one["layers"]) == len(one["scales"]) == 2
        for name in one["layers"]:
            shape = run[f"{name}.attend.weights"].shape
            assert (one["heads"], len(one["queries"]), len(one["keys"])) == shape[1:]
            assert run[f"{name}.attend.scores"].shape == run[f"{name}.attend.mask"].shape == shape


def test_queries_of_cross_attention_are_of_the_answer_and_keys_of_the_source(explorer):
    found = ask(explorer, "attention", {"state": state("encoder-decoder")})["kinds"][-1]
    run = ask(explorer, "run", {"state": state("encoder-decoder")})
    assert found["queries"] == [token["label"] for token in run["tokens"]]
    assert found["keys"] == [token["label"] for token in run["source"]]


@every
def test_the_heads_of_a_layer_have_a_word_each_and_the_scores_of_the_detectors(explorer, architecture):
    question = {"state": state(architecture)}
    run = explorer.session(read_state(question["state"])).run
    for kind in KINDS[architecture]:
        found = ask(explorer, "heads", {**question, "kind": kind, "layer": 1})
        scored = head_scores(run)[kind]
        assert len(found["words"]) == len(found["spread"]) == run.heads
        assert all(isinstance(word, str) and word for word in found["words"])
        for head, scores in enumerate(found["scores"]):
            assert scores == {name: pytest.approx(float(values[1, head])) for name, values in scored.scores.items()}


def test_a_head_that_looks_at_the_first_token_is_called_so_and_products_come_as_tiles(explorer):
    changes = [{"word": "put", "name": "blocks.0.attention.attend.scores", "where": {"head": 1, "key": 0}, "value": 50}]
    question = {"state": state("decoder", changes=changes), "kind": "decoder", "layer": 0}
    assert ask(explorer, "heads", question)["words"][1] == "first token"

    question = {"state": state("decoder"), "what": "products", "name": "blocks.1.attention", "at": [0, 1]}
    body = ask(explorer, "tile", question)
    run = explorer.session(read_state(question["state"])).run
    want = products(run, "blocks.1.attention")[0, 1]
    assert np.array_equal(np.frombuffer(body[-want.size * 8 :], "<f8").reshape(want.shape), want)


@pytest.mark.parametrize(
    ("more", "kind", "message"),
    [
        ({"kind": "cross", "layer": 0}, ConfigError, "no attention of.*'cross'"),
        ({"kind": "decoder", "layer": 2}, LengthError, "there is no layer 2"),
        ({"kind": "decoder", "layer": -1}, LengthError, "there is no layer -1"),
        ({"kind": "decoder", "layer": 1.5}, ConfigError, "layer is 1.5"),
        ({"kind": "decoder"}, ConfigError, "layer is None"),
        ({"kind": "decoder", "layer": 0, "depth": 1}, ConfigError, "unknown part 'depth'"),
    ],
)
def test_what_does_not_exist_is_refused(explorer, more, kind, message):
    with pytest.raises(kind, match=message):
        ask(explorer, "heads", {"state": state("decoder"), **more})


def test_a_learned_first_vector_stands_before_the_tokens(explorer):
    found = ask(explorer, "attention", {"state": state("encoder")})["kinds"][0]
    tokens = ask(explorer, "run", {"state": state("encoder")})["tokens"]
    before = len(found["keys"]) - len(tokens)
    assert found["keys"] == ["[CLS]"] * before + [token["label"] for token in tokens]
