"""What a page is told of models and runs."""

import numpy as np
import pytest

from browser import TASKS, state
from glassformer.core.errors import ConfigError
from glassformer.core.tree import flatten
from glassformer.web.router import ask
from glassformer.web.state import read_state


def test_the_models_at_hand(explorer):
    found = ask(explorer, "models", {})
    assert [one["key"] for one in found["models"]] == list(TASKS)
    assert found["first"] == "encoder"


@pytest.mark.parametrize("architecture", TASKS)
def test_a_model_is_described_and_a_run_names_everything_that_can_be_looked_at(explorer, architecture):
    found = ask(explorer, "open", {"model": architecture})
    assert found["architecture"] == architecture
    assert found["precision"] == "float64"
    assert found["parameters"] == explorer.opened(architecture).count
    assert isinstance(found["example"], str)

    found = ask(explorer, "run", {"state": state(architecture)})
    run = explorer.session(read_state(state(architecture))).run
    assert [one["name"] for one in found["values"]] == list(run)
    assert [one["shape"] for one in found["values"]] == [list(run[name].shape) for name in run]
    assert {one["name"] for one in found["parameters"]} == set(flatten(run.params))
    assert [one["id"] for one in found["tokens"]] == run.batch.tokens[0].tolist()
    assert (found["source"] is None) == (architecture != "encoder-decoder")
    assert sum(one["probability"] for one in found["next"]) <= 1 + 1e-12
    assert found["next"][0]["id"] == int(np.argmax(run.logits[0] if run.logits.ndim == 2 else run.logits[0, -1]))


def test_two_names_of_one_value_and_the_number_that_runs_back_are_said(explorer):
    values = {one["name"]: one["same"] for one in ask(explorer, "run", {"state": state("decoder")})["values"]}
    assert values["blocks.0"] == values["blocks.0.output"] != values["blocks.1"]

    assert ask(explorer, "run", {"state": state("decoder")})["of"]["title"] == "the loss"
    of = {"kind": "logit", "token": 1, "against": 2}
    assert " above " in ask(explorer, "run", {"state": state("decoder", of=of)})["of"]["title"]
    entry = {"kind": "entry", "name": "blocks.0", "index": [0, 0, 1]}
    assert ask(explorer, "run", {"state": state("decoder", of=entry)})["of"]["title"] == "blocks.0[0, 0, 1]"


@pytest.mark.parametrize(
    ("word", "question", "said"),
    [
        ("modls", {}, "no question 'modls'"),
        ("models", {"x": 1}, "unknown part 'x'"),
        ("open", {"model": "nobody"}, "no model 'nobody'"),
        ("open", {}, "model is None"),
        ("run", {}, "a state is None"),
        ("run", {"state": {"model": "nobody"}}, "no model"),
    ],
)
def test_other_questions_are_refused(explorer, word, question, said):
    with pytest.raises(ConfigError, match=said):
        ask(explorer, word, question)


def test_keys_and_values_of_cross_attention_stand_at_tokens_of_the_source(explorer):
    values = ask(explorer, "run", {"state": state("encoder-decoder")})["values"]
    sides = {one["name"]: (one["down"], one["across"]) for one in values}
    cross = "decoder.blocks.0.cross_attention"
    for name in ("key", "key.x", "value", "value.x", "attend.k", "attend.v"):
        assert sides[f"{cross}.{name}"] == ("source", None)
    assert sides[f"{cross}.attend.q"] == sides[f"{cross}.query"] == sides["decoder"] == ("tokens", None)
    assert sides[f"{cross}.attend.weights"] == ("tokens", "source")
    assert sides["decoder.blocks.0.attention.attend.weights"] == ("tokens", "tokens")
    assert sides["encoder.blocks.0.attention.attend.weights"] == ("source", "source")
