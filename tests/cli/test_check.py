"""`glassformer check`: the verdict, and that it can be negative."""

import json
from types import SimpleNamespace

import pytest

from glassformer.dispatch import engine
from glassformer.proofs import op_cases, prove_ops
from oracles import require
from runs import command


@pytest.mark.slow
def test_every_gradient_is_exact_here():
    result = command("check", "--json")
    assert result.code == 0, result.out
    found = json.loads(result.out)
    assert list(found) == ["ok", "checks"]
    assert found["ok"] is True
    assert {row["kind"] for row in found["checks"]} == {"op", "layer", "model"}
    for row in found["checks"]:
        assert list(row) == ["name", "kind", "error", "limit", "ok"]
        assert row["ok"] is True
        assert 0 <= row["error"] <= row["limit"]


@pytest.fixture
def few(monkeypatch):
    """Prove the ops alone, which takes a moment."""
    monkeypatch.setattr("glassformer.cli.check.prove_all", prove_ops)


def break_op(monkeypatch, name):
    """Let the gradient of one op be a thousandth too large."""
    broken = []
    for case in op_cases():
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
    assert "1 are wrong: softmax" in result.out
    assert "WRONG" in result.out


def test_people_see_that_all_are_exact(few):
    result = command("check")
    assert result.code == 0
    number = len(prove_ops())
    assert f"{number} of {number} gradients are exact." in result.out
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
