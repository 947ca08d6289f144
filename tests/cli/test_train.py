"""`glassformer train`: what it prints, what it writes, and what it refuses."""

import json

import pytest

from glassformer.training import list_checkpoints, load_checkpoint
from runs import assert_same_run, command, finished, options, process

pytestmark = pytest.mark.usefixtures("unseen_figures")

FIELDS = ["task", "steps", "parameters", "train_loss", "val_loss", "accuracy", "seconds", "tokens_per_second", "run"]


def small(task, out, *more, steps=6, **settings):
    return "train", task, *options(task, eval_every=3, **settings), "--steps", steps, "--out", out, *more


def error_of(result):
    """The message of a misuse; nothing on stdout, no traceback, exit code 2."""
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert "Traceback" not in result.err
    return result.err


@pytest.mark.parametrize("task", ["majority", "counting", "sort", "dates"])
def test_json_ends_with_one_object(task, tmp_path):
    result = command(*small(task, tmp_path / "run", "--json"))
    assert result.code == 0, result.err
    (line,) = result.out.splitlines()
    summary = json.loads(line)
    assert list(summary)[: len(FIELDS)] == FIELDS
    assert (summary["task"], summary["steps"], summary["run"]) == (task, 6, str(tmp_path / "run"))
    arrays = load_checkpoint(tmp_path / "run").arrays
    assert summary["parameters"] == sum(a.size for name, a in arrays.items() if name.startswith("params."))
    assert 0 <= summary["accuracy"] <= 1
    assert all(summary[name] > 0 for name in ("train_loss", "val_loss", "seconds", "tokens_per_second"))


def test_a_run_folder_holds_everything(tmp_path, coarse_figures):
    command(*small("majority", tmp_path / "run", "--json"))
    names = {path.name for path in (tmp_path / "run").iterdir()}
    pictures = {"loss.png", "loss-dark.png"}
    assert names == {"config.json", "metrics.jsonl", "latest.safetensors", "best.safetensors", "lock", *pictures}
    light, dark = ((tmp_path / "run" / name).read_bytes() for name in sorted(pictures, reverse=True))
    assert light.startswith(b"\x89PNG")
    assert dark.startswith(b"\x89PNG")
    assert light != dark
    assert list_checkpoints(tmp_path / "run") == ["best", "latest"]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]


def test_people_get_words_and_samples(tmp_path):
    result = command(*small("majority", tmp_path / "run"))
    assert result.code == 0
    for part in ("majority: 6 steps", "held-out loss", "'00112220' → '", str(tmp_path / "run")):
        assert part in result.out
    assert "step 3/6  training loss" in result.err


def test_the_best_step_is_among_the_figures(tmp_path):
    summary = json.loads(command(*small("majority", tmp_path / "run", "--json")).out)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    judged = {line["step"]: line["val_loss"] for line in lines if "val_loss" in line}
    assert summary["last_val_loss"] == judged[6]
    assert summary["val_loss"] == judged[summary["best_step"]] == min(judged.values())
    assert summary["compiling_seconds"] >= 0


def test_the_same_seed_trains_the_same_model_and_another_seed_another(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert command(*small("majority", tmp_path / name, "--seed", seed)).code == 0
    assert_same_run(tmp_path / "a", tmp_path / "b")
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "a", tmp_path / "c")


def test_runs_find_a_free_folder_by_themselves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for expected in ("runs/majority", "runs/majority-2", "runs/majority-3"):
        result = command("train", "majority", *options("majority"), "--steps", 1, "--json")
        assert json.loads(result.out)["run"] == expected


def test_a_file_called_pydoc_is_read_by_its_path_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pydoc").write_text("ab" * 200)
    found = {}
    for given in ([], ["--data", "pydoc"], ["--data", "./pydoc"]):
        out = tmp_path / f"run{len(found)}"
        assert command("train", "text", *given, *options("text"), "--steps", 1, "--out", out, "--json").code == 0
        config = json.loads((out / "config.json").read_text(encoding="utf-8"))
        found[len(found)] = (config["task"]["options"].get("data"), config["model"]["vocab"] > 50)
    assert found == {0: (None, True), 1: ("pydoc", True), 2: (str(tmp_path / "pydoc"), False)}


def test_early_stopping_is_told(tmp_path):
    result = command(*small("majority", tmp_path / "run", steps=60, patience=1, lr=0.0))
    assert result.code == 0
    assert "stopped early: the validation no longer improves" in result.err
    again = command("train", "--resume", tmp_path / "run")
    assert again.code == 0
    assert "1 evaluation brought nothing better; --steps N goes on" in again.err
    assert "training majority" not in again.err


def test_a_pipe_gets_plain_lines(tmp_path):
    environment = {"GLASSFORMER_ENGINE": "numpy", "TERM": "xterm-256color"}
    result = finished(process(*small("majority", tmp_path / "run"), env=environment))
    assert result.code == 0, result.err
    assert "\x1b" not in result.out + result.err
    assert "\r" not in result.out + result.err
    assert sum(line.startswith("step ") for line in result.err.splitlines()) == 2


def test_a_finished_run_can_be_resumed_and_says_the_same(tmp_path):
    first = json.loads(command(*small("majority", tmp_path / "run", "--json")).out)
    result = command("train", "--resume", tmp_path / "run", "--json")
    assert result.code == 0
    again = json.loads(result.out)
    for name in ("task", "steps", "parameters", "train_loss", "val_loss", "accuracy", "run"):
        assert again[name] == first[name]
    assert "has taken all of its 6 steps" in result.err


@pytest.mark.parametrize(
    "extra", [["majority"], ["--set", "lr=1"], ["--seed", 0], ["--out", "x"], ["--preset", "gpt2"]]
)
def test_resuming_takes_no_other_settings(extra, tmp_path):
    command(*small("majority", tmp_path / "run"))
    message = error_of(command("train", *extra, "--resume", tmp_path / "run"))
    assert "--resume continues a run with its own settings" in message
    assert "hint: " in message


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        ([], "there is no task to train", "glassformer tasks"),
        (["majorty"], "there is no task 'majorty'", "did you mean 'majority'"),
        (["majority", "--set", "optimizer=adamm"], "there is no optimizer 'adamm'", "did you mean 'adam"),
        (["majority", "--set", "lr=fast"], "lr is 'fast'", "takes: number"),
        (["majority", "--set", "dropout=1.5"], "dropout is 1.5", "below 1"),
        (["text", "--preset", "gpt-2"], "there is no preset 'gpt-2'", "did you mean 'gpt2"),
        (["majority", "--preset", "gpt2"], "'majority' needs 'encoder'", "another preset"),
        (["majority", "--data", "x.txt"], "'majority' has no option 'data'", "this task draws its own"),
    ],
)
def test_misuse_is_answered_with_a_remedy(args, message, hint, tmp_path):
    found = error_of(command("train", *args, "--out", tmp_path / "run"))
    assert message in found
    assert hint in found
    assert not (tmp_path / "run").exists()


def test_a_file_is_no_task_but_can_be_trained_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my notes.txt").write_text("mine")
    result = command("train", "my notes.txt")
    assert result.code == 2
    assert result.err.endswith("hint: train on it: glassformer train text --data 'my notes.txt'\n")


def test_an_existing_folder_is_refused(tmp_path):
    command(*small("majority", tmp_path / "run"))
    before = (tmp_path / "run" / "latest.safetensors").read_bytes()
    message = error_of(command(*small("majority", tmp_path / "run")))
    assert "exists already" in message
    assert f"--resume {tmp_path / 'run'}" in message
    assert (tmp_path / "run" / "latest.safetensors").read_bytes() == before
