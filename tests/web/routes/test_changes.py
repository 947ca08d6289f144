"""What a page is told about changes: tokens to put in, what follows, what can be switched off."""

import numpy as np
import pytest

from browser import TASKS, state
from glassformer import ops
from glassformer.core.errors import ConfigError, LengthError
from glassformer.interpret import without_positions
from glassformer.web.router import ask
from glassformer.web.state import read_state


def test_tokens_and_classes_are_found_by_their_texts_and_numbers(explorer):
    found = ask(explorer, "vocabulary", {"model": "decoder", "text": "e"})
    assert found["tokens"][0]["label"] == "e"
    assert all("e" in one["label"].casefold() for one in found["tokens"])
    label = explorer.opened("decoder").model.token_labels.tokens
    assert [label(one["id"]) for one in found["tokens"]] == [one["label"] for one in found["tokens"]]

    assert ask(explorer, "vocabulary", {"model": "decoder", "text": "#3"})["tokens"][0]["id"] == 3
    assert ask(explorer, "vocabulary", {"model": "decoder", "text": "#999999"})["tokens"] == []
    found = ask(explorer, "vocabulary", {"model": "encoder", "part": "classes", "text": ""})
    assert [one["label"] for one in found["tokens"]] == ["0", "1", "2"]
    assert ask(explorer, "vocabulary", {"model": "encoder-decoder", "part": "source", "text": "z"})["found"] >= 1


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"model": "decoder", "part": "classes"}, "no 'classes'"),
        ({"model": "decoder", "part": "source"}, "no 'source'"),
        ({"model": "decoder", "text": 3}, "text is 3"),
        ({"model": "decoder", "text": "x" * 201}, "201 characters"),
        ({"model": "decoder", "word": ""}, "unknown part"),
    ],
)
def test_other_searches_are_refused(explorer, question, said):
    with pytest.raises(ConfigError, match=said):
        ask(explorer, "vocabulary", question)


def test_a_second_text_is_shown_as_it_is_read(explorer):
    found = ask(explorer, "second", {"state": state("decoder"), "other": "for y in"})
    assert found["fits"]
    assert "".join(one["label"] for one in found["tokens"]) == "for y in"
    assert not ask(explorer, "second", {"state": state("decoder"), "other": "for"})["fits"]


@pytest.mark.parametrize("architecture", TASKS)
def test_the_outcome_has_both_probabilities(explorer, architecture):
    block = "decoder.blocks.0" if architecture == "encoder-decoder" else "blocks.0"
    asked = state(architecture, changes=[{"word": "zero", "name": f"{block}.attention"}])
    found = ask(explorer, "outcome", {"state": asked, "position": -1})
    seen = explorer.session(read_state(asked))
    row = (0,) if architecture == "encoder" else (0, -1)
    before, after = (ops.softmax(run.logits[row])[0] for run in (seen.plain, seen.run))
    for one in found["rows"]:
        assert (one["before"], one["after"]) == (before[one["id"]], after[one["id"]])
    assert found["moved"] > 0
    assert {int(np.argmax(before)), int(np.argmax(after))} <= {one["id"] for one in found["rows"]}


def test_of_an_answer_the_position_that_lost_most_is_shown_and_others_on_demand(explorer):
    off = [{"word": "zero", "name": "decoder.blocks.0.cross_attention"}]
    asked = state("encoder-decoder", changes=off)
    seen = explorer.session(read_state(asked))
    before, after = (ops.softmax(run.logits)[0][0] for run in (seen.plain, seen.run))
    lost = [before[n, before[n].argmax()] - after[n, before[n].argmax()] for n in range(len(before))]
    assert ask(explorer, "outcome", {"state": asked})["position"] == int(np.argmax(lost))

    first, last = (ask(explorer, "outcome", {"state": state("decoder"), "position": n})["rows"] for n in (0, -1))
    assert first != last
    with pytest.raises(LengthError, match="no position 99"):
        ask(explorer, "outcome", {"state": state("decoder"), "position": 99})


def switches(explorer, architecture):
    """Return what each station of the scene can be switched off by, by name and title."""
    found = ask(explorer, "scene", {"state": state(architecture)})["parts"]
    stations = [one for part in found for one in [*part["start"], *part["end"], *inside(part)]]
    return {(one["name"], off["title"]): off["changes"] for one in stations for off in one["off"]}


def inside(part):
    return [one for block in part["blocks"] for one in block["stations"]]


@pytest.mark.parametrize("architecture", TASKS)
def test_every_switch_can_be_thrown(explorer, architecture):
    found = switches(explorer, architecture)
    run = explorer.session(read_state(state(architecture))).run
    layers = {"encoder": 2, "decoder": 2, "encoder-decoder": 4}[architecture]
    assert len(found) > 4 * layers
    for off in list(found.values())[:: 1 if architecture == "decoder" else 4]:
        changed = explorer.session(read_state(state(architecture, changes=off)))
        assert not np.array_equal(changed.run.logits, run.logits), off
        assert changed.idle == []
        assert "embedding" in changed.gradients


def test_a_norm_that_is_off_leaves_gamma_and_beta(explorer):
    off = switches(explorer, "decoder")["blocks.1.attention_norm", "this norm"]
    run = explorer.session(read_state(state("decoder", changes=off))).run
    gamma, beta = (run.params["blocks"][1]["attention_norm"][name] for name in ("gamma", "beta"))
    np.testing.assert_allclose(
        run["blocks.1.attention_norm"], gamma * run["blocks.1.attention_norm.x"] + beta, rtol=1e-15
    )


def test_without_positions_is_the_model_without_them(explorer):
    off = [{"word": "zero", "name": "positions"}]
    start = explorer.session(read_state(state("decoder")))
    bare = without_positions(start.run)
    assert bare.model.config.positions == "none"
    found = explorer.session(read_state(state("decoder", changes=off)))
    np.testing.assert_array_equal(found.run.logits, bare.logits)
    np.testing.assert_array_equal(found.array("before", "logits"), start.run.logits)
    frozen = [*off, {"word": "freeze", "name": "blocks.0"}]
    held = explorer.session(read_state(state("decoder", changes=frozen))).run
    np.testing.assert_array_equal(held["blocks.0"], start.run["blocks.0"])
    with pytest.raises(ConfigError, match="positions cannot be changed by 'scale'"):
        explorer.session(read_state(state("decoder", changes=[{"word": "scale", "name": "positions", "value": 2}])))


def test_of_two_changes_alike_the_one_that_altered_nothing_is_named(explorer):
    head = {"word": "scale", "name": "blocks.0.attention.output.x", "where": {"head": 0}}
    changes = [{**head, "value": 2.0}, {**head, "value": 1.0}, {"word": "stop", "name": "blocks.0"},
               {"word": "scale_gradient", "name": "blocks.1", "value": 1.0}]  # fmt: skip
    assert ask(explorer, "run", {"state": state("decoder", changes=changes)})["idle"] == [1, 3]
