"""`glassformer train --task FILE`, and what the other commands make of such a run."""

import json

import pytest

from own_parts import forgotten
from runs import command, options

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")

FILE = """
import glassformer as gf

@gf.task(settings={"width": 8, "heads": 2, "layers": 1})
def letters(*, count=60):
    \"\"\"count in x\"\"\"
    for number in range(count):
        yield f"{number}=", "x" * (number % 3)
"""
QUICK = ["--steps", "2", "--set", "eval_every=1", "--set", "batch=4", "--json"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path


def process(*args):
    """Run a command that knows nothing of what was read before."""
    with forgotten():
        return command(*args)


@pytest.mark.parametrize("way", [["mine.py"], ["--task", "mine.py"], ["letters", "--task", "mine.py"]])
def test_a_file_is_trained_on_and_every_command_finds_it_again(folder, way):
    result = process("train", *way, *QUICK, "--set", "count=70")
    assert result.code == 0, result.err
    run = json.loads(result.out)["run"]
    assert json.loads(result.out)["task"] == "letters"
    assert (folder / run).resolve() == (folder / "runs" / "letters").resolve()
    for words in (
        ["eval", run],
        ["generate", run, "12=", "--max-new-tokens", "2"],
        ["tokenize", run, "12"],
    ):
        again = process(*words)
        assert again.code == 0, again.err
    assert process("train", "--resume", run, "--json").code == 0
    (folder / "mine.py").unlink()
    for words in (["eval", run], ["generate", run, "12="], ["inspect", run], ["train", "--resume", run]):
        gone = process(*words)
        assert gone.code == 1
        assert "mine.py, which holds the task or a part of" in gone.err
        assert "is a copy from when the run began" in gone.err


def test_a_file_with_several_tasks_or_none_needs_a_name(folder):
    (folder / "two.py").write_text(FILE + FILE.replace("letters", "digits"))
    result = process("train", "two.py")
    assert result.code == 2
    assert "two.py holds the tasks letters, digits" in result.err
    assert "glassformer train TASK --task two.py" in result.err
    (folder / "none.py").write_text(
        "import glassformer as gf\ngf.register_activation('halved', lambda x: (x / 2, x), lambda dy, x: dy / 2)\n"
    )
    assert "none.py holds no task" in process("train", "none.py").err
    trained = process("train", "sort", "--task", "none.py", *options("sort", activation="halved", steps=2), "--json")
    assert trained.code == 0, trained.err
    assert process("eval", json.loads(trained.out)["run"]).code == 0


def test_bad_files_are_refused_in_one_line(folder):
    missing = process("train", "missing.py")
    assert missing.code == 1
    assert "missing.py cannot be read" in missing.err
    (folder / "wrong.py").write_text("import nothing_of_that_name\n")
    wrong = process("train", "--task", "wrong.py")
    assert "ModuleNotFoundError: No module named 'nothing_of_that_name' (wrong.py, line 1)" in wrong.err
    unknown = process("train", "mine.py", "--set", "counts=3")
    assert "there is no setting 'counts'" in unknown.err
    assert "`glassformer settings mine.py` lists every setting" in unknown.err
    resumed = process("train", "--resume", "runs/letters", "--task", "mine.py")
    assert "leave out the task and all other settings" in resumed.err


def test_the_tasks_of_a_file_are_listed(folder):
    result = process("tasks", "mine.py", "--json")
    assert json.loads(result.out) == {"letters": "count in x"}
    groups = json.loads(process("settings", "mine.py", "--json").out)
    assert list(groups) == ["task letters", "model (decoder)", "recipe"]
    assert groups["task letters"] == [{"name": "count", "default": 60, "takes": "whole number", "meaning": ""}]
    assert {one["name"]: one["default"] for one in groups["model (decoder)"]}["width"] == 8
    (folder / "two.py").write_text(FILE + FILE.replace("letters", "digits"))
    assert "digits: task digits\tcount\t60" in process("settings", "two.py").out
    (folder / "none.py").write_text(
        "import glassformer as gf\ngf.register_activation('halved', lambda x: (x / 2, x), lambda dy, x: dy / 2)\n"
    )
    assert "none.py holds no task" in process("settings", "none.py").err
    wrong = process("train", "mine.py", "--set", "zzz=1")
    assert "`glassformer settings mine.py` lists every setting" in wrong.err


@pytest.mark.parametrize("words", [["params"], ["plan", "--mesh", "data=1"], ["settings", "text", "--from"], ["eval"]])
def test_a_run_of_another_user_needs_trust_once(folder, monkeypatch, words):
    run = json.loads(process("train", "mine.py", *QUICK).out)["run"]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "another user"))
    refused = process(*words, run)
    assert refused.code == 1
    assert "--trust" in refused.err
    assert process(*words, run, "--trust").code == 0
    assert process(*words, run).code == 0
