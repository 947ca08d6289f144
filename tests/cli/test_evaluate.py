"""`glassformer eval`."""

import json

import numpy as np
import pytest

import glassformer as gf
from glassformer.dispatch import use_engine
from runs import command, options, tiny_session

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "dates"
    result = command("train", "dates", *options("dates", eval_every=2), "--steps", 4, "--out", folder, "--json")
    assert result.code == 0, result.err
    return folder, json.loads(result.out)


def test_eval_repeats_what_training_ended_with(run):
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


def test_the_latest_parameters_can_be_asked_for(run):
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
    arrays = gf.train(None, (tokens, tokens[:, 0]), steps=1, width=8, heads=2, layers=1, show=False)
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
    assert lines[1] == ["class", "precision", "recall", "f1", "examples", "predicted"]
    assert lines[5][0] == "macro average"
    assert lines[6:] == [
        ["true \\ predicted", "0", "1", "2"],
        *([str(i), *map(str, row)] for i, row in enumerate(found["confusion"]["counts"])),
    ]
