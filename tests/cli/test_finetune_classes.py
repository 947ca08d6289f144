"""`glassformer train classify --from`: a new head on a published encoder, alone, with adapters, or with all of it."""

import itertools
import json

import numpy as np
import pytest

import glassformer as gf
from fine_tuning import sentence_encoder
from glassformer.core.tree import flatten
from glassformer.runs.start import new_session
from glassformer.training import load_checkpoint
from runs import assert_same_run, command

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
