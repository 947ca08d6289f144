"""Every op keeps its promise: a backward beside it, a case that proves it, and an error below the limit."""

import importlib
import inspect
import json
import pkgutil

import pytest

from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.proofs import Check, layer_cases, lora_cases, op_cases, prove_case, prove_ops
from glassformer.proofs.check import EXACT, one_per_name
from proof_cases import OP_CASES as CASES

KNOWN = 18


def backwards() -> dict[str, object]:
    """Every public function of the ops package whose name ends in _backward, found by looking.

    Modules *_fused hold kernels that stand for ops; `tests/engines/jax/test_fused.py` compares them.
    """
    found = {}
    for info in pkgutil.iter_modules(ops.__path__):
        if info.name.endswith("_fused"):
            continue
        module = importlib.import_module(f"{ops.__name__}.{info.name}")
        for name, value in inspect.getmembers(module, inspect.isfunction):
            own = value.__module__ == module.__name__
            if own and name.endswith("_backward") and not name.startswith("_"):
                found[name] = value
    return found


def test_every_op_is_found_exported_with_its_backward_and_has_a_case_of_its_own():
    names = backwards().keys()
    assert {"linear_backward", "attention_tiled_backward", "cross_entropy_backward"} <= names
    assert len(names) >= KNOWN
    proved = {case.backward for case in CASES}
    missing = [name for name, backward in backwards().items() if backward not in proved]
    assert not missing, f"add a case in proofs/ for: {missing}"
    for name, backward in backwards().items():
        forward = name.removesuffix("_backward")
        assert hasattr(importlib.import_module(backward.__module__), forward)
        assert {name, forward} <= set(ops.__all__)
    for case in CASES:
        assert case.backward.__name__ == f"{case.op.__name__}_backward"
        assert case.name.partition(",")[0] == case.op.__name__
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gradient_is_exact(case, engine):
    # The numeric derivative is always that of the op as written: kernels take no complex numbers. That of JAX equals
    # NumPy's in `tests/ops/test_jax.py`.
    with use_engine(engine):
        check = prove_case(case)
    assert check.limit == EXACT == 1e-12
    assert check.ok, f"error {check.error:.3g}"


def test_there_is_one_row_per_op_of_its_worst_case():
    rows = prove_ops()
    assert {row.name for row in rows} == {case.op.__name__ for case in CASES}
    assert len(rows) == len(backwards())
    assert all(row.ok and row.kind == "op" for row in rows)
    parsed = json.loads(json.dumps([row.as_dict() for row in rows], allow_nan=False))
    assert parsed[0].keys() == {"name", "kind", "error", "limit", "ok"}
    assert all(rows[0].name in shown for shown in (repr(rows), rows._repr_html_()))

    good, bad, lost = Check.of("a", "op", 0.0, 1.0), Check.of("a, b", "op", 2.0, 1.0), Check.of("c", "op", 0.5, 1.0)
    assert one_per_name([good, bad, lost]) == [Check("a", "op", 2.0, 1.0, ok=False), lost]
    unknown = Check.of("a, c", "op", float("nan"), 1.0)
    row = one_per_name([good, unknown])[0]
    assert not row.ok
    assert row.as_dict()["error"] is None


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
