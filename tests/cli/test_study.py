"""`glassformer study` and `check`: files of one's own, pages, verdicts, and what is refused."""

import json

import pytest

from glassformer.core.dispatch import engine
from glassformer.proofs import Check, check, layer_cases, lora_cases, model_cases, op_cases, prove
from oracles import require
from runs import command

OWN = """
import glassformer as gf

STUDY = gf.studies.Study(
    name="powers", question="Which is <largest>?", seeds=2,
    grid=lambda quick: {"x": [1, 2] if quick else [1, 2, 3]},
    measure=lambda point, seed: {"y": point["x"] ** 2 + seed},
)
"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def test_a_study_of_ones_own_has_a_table_and_a_report(desk, monkeypatch):
    result = command("study", "own.py")
    assert result.code == 0, result.err
    assert "y is lowest at x=1 (1.50 ± 0.50; mean of 2 seeds)" in result.out
    report = (desk / "studies" / "powers" / "report.md").read_text()
    assert report.startswith("# Which is <largest>?\n\ny is lowest at x=1")
    assert "](figures/results.svg)" in report
    assert "| 3 | 9.50 ± 0.50 |" in report
    assert {path.name for path in (desk / "studies" / "powers" / "figures").iterdir()} == {
        "results.svg",
        "results-dark.svg",
    }
    again = command("study", "own.py", "--json")
    assert "6 runs of 6 kept" in again.err
    assert len(json.loads(again.out)["rows"]) == 6


def test_studies_are_listed_with_their_questions_and_what_is_in_a_folder(desk):
    command("study", "superposition", "--quick", "--out", "other/superposition-quick")
    here = {row["name"]: row["here"] for row in json.loads(command("study", "--out", "other", "--json").out)}
    assert {name for name, what in here.items() if what} == {"superposition"}
    listed = json.loads(command("study", "--json").out)
    assert all(row["question"].endswith("?") and row["minutes"] > 0 for row in listed)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["coast"], "did you mean 'cost'"),
        (["gone.py"], "no such file"),
        (["empty.py"], "holds no study"),
        (["broken.py"], "line 1"),
        (["own.py", "--from", "rows.json"], "reads no file"),
        (["--quick"], "--quick belongs to a study"),
        (["own.py", "--seeds", "0"], "--seeds"),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(desk, words, says):
    (desk / "empty.py").write_text("x = 1\n")
    (desk / "broken.py").write_text("1 / 0\n")
    result = command("study", *words)
    assert result.code in (1, 2)
    assert says in result.err
    assert "Traceback" not in result.err


pytestmark = pytest.mark.usefixtures("numpy_engine")


def test_every_case_is_proved(monkeypatch):
    asked = []

    def passed(case):
        asked.append((case.kind, case.name))
        return Check.of(case.name, case.kind, 0.0, 1.0)

    monkeypatch.setattr(check, "prove_case", passed)
    result = command("check", "--json")
    assert result.code == 0, result.out
    every = [*op_cases(), *layer_cases(), *model_cases(), *lora_cases()]
    assert asked == [(case.kind, case.name) for case in every]
    rows = json.loads(result.out)["checks"]
    assert {(row["kind"], row["name"]) for row in rows} == {(kind, name.partition(",")[0]) for kind, name in asked}


@pytest.fixture
def _softmax_is_wrong(monkeypatch):
    """Make the gradient of softmax a thousandth too large, and leave linear as it is."""
    cases = [case for case in op_cases() if case.name.startswith(("softmax", "linear"))]
    for case in cases:
        if case.name.startswith("softmax"):
            wrong = lambda *given, right=case.backward, **settings: 1.001 * right(*given, **settings)  # noqa: E731
            object.__setattr__(case, "backward", wrong)
    monkeypatch.setattr("glassformer.cli.check.prove_all", lambda progress: prove(cases))


@pytest.mark.usefixtures("_softmax_is_wrong")
def test_a_wrong_gradient_fails():
    result = command("check", "--json")
    assert result.code == 1
    found = json.loads(result.out)
    assert found["ok"] is False
    assert [row["name"] for row in found["checks"] if not row["ok"]] == ["softmax"]
    shown = command("check")
    assert shown.code == 1
    assert "1 are wrong: softmax" in shown.err
    assert "WRONG" in shown.out


@pytest.mark.parametrize("name", ["cpu", "numpy", "jax"])
def test_the_engine_whose_gradients_are_proved_can_be_chosen(monkeypatch, name):
    if name == "jax":
        require("jax")
    seen = []
    monkeypatch.setattr("glassformer.cli.check.prove_all", lambda progress: seen.append(engine()) or [])
    assert command("check", "--engine", name, "--json").code == 0
    assert seen == [name]
