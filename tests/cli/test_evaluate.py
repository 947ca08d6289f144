"""`glassformer eval`."""

import json
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.dispatch import use_engine
from runs import command, options, tiny_session

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "dates"
    result = command("train", "dates", *options("dates", eval_every=2), "--steps", 4, "--out", folder, "--json")
    assert result.code == 0, result.err
    return folder, json.loads(result.out)


def test_eval_repeats_what_training_ended_with_by_the_parameters_that_are_asked_for(run):
    folder, summary = run
    result = command("eval", folder, "--json")
    assert result.code == 0
    found = json.loads(result.out)
    assert {k: found[k] for k in ("task", "parameters", "val_loss", "accuracy", "run")} == {
        k: summary[k] for k in ("task", "parameters", "val_loss", "accuracy", "run")
    }
    assert found["checkpoint"] == "best"
    assert found["examples"] == 8
    assert set(found["groups"]) == {"en", "de"}

    assert json.loads(command("eval", run[0], "--checkpoint", "latest", "--json").out)["checkpoint"] == "latest"
    result = command("eval", run[0], "--checkpoint", "lastest")
    assert result.code == 1
    assert "this folder has: best, latest" in result.err


def test_the_engine_jax_measures_on_its_devices(tmp_path, monkeypatch, jax):
    from glassformer.engines.jax import trainer

    measured = []
    real = trainer.JaxTrainer.evaluate
    monkeypatch.setattr(trainer.JaxTrainer, "evaluate", lambda *a, **s: measured.append(1) or real(*a, **s))
    with use_engine("numpy"):
        list(tiny_session("majority", tmp_path / "run", steps=1, accumulate=3).steps())  # which JAX could not train
        [host] = [json.loads(command("eval", tmp_path / "run", "--json").out)]
    assert not measured
    found = json.loads(command("eval", tmp_path / "run", "--engine", "jax", "--json").out)
    assert measured == [1]
    assert found == {**host, "val_loss": pytest.approx(host["val_loss"], rel=1e-5)}


def test_a_saved_model_is_measured_as_the_run_that_it_came_from(run, tmp_path):
    folder = gf.save(gf.load(run[0]), tmp_path / "saved")
    found, want = (json.loads(command("eval", place, "--json").out) for place in (folder, run[0]))
    assert {**found, "run": ""} == {**want, "run": ""}
    latest = command("eval", folder, "--checkpoint", "latest")
    assert latest.code == 2
    assert "is a saved model, which has no checkpoints" in latest.err
    tokens = np.arange(40).reshape(10, 4) % 3
    arrays = gf.train((tokens, tokens[:, 0]), steps=1, width=8, heads=2, layers=1, show=False)
    nameless = command("eval", gf.save(arrays, tmp_path / "arrays"))
    assert nameless.code == 2
    assert "does not say what its model learned from" in nameless.err
    assert ".evaluate(data)" in nameless.err


def test_a_classifier_is_shown_class_by_class(tmp_path):
    list(tiny_session("majority", tmp_path / "run", steps=2, eval_every=2).steps())
    found = json.loads(command("eval", tmp_path / "run", "--json").out)
    assert found["confusion"]["labels"] == [one["label"] for one in found["classes"]] == ["0", "1", "2"]
    assert np.trace(found["confusion"]["counts"]) / found["examples"] == pytest.approx(found["accuracy"])
    assert found["macro"]["recall"] == pytest.approx(np.mean([one["recall"] for one in found["classes"]]))
    lines = [line.split("\t") for line in command("eval", tmp_path / "run").out.splitlines()]
    assert lines.pop(1)[0].startswith("95 % interval ")
    assert lines.pop(1)[0].startswith("a bag of words is better than this model")
    assert lines[1] == ["class", "precision", "recall", "f1", "examples", "predicted"]
    assert lines[5][0] == "macro average"
    assert lines[6:] == [
        ["true \\ predicted", "0", "1", "2"],
        *([str(i), *map(str, row)] for i, row in enumerate(found["confusion"]["counts"])),
    ]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    list(tiny_session("classify", folder / "run", steps=2, eval_every=2).steps())
    return folder / "run"


