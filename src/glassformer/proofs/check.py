"""Prove every gradient here and now."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from .case import Check, OpCase
from .computed import computed
from .gradient import complex_step, errors_along, errors_by_name, relative_error, worst
from .layer_cases import LayerCase, layer_cases
from .model_cases import LoRACase, ModelCase, lora_cases, model_cases
from .op_cases import op_cases

EXACT = 1e-12
"""The limit for what the complex step measures."""

ALONG = 1e-8
"""The limit for layers and whole models, along random directions."""


def prove_all() -> list[Check]:
    """Return one verdict per op, layer and model, and one for adapters."""
    return [*prove_ops(), *prove_layers(), *prove_models(), *prove_lora()]


def prove_ops(cases: Iterable[OpCase] | None = None) -> list[Check]:
    """Return one verdict per op: the worst of its cases."""
    return one_per_name(prove_op_cases(op_cases() if cases is None else cases))


def prove_op_cases(cases: Iterable[OpCase]) -> list[Check]:
    """Compare every entry of every gradient of each case, of  Σ dy · op(…)  for a random dy, with the complex step."""
    cases = list(cases)
    points = [(case.arrays, _random_dy(case)) for case in cases]
    found = computed(_op_gradients, cases, points)
    errors = [op_error(case, dy, grads) for case, (_, dy), grads in zip(cases, points, found, strict=True)]
    return [Check.of(case.name, "op", error, EXACT) for case, error in zip(cases, errors, strict=True)]


def prove_op_case(case: OpCase) -> Check:
    """Compare the gradients of one case."""
    return prove_op_cases([case])[0]


def prove_layers(cases: Iterable[LayerCase] | None = None) -> list[Check]:
    """Return one verdict per class of layers: the worst of its cases."""
    return one_per_name(prove_layer_cases(layer_cases() if cases is None else cases))


def prove_layer_cases(cases: Iterable[LayerCase]) -> list[Check]:
    """Compare the gradient of every parameter and input of each layer with the slope along a random direction."""
    return _prove_cases("layer", cases, _error_by_name)


def prove_layer_case(case: LayerCase) -> Check:
    """Compare the gradients of one layer."""
    return prove_layer_cases([case])[0]


def prove_models(cases: Iterable[ModelCase] | None = None) -> list[Check]:
    """Return one verdict per kind of model: the worst of its cases."""
    return one_per_name(prove_model_cases(model_cases() if cases is None else cases))


def prove_model_cases(cases: Iterable[ModelCase]) -> list[Check]:
    """Compare the gradient of all parameters of each model with slopes along random directions."""
    return _prove_cases("model", cases, _error_along)


def prove_model_case(case: ModelCase) -> Check:
    """Compare the gradient of one model."""
    return prove_model_cases([case])[0]


def prove_lora(cases: Iterable[LoRACase] | None = None) -> list[Check]:
    """Return one verdict for all adapters: the worst of their cases."""
    return one_per_name(_prove_cases("model", lora_cases() if cases is None else cases, _error_by_name))


def prove_lora_case(case: LoRACase) -> Check:
    """Compare the gradient of every adapter, through the whole model, with the slope along a random direction."""
    return _prove_cases("model", [case], _error_by_name)[0]


def _prove_cases(kind: str, cases: Iterable[Any], error: Callable[[Any, Tree], float]) -> list[Check]:
    cases = list(cases)
    found = computed(lambda case, point: case.gradients(point), cases, [(case.point,) for case in cases])
    return [Check.of(case.name, kind, error(case, grads), ALONG) for case, grads in zip(cases, found, strict=True)]


def _error_by_name(case: Any, found: Tree) -> float:
    return worst(list(errors_by_name(case.function, case.point, found, np.random.default_rng(1)).values()))


def _error_along(case: Any, found: Tree) -> float:
    return worst(errors_along(case.function, case.point, found, np.random.default_rng(1)))


def _random_dy(case: OpCase) -> Array:
    y, _ = case.forward()
    dy = np.random.default_rng(0).standard_normal(np.shape(y))
    # An entry that is −inf, such as the logarithm of a masked probability, has no slope.
    return np.where(np.isfinite(y), dy, 0.0)


def _op_gradients(case: OpCase, arrays: tuple[Any, ...], dy: Any) -> tuple[Any, ...]:
    return case.gradients(dy, case.forward(*arrays)[1])


def op_error(case: OpCase, dy: Array, grads: tuple[Any, ...]) -> float:
    """Return the worst relative error of the gradients of an op, over its arguments."""
    if len(grads) != len(case.arrays):
        return float("inf")
    counted = dy != 0

    def weighted_sum(*arrays: Any) -> Any:
        y, _ = case.forward(*arrays)
        return np.sum(np.asarray(y)[counted] * dy[counted])

    errors = []
    for index, (x, grad) in enumerate(zip(case.arrays, grads, strict=True)):
        if x is None or grad is None:
            errors.append(0.0 if x is None and grad is None else float("inf"))
        else:
            errors.append(relative_error(grad, complex_step(weighted_sum, case.arrays, index)))
    return worst(errors)


def one_per_name(checks: Iterable[Check]) -> list[Check]:
    """Keep the worst verdict of those whose names agree up to the comma, in order of first appearance."""
    rows: dict[str, Check] = {}
    for check in checks:
        name = check.name.partition(",")[0]
        row = rows.get(name)
        if row is None or worst([check.error / check.limit]) > worst([row.error / row.limit]):
            rows[name] = Check.of(name, check.kind, check.error, check.limit)
    return list(rows.values())
