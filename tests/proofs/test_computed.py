"""Gradients are proved as the engine in use computes them, and compared with NumPy's derivatives."""

import pytest

from glassformer import ops
from glassformer.dispatch import use_engine
from glassformer.proofs import layer_cases, lora_cases, op_cases, prove_layer_case, prove_lora_case, prove_op_case

PROOFS = {
    "op": (op_cases, prove_op_case, "rms_norm"),
    "layer": (layer_cases, prove_layer_case, "Linear, rows"),
    "positions": (layer_cases, prove_layer_case, "RelativePositions, past"),
    "adapters": (lora_cases, prove_lora_case, "LoRA, decoder"),
}


@pytest.fixture(params=PROOFS)
def proof(request):
    cases, prove, name = PROOFS[request.param]
    return prove, next(case for case in cases() if case.name.startswith(name))


def test_under_jax_the_compiled_gradients_are_proved(jax, proof, monkeypatch):
    prove, case = proof
    traced = []
    real = jax.jit
    monkeypatch.setattr(jax, "jit", lambda *words, **settings: traced.append(1) or real(*words, **settings))
    with use_engine("jax"):
        check = prove(case)
    assert traced
    assert check.ok, check
    with use_engine("numpy"):
        assert prove(case).ok


def test_a_wrong_gradient_is_found_under_jax(jax):
    case = next(case for case in op_cases() if case.name.startswith("relu"))
    right = case.backward
    object.__setattr__(case, "backward", lambda dy, saved: ops.relu_backward(dy, saved) * 1.001)
    with use_engine("jax"):
        assert not prove_op_case(case).ok
        object.__setattr__(case, "backward", right)
        assert prove_op_case(case).ok
