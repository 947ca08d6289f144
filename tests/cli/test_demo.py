"""`glassformer demo`, with few steps: what it says, what it writes, and what it does the second time."""

import json

import pytest

from glassformer.api.trained_model import TrainedModel
from glassformer.cli import demo
from glassformer.runs.run import open_run
from glassformer.web.page_export import page_state
from pages import read_page
from runs import command, small_demo

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    small_demo(monkeypatch)


def test_it_proves_trains_and_writes_one_page_of_three_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = command("demo", "--json", "--out", "here")
    assert result.code == 0, result.err
    summary = json.loads(result.out)
    assert summary["gradients"] == {"exact": 3, "of": 3}
    assert [run["task"] for run in summary["runs"]] == ["majority", "text", "dates"]
    page = read_page(tmp_path / summary["page"])
    assert [model["key"] for model in page.answers["models {}"]["models"]] == ["majority", "text", "dates"]
    for name in ("majority", "text", "dates"):
        # What the page asks when another model is chosen: it opens with its own example.
        opened = page.answers[f'open {{"model":"{name}"}}']
        assert any(
            key.startswith("run ") and (name == "majority" or json.loads(key[4:])["state"] == state(name, opened))
            for key in page.answers
        )
    asked = open_run(tmp_path / "here" / "text")
    best = TrainedModel.of_task(asked.model, asked.load_params("best"), asked.task())
    assert summary["text"] == demo.PROMPT + best.ask(demo.PROMPT, length=300)
    again = command("demo", "--out", "here")
    assert again.code == 2
    assert "here exists already" in again.err


def state(name, opened):
    return page_state(name, opened["example"])


def test_people_get_tables_the_time_of_all_and_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    result = command("demo")
    assert result.code == 0, result.err
    assert "s in all. Open runs/demo-2/" in result.out
    assert "glassformer explore runs/demo-2/text\n" in result.out
    assert result.out.splitlines()[-3].startswith("In a new shell, first: cd ")
    assert "bin/activate" in result.out.splitlines()[-3]
