"""`glassformer predict`: what models of every kind answer, and how they refuse."""

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from family_models import saved
from glassformer.api.trained_model import TrainedModel
from glassformer.cli import predict
from glassformer.generation.answer import predict_classes
from glassformer.runs.run import open_run
from runs import command, tiny_session
from tokenizer_files import PUBLISHED

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")

INPUTS = {"majority": "00112220", "counting": "1 2", "sort": "210210", "dates": "1. mai 2020"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model of each kind, hardly trained."""
    found = {}
    for task in (*INPUTS, "text", "lines"):
        folder = tmp_path_factory.mktemp("runs") / task
        list(tiny_session(task, folder, steps=2, eval_every=2).steps())
        found[task] = folder
    return found


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Published encoders, with and without a head for tokens."""
    make, config = PUBLISHED["WordPiece"]
    found = {name: saved(name, tmp_path_factory.mktemp("published") / name) for name in ("bert", "bert, tokens")}
    for folder in found.values():
        make().save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return found


def asked(*args):
    result = command("predict", *args, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)["predictions"]


@pytest.mark.parametrize("task", INPUTS)
def test_a_run_answers_as_its_task_asks(folders, task):
    run = open_run(folders[task])
    [found] = asked(folders[task], INPUTS[task])
    assert found["answer"] == TrainedModel.of_task(run.model, run.load_params(), run.task()).ask(INPUTS[task])
    assert found["input"] == INPUTS[task]
    assert 0 < found["probability"] <= 1


@pytest.mark.parametrize("task", [*INPUTS, "text"])
def test_a_saved_model_answers_as_the_run_that_it_came_from(folders, task, tmp_path):
    gf.save(gf.load(folders[task]), tmp_path / "saved")
    text = INPUTS.get(task, "The ")
    assert asked(tmp_path / "saved", text) == asked(folders[task], text)


def test_a_saved_classifier_names_its_classes_and_a_language_model_needs_no_data(tmp_path, folders):
    tokens = np.arange(40).reshape(10, 4) % 3
    model = gf.train((tokens, tokens[:, 0]), steps=1, width=8, heads=2, layers=1, show=False)
    [found] = asked(gf.save(model, tmp_path / "saved"), "0 1 2 0")
    assert found["answer"] == model.classify([0, 1, 2, 0]).label

    run = folders["text"].rename(tmp_path / "run")
    data = Path(json.loads((run / "config.json").read_text())["task"]["options"]["data"])
    kept = data.rename(tmp_path / "gone.txt")
    try:
        assert asked(run, "The ")[0]["kind"] == "next token"
    finally:
        kept.rename(data)
        run.rename(folders["text"])


class Stdin:
    def __init__(self, content):
        self.buffer = io.BytesIO(content)


def test_without_inputs_each_line_of_stdin_is_one(folders, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(b"00112220\n\n21021021\n"))
    found = asked(folders["majority"])
    assert [one["input"] for one in found] == ["00112220", "", "21021021"], "one row for each line"
    assert found[1] == {"input": "", "error": None}


def test_one_bad_input_loses_no_other_answer(folders, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(b"00112220\n0123\n21021021\n"))
    result = command("predict", folders["majority"])
    assert result.code == 1
    _, first, wrong, last = result.out.splitlines()
    assert "error: character '3'" in wrong
    assert "%" in first
    assert "%" in last


def table(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "text", "note"), *rows])
    return path


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


ROWS = [(i, text, 'a "quoted"\nnote, ü') for i, text in enumerate(["00112220", "1", "", "0123", "2" * 9, "2102"] * 3)]


