"""Prove every gradient here and now."""

from collections.abc import Iterable
from typing import Any

import numpy as np

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
    return one_per_name(prove_op_case(case) for case in (op_cases() if cases is None else cases))


def prove_op_case(case: OpCase) -> Check:
    """Compare every entry of every gradient of one case with the complex step."""
    return Check.of(case.name, "op", op_error(case), EXACT)


def prove_layers(cases: Iterable[LayerCase] | None = None) -> list[Check]:
    """Return one verdict per class of layers: the worst of its cases."""
    return one_per_name(prove_layer_case(case) for case in (layer_cases() if cases is None else cases))


def prove_layer_case(case: LayerCase) -> Check:
    """Compare the gradient of every parameter and input of a layer with the slope along a random direction."""
    found = computed(case, type(case).gradients, case.point)
    errors = errors_by_name(case.function, case.point, found, np.random.default_rng(1))
    return Check.of(case.name, "layer", worst(list(errors.values())), ALONG)


def prove_models(cases: Iterable[ModelCase] | None = None) -> list[Check]:
    """Return one verdict per kind of model: the worst of its cases."""
    return one_per_name(prove_model_case(case) for case in (model_cases() if cases is None else cases))


def prove_model_case(case: ModelCase) -> Check:
    """Compare the gradient of all parameters of a model with slopes along random directions."""
    found = computed(case, type(case).gradients, case.point)
    errors = errors_along(case.function, case.point, found, np.random.default_rng(1))
    return Check.of(case.name, "model", worst(errors), ALONG)


def prove_lora(cases: Iterable[LoRACase] | None = None) -> list[Check]:
    """Return one verdict for all adapters: the worst of their cases."""
    return one_per_name(prove_lora_case(case) for case in (lora_cases() if cases is None else cases))


def prove_lora_case(case: LoRACase) -> Check:
    """Compare the gradient of every adapter, through the whole model, with the slope along a random direction."""
    found = computed(case, type(case).gradients, case.point)
    errors = errors_by_name(case.function, case.point, found, np.random.default_rng(1))
    return Check.of(case.name, "model", worst(list(errors.values())), ALONG)


def op_error(case: OpCase) -> float:
    """Return the worst relative error over the arguments, of  Σ dy · op(…)  for a random dy."""
    y, _ = case.forward()
    dy = np.random.default_rng(0).standard_normal(np.shape(y))
    # An entry that is −inf, such as the logarithm of a masked probability, has no slope.
    dy = np.where(np.isfinite(y), dy, 0.0)
    grads = computed(case, _gradients, case.arrays, dy)
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


def _gradients(case: OpCase, arrays: tuple[Any, ...], dy: Any) -> tuple[Any, ...]:
    return case.gradients(dy, case.forward(*arrays)[1])


def one_per_name(checks: Iterable[Check]) -> list[Check]:
    """Keep the worst verdict of those whose names agree up to the comma, in order of first appearance."""
    rows: dict[str, Check] = {}
    for check in checks:
        name = check.name.partition(",")[0]
        row = rows.get(name)
        if row is None or worst([check.error / check.limit]) > worst([row.error / row.limit]):
            rows[name] = Check.of(name, check.kind, check.error, check.limit)
    return list(rows.values())
