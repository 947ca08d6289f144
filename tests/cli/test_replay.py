"""`glassformer replay`: a page and a figure, or everything as JSON."""

import json

import pytest

from pages import read_page
from runs import TINY, command, options


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay") / "run"
    settings = options("majority", steps=6, eval_every=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassformer.cli.train.draw_loss", lambda session: None)
        assert command("train", "majority", "--out", str(folder), "--record", "--json", *settings).code == 0
    assert TINY["majority"]["width"] == 8
    return folder


def test_the_page_holds_every_frame_and_every_map_of_attention(run, unseen_figures):
    result = command("replay", str(run), "11110222", "--frames", "3")
    assert result.code == 0, result.err
    assert "3 frames from step 0 to 6" in result.out
    assert {"course.png", "course-dark.png", "replay.html"} == {path.name for path in (run / "replay").iterdir()}
    answers = read_page(run / "replay" / "replay.html").answers
    told = answers["models {}"]["told"]
    assert (told["view"], told["text"]) == ("training", "11110222")
    course = answers[f'work course {{"model":"{run}"}}']
    steps = [frame["step"] for frame in course["frames"]]
    assert steps[0] == 0
    assert steps[-1] == 6
    for step in steps:
        for head in range(2):
            found = answers[f'course_map {{"head":{head},"layer":0,"model":"{run}","step":{step}}}']
            assert found["rows"] == list("11110222")


def test_a_second_replay_keeps_the_first(run, unseen_figures):
    before = (run / "replay" / "replay.html").read_bytes()
    assert command("replay", str(run), "--step", "1").code == 0
    assert (run / "replay" / "replay.html").read_bytes() == before
    assert (run / "replay-2" / "replay.html").is_file()


def test_everything_is_there_as_json(run):
    result = command("replay", str(run), "--step", "2", "--step", "5", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["step"] == [2, 5]
    assert found["kept"] == [1, 2, 3, 4, 5]
    assert len(found["attention"]) == len(found["answers"]) == 2
    assert sum(name.startswith("gradient.") for name in found) == 8


def test_what_cannot_be_shown_is_refused(run):
    outside = command("replay", str(run), "--step", "7")
    assert outside.code != 0
    assert "cannot return to step 7" in outside.err
    assert "from 0 to 6" in outside.err
    long = command("replay", str(run), "1" * 60)
    assert long.code != 0


def test_every_option_has_its_effect(run, tmp_path, unseen_figures):
    assert len(json.loads(command("replay", run, "--frames", "2", "--json").out)["step"]) == 2
    assert json.loads(command("replay", run, "--step", "4", "--json").out)["step"] == [4]
    assert command("replay", run, "--step", "1", "--out", tmp_path / "pages").code == 0
    assert (tmp_path / "pages" / "replay.html").is_file()
    other = command("replay", run, "--step", "1", "--json", "--engine", "jax")
    assert other.code != 0
    assert "was not started with the engine jax" in other.err


def test_numbers_that_are_not_finite_are_told_apart_from_those_that_there_are_none_of(run, tmp_path):
    settings = options("majority", steps=3, eval_every=3, lr=1e30, clip=0)
    assert command("train", "majority", "--out", tmp_path / "diverged", "--record", "--json", *settings).code == 0
    result = command("replay", tmp_path / "diverged", "--json")
    assert json.loads(result.out)["loss"][0] is None
    assert result.code == 0
    assert "not finite, and therefore null: loss, grad_norm" in result.err
    assert "not finite" not in command("replay", run, "--json").err
