"""`glassformer inspect`: a page for every task, named after the model, in the theme and the formats one asks for."""

import json
from dataclasses import replace

import pytest

from glassformer.cli.inspect import answers, described, folder_name
from glassformer.data import build_task
from glassformer.plots import write_report
from glassformer.runs.base import Base
from pages import read_page
from runs import command, tiny_session

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")


def trained(task, folder):
    session = tiny_session(task, folder, steps=2, eval_every=1)
    for _ in session.steps():
        pass
    return folder


def inspect(*words):
    result = command("inspect", *words)
    assert result.code == 0, result.err
    return result


@pytest.mark.parametrize("task", ["majority", "counting", "sort", "dates", "lines", "text"])
def test_every_task_has_a_page_in_both_themes(task, tmp_path, monkeypatch):
    # `tests/plots/test_inspection.py` draws every architecture, and `test_demo.py` all of a page by a command.
    monkeypatch.setattr("glassformer.cli.inspect.SAMPLE", 40)
    run = trained(task, tmp_path / "mine")
    found = json.loads(inspect(run, "--json").out)
    assert found["page"] == str(run / "pictures" / "index.html")
    page = read_page(run / "pictures" / "index.html")
    assert "Inside mine" in page.words
    shown = [image["src"] for image in page.images] + [image["src"] for image in page.dark]
    assert len(page.dark) == len(page.images) > 5
    assert sorted(found["pictures"]) == sorted(str(run / "pictures" / name) for name in shown)


def test_a_page_names_the_data_of_the_reader(tmp_path):
    run = tiny_session("text", tmp_path / "mine").run
    assert described(run, run.task()) == f"Learned from {tmp_path / 'data' / 'text.txt'}."


def test_a_page_names_the_options_of_the_reader(tmp_path):
    run = tiny_session("sort", tmp_path / "mine").run
    task = run.task()
    assert described(run, task) == "Learned: sort 6 digits from {0, 1, 2}."
    modular = replace(run, task_name="modular", task_options={"modulus": 5, "operation": "+"})
    assert described(modular, build_task("modular", modulus=5)) == "Learned: the task modular, with modulus 5."
    text = replace(run, task_name="text", task_options={"seed": 0})
    assert described(text, build_task("text")) == "Learned: continue a text: Python's own documentation."
    tuned = replace(text, base=Base("smollm2", ""), task_options={"data": "notes.txt"})
    assert described(tuned, task) == "Began as smollm2, learned from notes.txt."


def test_what_a_language_model_writes_keeps_its_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.cli.inspect.SAMPLE", 20)
    session = tiny_session("lines", tmp_path / "mine", steps=1)
    for _ in session.steps():
        pass
    (section,) = answers(session.trained)
    assert section.text == "Drawn at random, with seeds 0 to 9."
    (sample,) = section.samples
    assert sample.count("\n") >= 9
    path = write_report(tmp_path, "Title", [section])
    assert sample in read_page(path).words


def test_one_theme_and_figures_for_slides(tmp_path):
    run = trained("majority", tmp_path / "mine")
    result = inspect(run, "00112220", "--theme", "dark", "--format", "svg", "--out", tmp_path / "slides")
    assert "drawing " in result.err
    names = {path.name for path in (tmp_path / "slides").iterdir()}
    assert {"index.html", "prediction.png", "prediction.svg"} <= names
    assert not any("-dark" in name for name in names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--theme", "drak"], "there is no theme 'drak'"),
        (["--format", "jpg"], "there is no format 'jpg'"),
    ],
)
def test_unknown_themes_and_formats_are_refused(words, message, tmp_path):
    result = command("inspect", tmp_path, *words)
    assert result.code == 2
    assert message in result.err
    assert "hint: " in result.err


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("smollm2", "smollm2"),
        ("hf:org/Name-1.5B", "Name-1.5B"),
        ("models/mine/", "mine"),
        ("./weights.Q4_0.gguf", "weights.Q4_0"),
        ("C:\\models\\mine", "mine"),
        ("a b?c", "a-b-c"),
        ("..", "model"),
    ],
)
def test_folders_are_named_after_the_model(model, name):
    assert folder_name(model) == name
