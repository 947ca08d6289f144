"""Steps of tours: their words have the numbers of the run, and what is asked of a wrong run is refused in words."""

import pytest

from browser import TEXTS, state, tiny_model
from glassformer.core.errors import ConfigError, LengthError
from glassformer.web.explorer import Explorer
from glassformer.web.offers import Offer
from glassformer.web.router import ask, load_routes
from glassformer.web.routes.guide import KINDS, NEEDS, tours
from glassformer.web.tour_facts import ABOUT, MEASURES


def test_every_question_names_what_there_is_and_everything_is_asked_for():
    read = {name: tour for name, tour in tours().items() if name != "needs"}
    asked = [step["question"] for tour in read.values() for step in tour.values() if isinstance(step, dict)]
    assert {one.about for one in asked} <= {*ABOUT}
    assert {one.kind for one in asked} == {*KINDS}
    assert {one.measure for one in asked} - {""} == {*MEASURES}
    of_tours = {need for tour in read.values() for need in tour["needs"]}
    assert of_tours == {*tours()["needs"]}
    assert of_tours | {need for one in asked for need in one.needs} == {*NEEDS}


@pytest.mark.parametrize("architecture", TEXTS)
def test_steps_are_about_the_run(explorer, architecture):
    check_tours(explorer, state(architecture, text="for x for" if architecture == "decoder" else TEXTS[architecture]))


@pytest.mark.parametrize(
    ("block", "tour", "missing"),
    [("feed_forward_only", "attention", "has no attention"), ("no_residual", "residual", "no residual connections")],
)
def test_a_model_without_a_part_is_shown_without_it(block, tour, missing, numpy_engine):
    load_routes()
    explorer = Explorer({}, first=block, prompt="for x for")
    explorer.add(Offer(block, block, "given", block), tiny_model("decoder", block=block, positions="learned"))
    own = {"model": block, "text": "for x for"}
    check_tours(explorer, own)
    (lacking,) = [one["lacks"] for one in ask(explorer, "guide", {"state": own}) if one["id"] == tour]
    assert missing in lacking
    scene = ask(explorer, "scene", {"state": own})
    assert scene["parts"][0]["sums"] == bool(scene["growth"]) == (block != "no_residual")
    kinds = {one["kind"] for part in scene["parts"][0]["blocks"] for one in part["stations"]}
    assert ("weights" in kinds) == (block != "feed_forward_only")


def check_tours(explorer, own):
    """Walk every tour that the run has all parts for."""
    for tour in ask(explorer, "guide", {"state": own}):
        number = 0 if not tour["lacks"] else None
        while number is not None:
            step = ask(explorer, "guide_step", {"state": own, "tour": tour["id"], "step": number})
            assert not step["choices"] or 0 <= step["right"] < len(step["choices"]) == len({*step["choices"]})
            assert all("{" not in step[part] for part in ("title", "say", "ask", "why"))
            assert step["point"] in ("tokens", "answers", *explorer_names(explorer, own))
            number = number + 1 if number + 1 < step["count"] else None


def explorer_names(explorer, own):
    return [value["name"] for value in ask(explorer, "run", {"state": own})["values"]]


def test_what_cannot_be_walked_is_refused(explorer):
    question = {"state": state("decoder"), "tour": "first", "step": 0}
    with pytest.raises(ConfigError, match="there is no tour 'frist'"):
        ask(explorer, "guide_step", {**question, "tour": "frist"})
    with pytest.raises(LengthError, match="the tour has no step 6"):
        ask(explorer, "guide_step", {**question, "step": 6})
    with pytest.raises(ConfigError, match="needs an encoder-decoder"):
        ask(explorer, "guide_step", {**question, "tour": "cross"})
    with pytest.raises(ConfigError, match="at least three tokens"):
        ask(explorer, "guide_step", {**question, "state": state("decoder", text="a")})
