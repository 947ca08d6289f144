"""`glassformer check` asks for every case, and its verdict can be negative; `tests/proofs` proves the cases."""

import json

import pytest

from glassformer.core.dispatch import engine
from glassformer.proofs import Check, check, layer_cases, lora_cases, model_cases, op_cases, prove
from oracles import require
from runs import command

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
