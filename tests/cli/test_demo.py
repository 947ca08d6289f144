"""`glassformer demo`, with few steps: what it says, what it writes, and what it does the second time."""

import json

import pytest

from glassformer.cli import demo
from glassformer.plots import THEMES
from glassformer.proofs import op_cases, prove_ops
from glassformer.runs.run import open_run
from glassformer.trained_model import TrainedModel
from runs import TINY, command

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Three small models, some of the proofs, and figures in one theme."""
    parts = {name: {**TINY[name], **more} for name, more in (("majority", {}), ("text", {"context": 64}))}
    parts["dates"] = {**TINY["dates"], "locales": demo.LANGUAGES, "positions": "rotary"}
    monkeypatch.setattr(demo, "PARTS", {name: {**part, "steps": 2, "eval_every": 1} for name, part in parts.items()})
    some = [case for case in op_cases() if case.name.partition(",")[0] in ("linear", "softmax", "layer_norm")]
    monkeypatch.setattr(demo, "prove_all", lambda: prove_ops(some))
    monkeypatch.setattr("glassformer.plots.drawing.THEMES", {"light": THEMES["light"]})


def test_it_proves_trains_and_writes_a_page_and_never_suggests_what_it_does_not_have(
    tmp_path, monkeypatch, coarse_figures
):
    monkeypatch.chdir(tmp_path)
    result = command("demo", "--json", "--out", "here")
    assert result.code == 0, result.err
    assert result.err.startswith("proving every gradient on this machine ...\n")
    summary = json.loads(result.out)
    assert summary["gradients"] == {"exact": 3, "of": 3}
    assert [run["task"] for run in summary["runs"]] == ["majority", "text", "dates"]
    page = (tmp_path / summary["report"]).read_text(encoding="utf-8")
    assert demo.BEST in page
    asked = open_run(tmp_path / "here" / "text")
    best = TrainedModel.of_task(asked.model, asked.load_params("best"), asked.task())
    assert summary["text"] == demo.PROMPT + best.ask(demo.PROMPT, length=300)
    again = command("demo", "--out", "here")
    assert again.code == 2
    assert again.err == "error: here exists already\n\nhint: choose another --out, or leave it out for a new folder\n"


def test_people_get_tables_and_the_time_of_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    result = command("demo")
    assert result.code == 0, result.err
    assert "s in all. Open runs/demo-2/" in result.out
    assert result.out.endswith("change any number: glassformer explore runs/demo-2/text\n")
