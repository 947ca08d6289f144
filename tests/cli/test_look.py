"""`glassformer look`: every view on every architecture, as tables and as JSON, and what it refuses."""

import io
import json
import re

import numpy as np
import pytest

from glassformer.api.loading import read_model
from glassformer.cli import look as look_module
from glassformer.cli.look_views import VIEWS
from glassformer.interpret import attribute
from glassformer.interpret.reading import logit_of
from glassformer.progress.console import SafeConsole
from glassformer.training.checkpoint import load_checkpoint, save_checkpoint
from pages import read_page, write_dot
from runs import command, finish, tiny_session

INPUTS = {"majority": ("00112220", "11112220"), "dates": ("1. mai 2020", "2. mai 2020"), "text": ("the ", "tho ")}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model of each architecture, hardly trained."""
    found = {}
    for task in INPUTS:
        folder = tmp_path_factory.mktemp("runs") / task
        list(tiny_session(task, folder, steps=2, eval_every=2).steps())
        found[task] = folder
    return found


def look(*args):
    result = command("look", *args)
    assert result.code == 0, result.err
    return result.out


def refused(*args):
    result = command("look", *args)
    assert result.code in (1, 2)
    return result.err


@pytest.mark.parametrize("task", INPUTS)
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_every_architecture(task, view, folders):
    text, other = INPUTS[task]
    arguments = [folders[task], text, view]
    if view == "words" and task != "majority":
        assert "so it tells no classes apart" in refused(*arguments)
        return
    if view == "patching":
        subject = read_model(folders[task])
        if subject.watch(text).batch.tokens.shape != subject.watch(other).batch.tokens.shape:
            pytest.fail("the two texts have answers of different lengths")
        arguments += ["--other", other, "--token", "#1"]
    found = json.loads(look(*arguments, "--json"))
    assert found["view"] == view
    assert found["rows"]
    assert all(isinstance(row, dict) for row in found["rows"])
    title, header, *lines = look(*arguments).splitlines()
    assert title.startswith("# ")
    assert lines
    assert {line.count("\t") for line in lines} == {header.count("\t")}


def test_words_are_explained_as_in_python_and_in_color_on_a_terminal(folders, monkeypatch):
    folder = folders["majority"]
    expected = read_model(str(folder)).explain("00112220", "1")
    found = json.loads(look(folder, "00112220", "words", "--token", "1", "--json"))
    assert (found["class"], found["probability"]) == ("1", pytest.approx(expected.probability))
    assert {row["start"]: row["left_out"] for row in found["rows"]} == {
        word.start: pytest.approx(word.left_out, abs=1e-6) for word in expected.words
    }
    assert "\x1b[" not in look(folder, "00112220", "words")
    long = "01" * 100
    assert "reads at most 8" in refused(folder, long, "words")
    assert "the context does not hold the first word" in refused(folder, long, "words", "--truncate")
    assert "lens has no option --truncate" in refused(folder, long, "lens", "--truncate")
    for settings, colors in (({"color_system": "truecolor"}, True), ({"no_color": True}, False)):
        out = io.StringIO()
        drawn = SafeConsole(out, force_terminal=True, width=200, **settings)
        monkeypatch.setattr(look_module, "console", lambda drawn=drawn: drawn)
        look_module.print_passages(expected.result().passages)
        assert ("48;2;" in out.getvalue()) == colors  # the words that decided, on a color


def test_the_numbers_are_those_of_python_for_the_token_that_is_explained(folders):
    subject = read_model(str(folders["majority"]))
    run = subject.watch("00112220")
    target = logit_of(run, "2", "0", -1)
    expected = attribute(run, target)
    found = json.loads(look(folders["majority"], "00112220", "attribution", "--token", "2", "--against", "0", "--json"))
    assert found["logit"] == pytest.approx(expected.value)
    assert sum(row["value"] for row in found["rows"]) == pytest.approx(found["logit"], rel=1e-4)

    found = json.loads(look(folders["text"], "the loop", "--json"))
    subject = read_model(str(folders["text"]))
    run = subject.watch("the loop")
    assert found["rows"][-1]["rank"] == 1
    assert found["target"] == run.label(int(np.argmax(run.logits[0, -1])))

    subject = read_model(str(folders["dates"]))
    run = subject.watch(INPUTS["dates"][0])
    found = json.loads(look(folders["dates"], INPUTS["dates"][0], "--json"))
    assert found["target"] == run.label(int(np.argmax(run.logits[0, 0])))
    last = json.loads(look(folders["dates"], INPUTS["dates"][0], "--position", "-1", "--json"))
    assert last["target"] == run.label(int(np.argmax(run.logits[0, -1])))

    assert "head 0" in look(folders["majority"], "00112220", "attribution", "--top", 99)
    assert "block 0 head 0" in look(folders["majority"], "00112220", "heads", "--top", 99)


def test_a_long_view_reports_its_progress(folders, monkeypatch):
    monkeypatch.setattr("glassformer.progress.display.PATIENCE", -1.0)
    result = command("look", folders["majority"], "00112220", "patching", "--other", "11112220")
    assert re.search(r"patching: \d+ of \d+ changed runs", result.err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["11110222", "lense"], "did you mean 'lens'"),
        (["11110222", "lens", "--other", "1"], "--other is for patching"),
        (["11110222", "lens", "--way", "mean"], "--way is for ablation"),
        (["11110222", "lens", "--against", "2"], "--against is for attribution"),
        (["11110222", "heads", "--token", "1"], "heads has no option --token"),
        (["11110222", "heads", "--position", "3"], "heads has no option --position"),
        (["11110222", "lens", "--position", "99"], "a classifier predicts once"),
        (["11110222", "patching"], "patching needs a second text"),
        (["11110222", "lens", "--token", "7"], "there is no class '7'"),
        (["11110222", "lens", "--token", "#9"], "there is no logit 9"),
        (["11110222", "ablation", "--way", "nothing"], "nothing"),
        ([""], "nothing to read"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, words, folders):
    err = refused(folders["majority"], *arguments)
    assert words in err


def test_tokens_that_are_several_are_named(folders):
    err = refused(folders["text"], "the", "lens", "--token", "ab")
    assert "'ab' is 2 tokens" in err
    err = refused(folders["text"], "the", "lens", "--position", "5")
    assert "no position 5" in err
    err = refused(folders["text"], "the", "patching", "--other", "the loop")
    assert "as many tokens" in err


@pytest.mark.parametrize("view", VIEWS)
def test_a_figure_is_written(view, folders, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.plots.save", write_dot)
    more = ["--other", "11112220", "--token", "#1"] if view == "patching" else []
    look(folders["majority"], "00112220", view, *more, "--figure", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0


@pytest.mark.parametrize("view", [name for name, view in VIEWS.items() if view.page])
def test_the_page_holds_the_numbers_of_the_view(view, folders, tmp_path):
    asked = [] if view == "heads" else ["--token", "#1"]
    look(folders["majority"], "00112220", view, *asked, "--page", tmp_path / "page.html")
    page = read_page(tmp_path / "page.html")
    assert page.told["text"] == "00112220"
    if view in ("lens", "attribution"):
        assert page.told["look"]["lens"]["token"] == "#1"
        (key,) = [key for key in page.answers if key.startswith("work attribution") and '"token":"#1"' in key]
        assert page.answers[key]["token"]["id"] == 1
    if view == "gradients":
        assert page.answers['run {"state":"@"}']["of"]["token"] == 1


def test_views_that_the_page_does_not_have_are_refused(folders, tmp_path):
    err = refused(folders["majority"], "00112220", "ablation", "--page", tmp_path / "page.html")
    assert "the page has no view of ablation" in err
    assert "--figure" in err


@pytest.mark.parametrize(("option", "file"), [("--figure", "a.gif"), ("--page", "a.pdf")])
def test_files_of_other_kinds_are_refused(option, file, folders, tmp_path):
    err = refused(folders["majority"], "00112220", "lens", option, tmp_path / file)
    assert "is not the name of a" in err
    assert not (tmp_path / file).exists()


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e38])
@pytest.mark.parametrize("line", ["look", "look attribution", "look gradients", "predict", "inspect", "embed"])
def test_weights_that_are_no_numbers_are_refused_in_one_sentence(line, number, tmp_path, coarse_figures):
    words = line.split()
    finish(tiny_session("majority", tmp_path / "run", steps=1))
    found = load_checkpoint(tmp_path / "run", "best")
    arrays = {name: np.full_like(array, number) for name, array in found.arrays.items()}
    save_checkpoint(tmp_path / "run", "best", arrays, found.meta)
    result = command(words[0], tmp_path / "run", "00112220", *words[1:])
    assert result.code == 1
    assert "are not finite numbers" in result.err
    assert "Warning" not in result.err
    assert result.out == ""


@pytest.mark.parametrize(("view", "other"), [("ablation", ()), ("patching", ("--other", "00112220"))])
def test_figures_that_are_not_finite_are_not_taken_for_what_ctrl_c_left_out(view, other, tmp_path, coarse_figures):
    finish(tiny_session("majority", tmp_path / "run", steps=1))
    found = load_checkpoint(tmp_path / "run", "best")
    arrays = {name: np.array(array) for name, array in found.arrays.items()}
    # What head 0 adds, and the bias of the output, cancel: without the head the bias alone is left, and overflows.
    output, value = (f"params.blocks.0.attention.{matrix}" for matrix in ("output", "value"))
    arrays[f"{value}.w"][:], arrays[f"{value}.b"][:] = 0, np.eye(8)[0]
    arrays[f"{output}.w"][:], arrays[f"{output}.b"][:] = -3e38 * np.eye(8)[0][:, None], 3e38
    arrays["params.embedding.tokens.table"][2] = 3e38  # only the other text has this token
    save_checkpoint(tmp_path / "run", "best", arrays, found.meta)
    result = command("look", tmp_path / "run", "00110000", view, *other)
    assert result.code == 1
    assert f"{view} figures are not finite numbers" in result.err
    assert "interrupted" not in result.err
    assert result.out == ""
