"""Prove every gradient here and now."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import Array
from ..tree import map_named, named_leaves
from .case import Check, OpCase
from .computed import computed
from .gradient import EPS, Slopes, derivative, errors_along, errors_by_name, mismatches, relative_error, worst
from .layer_cases import LayerCase, layer_cases
from .model_cases import LoRACase, ModelCase, lora_cases, model_cases
from .op_cases import op_cases

EXACT = 1e-12
"""The limit for what the complex step measures."""

ALONG = 1e-8
"""The limit for layers and whole models, along random directions."""

QUOTIENT = 1e-5
"""The limit where the forward is not analytic and real difference quotients measure."""

NOT_ANALYTIC = "the forward is not analytic or overflows for complex inputs; real difference quotients measured it"


def prove_all() -> list[Check]:
    """Return one verdict per op, layer and model, and one for adapters."""
    return [*prove_ops(), *prove_layers(), *prove_models(), *prove_lora()]


def prove_ops(cases: Iterable[OpCase] | None = None) -> list[Check]:
    """Return one verdict per op: the worst of its cases."""
    return one_per_name(prove_op_case(case) for case in (op_cases() if cases is None else cases))


def prove_layers(cases: Iterable[LayerCase] | None = None) -> list[Check]:
    """Return one verdict per class of layers: the worst of its cases."""
    return one_per_name(prove_layer_case(case) for case in (layer_cases() if cases is None else cases))


def prove_models(cases: Iterable[ModelCase] | None = None) -> list[Check]:
    """Return one verdict per family of models: the worst of its cases."""
    return one_per_name(prove_model_case(case) for case in (model_cases() if cases is None else cases))


def prove_lora(cases: Iterable[LoRACase] | None = None) -> list[Check]:
    """Return one verdict for all adapters: the worst of their cases."""
    return one_per_name(prove_lora_case(case) for case in (lora_cases() if cases is None else cases))


def prove_layer_case(case: LayerCase) -> Check:
    """Compare the gradient of every parameter and input of a layer with the slope along a random direction."""
    return _prove_tree(case, "layer", errors_by_name)


def prove_model_case(case: ModelCase) -> Check:
    """Compare the gradient of all parameters of a model with slopes along random directions."""
    return _prove_tree(case, "model", errors_along)


def prove_lora_case(case: LoRACase) -> Check:
    """Compare the gradient of every adapter, through the whole model, with the slope along a random direction."""
    return _prove_tree(case, "model", errors_by_name)


def _prove_tree(case: Any, kind: str, compare: Callable[..., Slopes]) -> Check:
    found = computed(case, type(case).gradients, case.point)
    errors, analytic = compare(case.function, case.point, found, np.random.default_rng(1))
    limit = ALONG if analytic else QUOTIENT
    check = Check.of(case.name, kind, worst(list(errors.values())), limit, reason="" if analytic else NOT_ANALYTIC)
    return check if check.ok else _explained(check, case, found)


def _explained(check: Check, case: Any, found: Any) -> Check:
    """Add which leaf of a tree is wrong, and where; entry by entry, which only a wrong gradient is worth."""
    leaves, grads = dict(named_leaves(case.point)), dict(named_leaves(found))
    if facts := mismatches(leaves, grads):
        wrong = [_refused(name, fact) for name, fact in facts.items()]
    else:
        errors = errors_by_name(case.function, case.point, found, np.random.default_rng(1)).errors
        name = max(leaves, key=lambda name: worst([errors[name]]))

        def function(leaf: Array) -> Any:
            return case.function(map_named(lambda each, x: leaf if each == name else x, case.point))

        wrong = [check_argument(name, leaves[name], grads[name], function, check.limit)]
    return replace(check, reason=_joined([check.reason, *(each.reason for each in wrong)]), arguments=tuple(wrong))


def prove_op_case(case: OpCase) -> Check:
    """Compare every entry of every gradient of  Σ dy · op(…)  with the complex step, for a random dy."""
    case = replace(case, arrays=tuple(None if x is None else np.asarray(x, dtype=np.float64) for x in case.arrays))
    y, _ = case.forward()
    dy = np.random.default_rng(0).standard_normal(np.shape(y))
    # An entry that is −inf, such as the logarithm of a masked probability, has no slope.
    dy = np.where(np.isfinite(y), dy, 0.0)
    given = dy.copy()
    grads = computed(case, _gradients, case.arrays, given)
    names = _argument_names(case)
    if len(grads) != len(names):
        fact = f"the backward returns {len(grads)} of {len(names)} gradients: {', '.join(names)}"
        return Check.of(case.name, "op", float("inf"), EXACT, reason=fact)
    counted = dy != 0

    def function_of(index: int) -> Callable[[Array], Any]:
        def weighted_sum(x: Array) -> Any:
            arrays = [None if other is None else np.asarray(other, dtype=x.dtype) for other in case.arrays]
            arrays[index] = x
            y, _ = case.forward(*arrays)
            return np.sum(np.asarray(y)[counted] * dy[counted])

        return weighted_sum

    single = np.asarray(y).dtype == np.float32
    eps = float(np.finfo(np.float32).eps) if single else EPS
    triples = zip(names, case.arrays, grads, strict=True)
    checks = [
        check_argument(name, x, grad, function_of(i), EXACT, eps=eps) for i, (name, x, grad) in enumerate(triples)
    ]
    decisive = max(checks, key=lambda check: worst([check.error / check.limit]))
    overwritten = "" if np.array_equal(given, dy) else "the backward overwrites dy, which its caller may still need"
    reason = _joined([*(check.reason for check in checks), overwritten])
    return Check.of(case.name, "op", decisive.error, decisive.limit, reason=reason, arguments=tuple(checks))


def check_argument(
    name: str, x: Array | None, grad: Array | None, function: Callable[[Array], Any], limit: float, *, eps: float = EPS
) -> Check:
    """Compare the gradient of a scalar `function(x)` with a numeric derivative, entry by entry."""
    if x is None or grad is None:
        if x is None and grad is None:
            return Check.of(name, "argument", 0.0, limit)
        missing = f"the backward returns no gradient for {name}"
        return _refused(name, f"{name} is left out, but has a gradient" if x is None else missing, limit)
    if facts := mismatches({name: x}, {name: np.asarray(grad)}):
        return _refused(name, facts[name], limit)
    numeric, analytic = derivative(function, x, eps=eps)
    reason = ""
    if not analytic:
        limit, reason = QUOTIENT if eps == EPS else 1e-2, NOT_ANALYTIC
    grad = np.asarray(grad, dtype=np.float64)
    check = Check.of(name, "argument", relative_error(grad, numeric), limit, reason=reason)
    if check.ok or not grad.size:
        return check
    place = np.unravel_index(int(np.argmax(np.nan_to_num(np.abs(grad - numeric), nan=np.inf))), grad.shape)
    index = tuple(int(i) for i in place)
    where = f"d{name}{list(index) if index else ''} is {grad[index]:.6g}, the numeric derivative {numeric[index]:.6g}"
    return replace(check, worst=index, reason=_joined([reason, where, _pattern(grad, numeric)]))


def _pattern(grad: Array, numeric: Array) -> str:
    """Say what a wrong gradient has in common with the right one, where that tells what is missing."""
    if not (np.all(np.isfinite(grad)) and np.all(np.isfinite(numeric))):
        return ""
    close = 1e-6 * max(float(np.max(np.abs(numeric))), 1e-2)
    power = float(np.sum(numeric * numeric))
    factor = float(np.sum(grad * numeric)) / power if power else 0.0
    if np.max(np.abs(grad - factor * numeric)) <= close:
        return f"all of it is {factor:.6g} times the right gradient" if factor else "all of it is zero"
    if grad.ndim == 2 and grad.shape[0] == grad.shape[1] and np.max(np.abs(grad.T - numeric)) <= close:
        return "it is the transpose of the right gradient"
    off = numeric - grad
    if grad.ndim and grad.shape[-1] > 1 and np.max(np.abs(off - off[..., :1])) <= close:
        return "it is off by the same amount along the last axis: a term such as a mean over that axis is missing"
    return ""


def _refused(name: str, reason: str, limit: float = ALONG) -> Check:
    return Check.of(name, "argument", float("inf"), limit, reason=reason)


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def _gradients(case: OpCase, arrays: tuple[Any, ...], dy: Any) -> tuple[Any, ...]:
    return case.gradients(dy, case.forward(*arrays)[1])


def _argument_names(case: OpCase) -> list[str]:
    """Return the names that the op gives its arrays."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, each in inspect.signature(case.op).parameters.items() if each.kind in kinds]
    return [names[i] if i < len(names) else f"argument {i}" for i in range(len(case.arrays))]


def one_per_name(checks: Iterable[Check]) -> list[Check]:
    """Keep the worst verdict of those whose names agree up to the comma, in order of first appearance."""
    rows: dict[str, Check] = {}
    for check in checks:
        name = check.name.partition(",")[0]
        row = rows.get(name)
        if row is None or worst([check.error / check.limit]) > worst([row.error / row.limit]):
            rows[name] = replace(check, name=name)
    return list(rows.values())
