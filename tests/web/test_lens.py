"""What the model would say at each point, and what adds to a logit, as a page asks for it."""

from dataclasses import replace

import numpy as np
import pytest

from browser import state
from glassformer.api.trained_model import TrainedModel
from glassformer.core.errors import ConfigError, GlassformerError, LengthError, TokenError
from glassformer.interpret import Logit, attribute, lens
from glassformer.models import Encoder
from glassformer.web.offers import Offer
from glassformer.web.router import ask
from glassformer.web.state import read_state

POSITIONAL = ["decoder", "encoder-decoder"]


def result(explorer, word, **question):
    """Return what a job found."""
    started = ask(explorer, word, question)
    found = explorer.jobs.get(started["job"])
    assert found.ended.wait(20)
    assert found.error is None
    return found.result


@pytest.mark.parametrize("architecture", POSITIONAL)
def test_cells_say_what_the_lens_says(explorer, architecture):
    found = result(explorer, "lens", state=state(architecture), count=3, token="#2", between=True)
    run = explorer.session(read_state(state(architecture))).run
    want = lens(run)
    last = run.logits.shape[1]
    assert [point["label"] for point in found["points"]] == [point.label for point in want.points]
    assert [column["position"] for column in found["columns"]] == [last - 3, last - 2, last - 1]
    ids, odds = want.top(5)
    for column in found["columns"]:
        for point, cell in enumerate(column["cells"]):
            at = (point, 0, column["position"])
            np.testing.assert_allclose(cell["p"], odds[at], rtol=1e-9)
            assert cell["ids"] == ids[at].tolist()
            assert cell["chance"] == pytest.approx(want.probabilities(2)[at])
            assert cell["rank"] == want.ranks(2)[at] + 1
            assert all(number in found["labels"] for number in cell["ids"])


def test_a_lens_has_one_point_for_each_block_and_reads_a_classifier_as_a_whole(explorer):
    found = result(explorer, "lens", state=state("decoder"))
    assert [point["label"] for point in found["points"]] == ["embedding", "block 0", "block 1"]
    assert [column["position"] for column in found["columns"]] == list(range(8))
    assert found["columns"][0]["cells"][0]["chance"] is None
    found = result(explorer, "lens", state=state("decoder"), first=2, count=2)
    run = explorer.session(read_state(state("decoder"))).run
    assert [column["position"] for column in found["columns"]] == [2, 3]
    assert found["columns"][0]["cells"][-1]["ids"][0] == run.logits[0, 2].argmax()

    found = result(explorer, "lens", state=state("encoder"), token="1")
    (column,) = found["columns"]
    assert column["position"] is None
    assert sorted(column["cells"][-1]["ids"]) == [0, 1, 2]
    assert found["token"] == {"id": 1, "label": "1"}
    assert 1 <= column["cells"][-1]["rank"] <= 3


@pytest.mark.parametrize("architecture", ["encoder", *POSITIONAL])
def test_parts_sum_to_the_logit(explorer, architecture):
    found = result(explorer, "attribution", state=state(architecture), token="#1", against="#0")
    run = explorer.session(read_state(state(architecture))).run
    want = attribute(run, Logit(1, against=0))
    assert found["value"] == pytest.approx(want.value)
    assert found["sum"] == pytest.approx(found["value"], rel=1e-9)
    assert sum(found["by_kind"].values()) == pytest.approx(found["value"], rel=1e-9)
    assert [part["name"] for part in found["parts"]] == [row["name"] for row in want.result().records]
    assert found["position"] == (None if architecture == "encoder" else run.logits.shape[1] - 1)


def test_the_likeliest_token_is_taken_apart_unless_one_is_named(explorer):
    found = result(explorer, "attribution", state=state("decoder"))
    run = explorer.session(read_state(state("decoder"))).run
    assert found["token"]["id"] == run.logits[0, -1].argmax()


@pytest.mark.parametrize(
    ("word", "more", "kind", "message"),
    [
        ("lens", {"count": 0}, ConfigError, "0 positions at once"),
        ("lens", {"count": 65}, ConfigError, "65 positions at once"),
        ("lens", {"first": 8}, LengthError, "there is no position 8"),
        ("lens", {"first": "2"}, ConfigError, "first is '2'"),
        ("lens", {"token": 5}, ConfigError, "token is 5"),
        ("lens", {"token": "#100000"}, TokenError, "there is no logit 100000"),
        ("lens", {"layer": 1}, ConfigError, "unknown part 'layer'"),
        ("attribution", {"position": 8}, LengthError, "there is no position 8"),
        ("attribution", {"against": ""}, TokenError, "is 0 tokens"),
        ("attribution", {"token": "for"}, TokenError, "tokens"),
    ],
)
def test_what_does_not_exist_is_refused_at_once(explorer, word, more, kind, message):
    with pytest.raises(kind, match=message):
        ask(explorer, word, {"state": state("decoder"), **more})


def test_a_model_without_a_head_is_told_so(explorer):
    own = explorer.opened("encoder").model
    model = Encoder(replace(own.config, head="none", classes=None))
    bare = TrainedModel.of_task(model, model.init(0, np.float64), own.task, source="bare")
    explorer.add(Offer("bare", "bare", "given", "bare"), bare)
    for word in ("lens", "attribution"):
        with pytest.raises(GlassformerError, match="bare has no head to read the stream with"):
            ask(explorer, word, {"state": {**state("encoder"), "model": "bare"}})
