"""`glassformer inspect`: the explorer's page and figures of any task, in a new folder each time."""

import json

import pytest

from glassformer.cli.inspect import folder_name
from glassformer.web import page_export
from pages import read_page
from runs import command, tiny_session

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")


def trained(task, folder):
    session = tiny_session(task, folder, steps=2, eval_every=1)
    list(session.steps())
    return folder


def inspect(*words):
    result = command("inspect", *words)
    assert result.code == 0, result.err
    return result


@pytest.mark.parametrize("task", ["majority", "counting", "sort", "dates", "lines", "text"])
def test_every_task_has_a_page_and_figures_in_both_themes(task, tmp_path):
    run = trained(task, tmp_path / "mine")
    found = json.loads(inspect(run, "--json").out)
    assert found["page"] == str(run / "pictures" / "index.html")
    page = read_page(found["page"])
    assert page.answers['open {"model":"mine"}']["architecture"]
    run_answer = page.answers['run {"state":"@"}']
    assert any(key.startswith("work lens") for key in page.answers)
    assert len(page.tiles) > len(run_answer["values"])
    dark = [path for path in found["figures"] if path.endswith("-dark.png")]
    assert len(found["figures"]) == 2 * len(dark) > 10


def test_an_input_is_what_the_page_reads(tmp_path):
    run = trained("majority", tmp_path / "mine")
    inspect(run, "00112220")
    page = read_page(run / "pictures" / "index.html")
    assert page.told["text"] == "00112220"
    assert [token["label"] for token in page.answers['run {"state":"@"}']["tokens"]] == list("00112220")


def test_a_second_inspection_keeps_the_first(tmp_path):
    run = trained("majority", tmp_path / "mine")
    inspect(run, "00112220")
    before = (run / "pictures" / "index.html").read_bytes()
    assert "pictures-2" in inspect(run, "22220111").out
    assert (run / "pictures" / "index.html").read_bytes() == before


def test_one_theme_and_figures_for_slides(tmp_path):
    run = trained("majority", tmp_path / "mine")
    inspect(run, "00112220", "--theme", "dark", "--format", "svg", "--out", tmp_path / "slides")
    names = {path.name for path in (tmp_path / "slides").iterdir()}
    assert {"index.html", "prediction.svg"} <= names
    assert not any("-dark" in name or name.endswith(".png") for name in names)


def test_figures_are_written_even_where_a_page_would_be_too_large(tmp_path, monkeypatch):
    run = trained("majority", tmp_path / "mine")
    monkeypatch.setattr(page_export, "LARGEST", 60_000)
    result = inspect(run, "--json")
    assert "no page: the file would have" in result.err
    found = json.loads(result.out)
    assert found["page"] is None
    assert found["figures"]


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
