"""`glassformer train` with a head or a file of one's own, and what the other commands make of such a run."""

import itertools
import json

import numpy as np
import pytest

import glassformer as gf
from fine_tuning import sentence_encoder
from glassformer.core.tree import flatten
from glassformer.runs.start import new_session
from glassformer.training import load_checkpoint
from own_parts import forgotten
from runs import assert_same_run, command, options

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")

PLAN = {"steps": 12, "eval_every": 4, "save_every": 5, "batch": 8}
MODES = {"head": [], "lora": ["--lora", "--set", "lora_rank=2"], "whole": ["--set", "freeze=none"]}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return sentence_encoder(tmp_path_factory.mktemp("base") / "bert")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "labels.csv"
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    rows = [f"{' '.join(words[i % 9] for i in range(n, n + 3 + n % 5))} {n},{'odd' if n % 2 else 'even'}"
            for n in range(60)]  # fmt: skip
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return path


def train(mode, base, table, out, *more):
    settings = [part for name, value in PLAN.items() for part in ("--set", f"{name}={value}")]
    return command("train", "classify", "--data", table, "--from", base, "--out", out, *MODES[mode], *settings, *more)


@pytest.mark.parametrize("mode", MODES)
def test_a_published_encoder_becomes_an_ordinary_classifier(mode, base, table, tmp_path):
    result = train(mode, base, table, tmp_path / "run", "--json")
    assert result.code == 0, result.err
    summary = json.loads(result.out)
    model = gf.load(tmp_path / "run")
    found = model.evaluate()  # by the whole model: what was computed once must be what it computes
    assert found.loss == pytest.approx(summary["val_loss"], rel=1e-5)
    assert (model.labels, model.config.pooled_norm) == (("even", "odd"), True)
    assert model.classify("a quick fox").label in model.labels

    trained = {name for name in load_checkpoint(tmp_path / "run", "best").arrays if name.startswith("params")}
    before, after = flatten(gf.load(base).params), flatten(model.params)
    moved = {name for name in before if name in after and not np.array_equal(before[name], after[name])}
    assert {"params.classifier.w", "params.classifier.b"} <= trained
    assert {"head": not moved, "lora": 0 < len(moved) < 3, "whole": len(moved) > 10}[mode]
    assert summary["trained_parameters"] == sum(np.size(x) for x in flatten(model.params).values()) or mode != "whole"
    if mode == "head":
        assert len(trained) == 2
        np.testing.assert_allclose(model.embed("a quick fox"), gf.load(base).embed("a quick fox"), atol=1e-6)
    explained = model.explain("a quick, lazy fox")
    assert [word.word for word in explained.words] == ["a", "quick", ",", "lazy", "fox"]
    assert explained.rest == 0  # [CLS] and [SEP] are those of the baseline
    assert abs(explained.missing) <= 1e-3 * max(1, abs(explained.difference))
    again = gf.load(model.save(tmp_path / "saved"))
    assert again.classify("a quick fox") == model.classify("a quick fox")
    if mode == "lora":
        refused = command("export", tmp_path / "run", tmp_path / "adapter", "--format", "peft")
        assert "a new classifier was trained beside the adapters" in refused.err


@pytest.mark.parametrize("mode", MODES)
def test_resumed_is_uninterrupted(mode, base, table, tmp_path):
    assert train(mode, base, table, tmp_path / "whole", "--json").code == 0
    settings = PLAN | ({"lora_rank": 2} if mode == "lora" else {"freeze": None} if mode == "whole" else {})
    session = new_session(
        "classify", tmp_path / "cut", source=str(base), adapters=mode == "lora", data=str(table), settings=settings
    )
    list(itertools.islice(session.steps(), 7))
    assert command("train", "--resume", tmp_path / "cut", "--json").code == 0
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_python_trains_the_same_head(base, table, tmp_path):
    assert train("head", base, table, tmp_path / "run", "--json").code == 0
    model = gf.train(str(table), gf.load(base), show=False, **PLAN)
    np.testing.assert_array_equal(model.params["classifier"]["w"], gf.load(tmp_path / "run").params["classifier"]["w"])
    assert model.labels == ("even", "odd")


def test_the_defaults_that_are_listed_are_those_that_are_used(base, table, tmp_path):
    for mode in ("head", "lora"):
        lora = MODES[mode][:1]
        listed = json.loads(command("settings", "classify", "--from", base, *lora, "--json").out)
        shown = {one["name"]: one["default"] for one in listed["recipe of fine-tuning"]}
        plan = new_session("classify", tmp_path / mode, source=str(base), adapters=mode == "lora", data=str(table))
        used = plan.run.recipe.to_dict()
        assert {name: used[name] for name in shown if name != "shards"} == {
            name: value for name, value in shown.items() if name != "shards"
        }
        dropout = {one["name"]: one["default"] for one in listed[f"model ({base})"]}["dropout"]
        assert plan.run.config.dropout == dropout


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
    for task, setting in (("sort", "activation"), ("majority", "pooled_activation")):
        quick = options(task, **{setting: "halved"}, steps=2)
        trained = process("train", task, "--task", "none.py", *quick, "--json")
        assert trained.code == 0, trained.err
        measured = process("eval", json.loads(trained.out)["run"])
        assert measured.code == 0, measured.err


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
