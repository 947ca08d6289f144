"""Gradients are proved as the engine in use computes them, and compared with NumPy's derivatives."""

import pytest

from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.proofs import layer_cases, lora_cases, op_cases, prove_case

PROOFS = {
    "op": (op_cases, "rms_norm"),
    "layer": (layer_cases, "Linear, rows"),
    "positions": (layer_cases, "RelativePositions, past"),
    "adapters": (lora_cases, "LoRA, decoder"),
}


@pytest.fixture(params=PROOFS)
def case(request):
    cases, name = PROOFS[request.param]
    return next(case for case in cases() if case.name.startswith(name))


def test_under_jax_the_compiled_gradients_are_proved(jax, case, monkeypatch):
    traced = []
    real = jax.jit
    monkeypatch.setattr(jax, "jit", lambda *words, **settings: traced.append(1) or real(*words, **settings))
    with use_engine("jax"):
        check = prove_case(case)
    assert traced
    assert check.ok, check
    with use_engine("numpy"):
        assert prove_case(case).ok


def test_a_wrong_gradient_is_found_under_jax(jax):
    case = next(case for case in op_cases() if case.name.startswith("relu"))
    right = case.backward
    object.__setattr__(case, "backward", lambda dy, saved: ops.relu_backward(dy, saved) * 1.001)
    with use_engine("jax"):
        assert not prove_case(case).ok
        object.__setattr__(case, "backward", right)
        assert prove_case(case).ok