def test_rows_of_a_file_keep_their_order_and_columns(folders, tmp_path):
    result = command(
        "predict", folders["majority"], "--file", table(tmp_path / "in.csv", ROWS), "--out", tmp_path / "out.csv",
        "--probabilities",
    )  # fmt: skip
    assert (result.code, result.out) == (1, "")
    assert "9 of 18 rows could not be answered" in result.err
    found = read(tmp_path / "out.csv")
    assert [(int(row["id"]), row["text"], row["note"]) for row in found] == ROWS
    model = gf.load(folders["majority"])
    for row in found:
        if row["text"] in ("00112220", "1", "2102"):
            expected = model.classify(row["text"])
            assert (row["prediction"], row["error"]) == (expected.label, "")
            shares = [float(row[f"p({label})"]) for label in expected.probabilities]
            assert shares == pytest.approx(list(expected.probabilities.values()), abs=2e-6)
            assert float(row["probability"]) == max(shares)
        else:
            assert (row["prediction"], row["probability"], row["p(0)"]) == ("", "", "")
            assert any(word in row["error"] for word in ("empty", "character '3'", "9 tokens"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


@pytest.mark.parametrize("ending", ["jsonl", "tsv"])
def test_rows_are_written_in_the_form_of_the_file(folders, tmp_path, ending):
    rows = [(i, text, "plain") for i, text, _ in ROWS[:2]]
    source, out = table(tmp_path / "in.csv", rows), tmp_path / f"out.{ending}"
    assert command("predict", folders["majority"], "--file", source, "--out", out).code == 0
    expected = command("predict", folders["majority"], "--file", source).out
    again = command("predict", folders["majority"], "--file", out, "--text", "text", "--top", 2)
    assert again.code == 0, again.err
    if ending == "tsv":
        assert out.read_text().replace("\t", ",") == expected
    else:
        last = json.loads(again.out.splitlines()[-1])
        assert last["prediction"] == last["prediction_2"]
        assert last["others"].count("%") == 1


@pytest.mark.parametrize("name", ["in.csv", "in.txt"])
def test_bytes_that_are_no_text_are_an_error_of_their_row(folders, tmp_path, name):
    (tmp_path / name).write_bytes(b"text\n012\n\xfc01\n210\n")
    result = command("predict", folders["majority"], "--file", tmp_path / name, "--out", tmp_path / "out.csv")
    assert result.code == 1
    good, bad, last = (tmp_path / "out.csv").read_bytes().splitlines()[-3:]
    assert b"byte 0xfc is not UTF-8" in bad
    assert bad.startswith(b"\xfc01,")
    assert (good[:4], last[:4]) == (b"012,", b"210,")


@pytest.mark.parametrize("task", ["sort", "dates", "text"])
def test_models_of_every_kind_answer_files_of_lines(folders, tmp_path, task):
    text = INPUTS.get(task, "The ")
    (tmp_path / "lines.txt").write_text(f"{text}\n\n{text}\n")
    result = command("predict", folders[task], "--file", tmp_path / "lines.txt")
    first, empty, last = csv.DictReader(io.StringIO(result.out))
    [alone] = asked(folders[task], text)
    assert (first["prediction"], first["error"]) == (alone["answer"], "")
    assert float(first["probability"]) == pytest.approx(alone["probability"], abs=2e-6)
    assert first == last
    assert "line 2: the text is empty" in empty["error"]


def test_what_is_answered_stays_in_a_part_when_interrupted(folders, tmp_path, monkeypatch):
    asked_for = []

    def interrupted(*args, **settings):
        asked_for.append(1)
        if len(asked_for) == 3:
            raise KeyboardInterrupt
        return predict_classes(*args, **settings)

    monkeypatch.setattr(predict, "CHUNK", 4)
    monkeypatch.setattr(predict, "predict_classes", interrupted)
    (tmp_path / "out.csv").write_text("before")
    source = table(tmp_path / "in.csv", [(i, "0012", "") for i in range(10)])
    result = command("predict", folders["majority"], "--file", source, "--out", tmp_path / "out.csv")
    assert result.code == 130
    assert "out.csv.part holds 8 of 10 rows" in result.err
    assert (tmp_path / "out.csv").read_text() == "before"
    assert [row["id"] for row in read(tmp_path / "out.csv.part")] == [str(i) for i in range(8)]


@pytest.mark.parametrize(
    ("content", "args", "code", "message"),
    [
        ("a,b\n1,2\n", (), 1, "none is known for a text"),
        ("text,b\n1,2\n", ("--text", "txt"), 1, "has no column 'txt'"),
        ("text,b\n", (), 1, "has no rows"),
        ("", (), 1, "is empty"),
        ("text\n012\n", ("012",), 2, "inputs are given twice"),
        ("text\n012\n", ("--json",), 2, "written as CSV, TSV or JSONL"),
        ("text\n012\n", ("--out", "out.xlsx"), 2, "ends in .csv"),
        ("text\n012\n", ("--out", "in.csv"), 2, "the file that is read"),
        ("text\n012\n", ("--out", "missing/out.csv"), 2, "in a folder that exists"),
        ('text\n"0\n1"\n', ("--out", "out.tsv"), 2, "a tab or a line break, which TSV cannot"),
    ],
)
def test_files_that_cannot_be_answered_are_refused(folders, tmp_path, monkeypatch, content, args, code, message):
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text(content)
    result = command("predict", folders["majority"], "--file", "in.csv", *args)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_only_classifiers_have_probabilities_of_classes(folders, tmp_path):
    source = table(tmp_path / "in.csv", ROWS)
    for task, fact in (("sort", "has no alternatives"), ("text", "tells no classes apart")):
        result = command("predict", folders[task], "--file", source, "--probabilities")
        assert result.code == 2
        assert fact in result.err
    assert "--out belongs to --file" in command("predict", folders["sort"], "012012", "--out", "a.csv").err


@pytest.mark.parametrize(
    ("task", "args", "code", "message"),
    [
        ("majority", ("0123",), 1, "error: character '3'"),
        ("majority", ("001122200",), 1, "error: the input has 9 tokens but this model reads at most 8"),
        ("majority", ("",), 1, "error: the input is empty"),
        ("majority", ("012", "--top", 0), 2, "error: invalid value for '--top': "),
        ("majority", ("012", "--engine", "jax"), 2, "error: encoders answer on the engines cpu and numpy only"),
        ("sort", ("12",), 1, "error: '12' has 2 digits"),
        ("dates", ("",), 1, "error: there is no date to read"),
        ("text", ("The quick brown fox",), 1, "error: the prompt has 19 tokens but this model reads at most 16"),
    ],
)
def test_what_cannot_be_answered_is_said_clearly(folders, task, args, code, message):
    result = command("predict", folders[task], *args)
    gf.set_engine("numpy")
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert "hint: " in result.err


def test_a_long_text_is_cut_on_demand(folders):
    [cut] = asked(folders["text"], "The quick brown fox", "--truncate")
    [end] = asked(folders["text"], "The quick brown fox"[-16:])
    assert cut["choices"] == end["choices"]


def test_published_models_that_have_nothing_to_predict_are_refused(published, tmp_path):
    result = command("predict", published["bert"], "the fox")
    assert result.code == 2
    assert "encoder without a head" in result.err
    assert "glassformer embed" in result.err
    result = command("predict", published["bert, tokens"], "the fox")
    assert "the input holds no [MASK] to be filled in" in result.err
    assert "there is no" in command("predict", tmp_path / "nothing", "a").err


def test_nothing_to_answer_is_refused(folders, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(b"\n"))
    result = command("predict", folders["majority"])
    assert result.code == 1
    assert "there is nothing to answer" in result.err
