"""`glassformer check`: what it proves, the verdict, and that it can be negative.

That all cases are exact on every engine, `tests/proofs` proves one by one: here the command is shown to ask for each of
them, and runs some of each kind.
"""

import json
from types import SimpleNamespace

import pytest

from glassformer.dispatch import engine
from glassformer.proofs import Check, check, layer_cases, lora_cases, model_cases, op_cases, prove_ops
from oracles import require
from runs import command

pytestmark = pytest.mark.usefixtures("numpy_engine")

CASES = {"op": op_cases, "layer": layer_cases, "model": model_cases, "lora": lora_cases}


def test_every_case_is_proved(monkeypatch):
    asked = []

    def asked_for(kind):
        def prove(case):
            asked.append((kind, case.name))
            return Check.of(case.name, kind, 0.0, 1.0)

        return prove

    for kind in CASES:
        monkeypatch.setattr(check, f"prove_{kind}_case", asked_for(kind))
    result = command("check", "--json")
    assert result.code == 0, result.out
    assert asked == [(kind, case.name) for kind, cases in CASES.items() for case in cases()]
    rows = json.loads(result.out)["checks"]
    assert {(row["kind"], row["name"]) for row in rows} == {(kind, name.partition(",")[0]) for kind, name in asked}


def test_gradients_are_exact_here(monkeypatch):
    few = {kind: cases()[:: max(1, len(cases()) // 4)] for kind, cases in CASES.items()}
    for kind, some in few.items():
        monkeypatch.setattr(check, f"{kind}_cases", lambda some=some: some)
    result = command("check", "--json")
    assert result.code == 0, result.out
    found = json.loads(result.out)
    assert list(found) == ["ok", "checks"]
    assert found["ok"] is True
    assert {row["kind"] for row in found["checks"]} == {"op", "layer", "model"}
    names = {case.name.partition(",")[0] for some in few.values() for case in some}
    assert {row["name"] for row in found["checks"]} == names
    for row in found["checks"]:
        assert list(row) == ["name", "kind", "error", "limit", "ok"]
        assert row["ok"] is True
        assert 0 <= row["error"] <= row["limit"]


def some_ops():
    return [case for case in op_cases() if case.name.startswith(("softmax", "linear", "layer_norm"))]


def break_op(monkeypatch, name):
    """Let the gradient of one op be a thousandth too large."""
    broken = []
    for case in some_ops():
        if case.name.partition(",")[0] == name:
            right = case.backward

            def wrong(dy, saved, _right=right, **settings):
                grads = _right(dy, saved, **settings)
                first, *rest = grads if isinstance(grads, tuple) else (grads,)
                return (first * 1.001, *rest)

            object.__setattr__(case, "backward", wrong)
        broken.append(case)
    monkeypatch.setattr("glassformer.cli.check.prove_all", lambda: prove_ops(broken))


def test_a_wrong_gradient_fails(monkeypatch):
    break_op(monkeypatch, "softmax")
    result = command("check", "--json")
    assert result.code == 1
    found = json.loads(result.out)
    assert found["ok"] is False
    assert [row["name"] for row in found["checks"] if not row["ok"]] == ["softmax"]


def test_people_see_which_gradient_is_wrong(monkeypatch):
    break_op(monkeypatch, "softmax")
    result = command("check")
    assert result.code == 1
    assert "1 are wrong: softmax" in result.err
    assert "WRONG" in result.out


def test_people_see_that_all_are_exact(monkeypatch):
    monkeypatch.setattr("glassformer.cli.check.prove_all", lambda: prove_ops(some_ops()))
    result = command("check")
    assert result.code == 0
    number = len(prove_ops(some_ops()))
    assert number >= 3
    assert f"{number} of {number} gradients are exact." in result.err
    assert "WRONG" not in result.out


@pytest.mark.parametrize("name", ["cpu", "numpy", "jax"])
def test_the_engine_whose_gradients_are_proved_can_be_chosen(monkeypatch, name):
    if name == "jax":
        require("jax")
    seen = []
    monkeypatch.setattr("glassformer.cli.check.prove_all", lambda: seen.append(engine()) or [])
    assert command("check", "--engine", name, "--json").code == 0
    assert seen == [name]


def test_an_error_that_is_no_number_is_valid_json(monkeypatch):
    row = SimpleNamespace(
        ok=False, as_dict=lambda: {"name": "x", "kind": "op", "error": float("nan"), "limit": 1e-9, "ok": False}
    )
    monkeypatch.setattr("glassformer.cli.check.prove_all", lambda: [row])
    result = command("check", "--json")
    assert result.code == 1
    assert json.loads(result.out, parse_constant=pytest.fail)["checks"][0]["error"] is None