def test_a_classifier_is_measured_on_another_file(classifier, tmp_path, monkeypatch):
    labels = json.loads(command("eval", classifier, "--json").out)["confusion"]["labels"]
    texts = ["a first text", "another one", "a third", "a first text"]
    rows = [{"text": text, "label": labels[i % 2]} for i, text in enumerate(texts)]
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(map(json.dumps, [*rows, {"text": "", "label": labels[0]}])))
    result = command("eval", classifier, "--data", other, "--json")
    assert result.code == 0, result.err
    assert "left out: 1 row without a text or a label" in result.err
    found = json.loads(result.out)
    model = gf.load(classifier)
    answers = [one.label for one in model.classify(texts)]
    counts = np.zeros((len(labels), len(labels)), int)
    for row, answer in zip(rows, answers, strict=True):
        counts[labels.index(row["label"]), labels.index(answer)] += 1
    assert found["confusion"]["counts"] == counts.tolist()
    assert model.evaluate(str(other)).confusion == tuple(map(tuple, counts.tolist()))
    gone = Path(json.loads((classifier / "config.json").read_text())["task"]["options"]["data"])
    monkeypatch.chdir(tmp_path)
    hidden = gone.rename(gone.with_name("gone"))
    try:
        assert command("eval", classifier, "--data", other, "--json").out == result.out, "its own data is not needed"
        assert command("predict", classifier, texts[0]).code == 0
    finally:
        hidden.rename(gone)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\nfine,no such label\n", "line 2: the model has no class 'no such label'"),
        ("text,label\n,a\n", "no row with both a text and a label"),
        ("text,label\n", "has no rows"),
        ("a,b,c\n1,2,3\n", "none is known for a text"),
        ("", "is empty"),
        (None, "there is no file"),
    ],
)
def test_other_files_that_do_not_fit_are_refused(classifier, tmp_path, content, message):
    if content is not None:
        (tmp_path / "other.csv").write_text(content)
    result = command("eval", classifier, "--data", tmp_path / "other.csv")
    assert (result.code, result.out) == (1, "")
    assert message in result.err


def test_a_language_model_is_measured_on_all_of_another_text(tmp_path):
    session = tiny_session("text", tmp_path / "run", steps=1, eval_every=1)
    list(session.steps())
    (tmp_path / "other.txt").write_text("The lazy dog jumps over the quick brown fox. " * 9)
    found = json.loads(command("eval", tmp_path / "run", "--data", tmp_path / "other.txt", "--json").out)
    model = gf.load(tmp_path / "run")
    task = gf.data.build_task("text", data=str(tmp_path / "other.txt"), context=16, lexicon=model.lexicon)
    whole = gf.data.Windows(np.concatenate([task.train.tokens, task.held_out.tokens]), 16)
    assert found["targets"] == whole.count
    assert found["val_loss"] == pytest.approx(model.evaluate(whole).loss)
    refused = command("eval", tmp_path / "run", "--data", tmp_path / "none.txt")
    assert refused.code == 1


def test_another_file_is_read_by_the_options_of_the_first_one(tmp_path):
    rows = "".join(f"word {i},{('NULL', 'b')[i % 2]}\n" for i in range(40))
    (tmp_path / "a.csv").write_text(rows, encoding="utf-8")
    lines = [json.dumps({"source": f"word {i}", "target": "b"}) for i in range(4)]
    (tmp_path / "b.jsonl").write_text("\n".join(lines), encoding="utf-8")
    small = ["--no-header", "--steps", 1, "--set", "width=8", "--set", "heads=2", "--set", "layers=1"]
    for task in ("classify", "pairs"):
        run = ["train", task, "--data", tmp_path / "a.csv", "--keep-missing", "--out", tmp_path / task, *small]
        assert command(*run).code == 0
    measured = command("eval", tmp_path / "classify", "--data", tmp_path / "a.csv", "--json")
    assert json.loads(measured.out)["examples"] == 40
    measured = command("eval", tmp_path / "pairs", "--data", tmp_path / "b.jsonl", "--json")
    assert json.loads(measured.out)["examples"] == 4
