"""Prove every gradient here and now: the engine in use computes it, NumPy's numeric derivatives judge it."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..core import dispatch
from ..core.arrays import Array, Tree
from ..core.tree import map_named, named_leaves
from .case import Case, Check, Checks, LayerCase, ModelCase, OpCase
from .gradient import EPS, derivative, error_along, mismatches, relative_error, slope_along, worst
from .layer_cases import layer_cases
from .model_cases import lora_cases, model_cases
from .op_cases import op_cases

Progress = Callable[[int, int], None]
"""Told how many cases are proved, and of how many."""

EXACT = 1e-12
"""The limit for what the complex step measures."""

ALONG = 1e-8
"""The limit for layers and whole models, along random directions."""

QUOTIENT = 1e-5
"""The limit where the forward is not analytic and real difference quotients measure."""

NOT_ANALYTIC = "the forward is not analytic or overflows for complex inputs; real difference quotients measured it"

POSITIONS = ("rows", "columns", "positions")
"""Settings that are NumPy arrays under JAX too, as a model makes them: they are known when a program is traced."""


def prove_all(progress: Progress | None = None) -> list[Check]:
    """Return one verdict per op, layer and model, and one for adapters."""
    return prove([*op_cases(), *layer_cases(), *model_cases(), *lora_cases()], progress)


def prove_ops() -> list[Check]:
    """Return one verdict per op."""
    return prove(op_cases())


def prove_layers() -> list[Check]:
    """Return one verdict per class of layers."""
    return prove(layer_cases())


def prove(cases: Iterable[Case], progress: Progress | None = None) -> list[Check]:
    """Return one verdict per row: the worst of its cases. `progress` is told how many cases are proved."""
    listed, verdicts = list(cases), []
    for number, case in enumerate(listed, 1):
        verdicts.append(prove_case(case))
        if progress is not None:
            progress(number, len(listed))
    return one_per_name(verdicts)


def one_per_name(checks: Iterable[Check]) -> list[Check]:
    """Keep the worst verdict of those whose names agree up to the comma, in order of first appearance."""
    rows: dict[str, Check] = {}
    for check in checks:
        name = check.name.partition(",")[0]
        row = rows.get(name)
        if row is None or worst([check.error / check.limit]) > worst([row.error / row.limit]):
            rows[name] = replace(check, name=name)
    return Checks(rows.values())


def prove_case(case: Case) -> Check:
    """Compare the gradients of a case with numeric ones: entry by entry for an op, along random directions else."""
    if isinstance(case, OpCase):
        return _prove_op(case)
    assert isinstance(case, LayerCase | ModelCase)
    tree = computed(case, type(case).gradients, case.point)
    leaves, grads = dict(named_leaves(case.point)), dict(named_leaves(tree))
    if facts := mismatches(leaves, grads):
        return Check.of(case.name, case.kind, float("inf"), ALONG, _joined(facts.values()))
    error, analytic = error_along(case.function, case.point, grads, np.random.default_rng(1))
    limit, reason = (ALONG, "") if analytic else (QUOTIENT, NOT_ANALYTIC)
    if not error <= limit:
        reason = _joined([reason, _wrong_leaf(case, leaves, grads, limit)])
    return Check.of(case.name, case.kind, error, limit, reason)


def computed(case: Any, gradients: Callable[..., Tree], *point: Any) -> Tree:
    """Return `gradients(case, *point)` as NumPy arrays, computed by the engine in use.

    JAX gets all arrays of the case as its own, in float64, and one compiled program for the gradients, as training has.
    """
    if dispatch.current().library == "numpy":
        return gradients(case, *point)
    import jax

    with jax.enable_x64(True):
        moved = case.within(jax.numpy)
        known = {name: value for name, value in case.settings.items() if name in POSITIONS}
        moved = replace(moved, settings={**moved.settings, **known})
        grads = jax.jit(lambda moved_point: gradients(moved, *moved_point))(point)
        return jax.tree.map(np.asarray, grads)


def _wrong_leaf(case: LayerCase | ModelCase, leaves: dict[str, Array], grads: dict[str, Array], limit: float) -> str:
    """Return which leaf of a tree is wrong, and where; entry by entry, which only a wrong gradient is worth."""

    def function_of(name: str) -> Callable[[Array], Any]:
        return lambda leaf: case.function(map_named(lambda each, x: leaf if each == name else x, case.point))

    def error(name: str) -> float:
        move = np.random.default_rng(1).standard_normal(leaves[name].shape)
        slope = slope_along(function_of(name), leaves[name], move).value
        return worst([relative_error(np.sum(grads[name] * move), slope)])

    name = max(leaves, key=error)
    return _judged(name, leaves[name], grads[name], function_of(name), limit).reason


def _prove_op(case: OpCase) -> Check:
    """Compare every entry of every gradient of  Σ dy · op(…)  with the complex step, for a random dy."""
    case = replace(case, arrays=tuple(None if x is None else np.asarray(x, dtype=np.float64) for x in case.arrays))
    y, _ = case.forward()
    # Users draw their arrays with small seeds: with the same seed dy would equal x, and hide mistakes.
    dy = np.random.default_rng((17, 6, 3762)).standard_normal(np.shape(y))
    # An entry that is −inf, such as the logarithm of a masked probability, has no slope.
    dy = np.where(np.isfinite(y), dy, 0.0)
    counted, handed = dy != 0, dy.copy()
    grads = computed(case, lambda case, arrays, dy: case.gradients(dy, case.forward(*arrays)[1]), case.arrays, handed)
    names = _argument_names(case)
    if len(grads) != len(names):
        fact = f"the backward returns {len(grads)} of {len(names)} gradients: {', '.join(names)}"
        return Check.of(case.name, case.kind, float("inf"), EXACT, fact)

    def function_of(index: int) -> Callable[[Array], Any]:
        def weighted_sum(x: Array) -> Any:
            arrays = [None if other is None else np.asarray(other, dtype=x.dtype) for other in case.arrays]
            arrays[index] = x
            return np.sum(np.asarray(case.forward(*arrays)[0])[counted] * dy[counted])

        return weighted_sum

    eps = float(np.finfo(np.float32).eps) if np.asarray(y).dtype == np.float32 else EPS
    arguments = enumerate(zip(names, case.arrays, grads, strict=True))
    verdicts = [_judged(name, x, grad, function_of(i), EXACT, eps=eps) for i, (name, x, grad) in arguments]
    overwritten = "" if np.array_equal(handed, dy) else "the backward overwrites dy, which its caller may still need"
    decisive = max(verdicts, key=lambda each: worst([each.error / each.limit]))
    reason = _joined([*(each.reason for each in verdicts), overwritten])
    return Check.of(case.name, case.kind, decisive.error, decisive.limit, reason)


def _judged(
    name: str, x: Array | None, grad: Array | None, function: Callable[[Array], Any], limit: float, *, eps: float = EPS
) -> Check:
    """Compare the gradient of a scalar `function(x)` with a numeric derivative, entry by entry."""
    leaves, grads = ({} if array is None else {name: np.asarray(array)} for array in (x, grad))
    if facts := mismatches(leaves, grads):
        return Check.of(name, "op", float("inf"), limit, facts[name])
    if x is None:
        return Check.of(name, "op", 0.0, limit)
    numeric, analytic = derivative(function, x, eps=eps)
    reason = ""
    if not analytic:
        limit, reason = QUOTIENT if eps == EPS else 1e-2, NOT_ANALYTIC
    grad = np.asarray(grad, dtype=np.float64)
    error = relative_error(grad, numeric)
    if error <= limit or not grad.size:
        return Check.of(name, "op", error, limit, reason)
    worst_entry = np.unravel_index(int(np.argmax(np.nan_to_num(np.abs(grad - numeric), nan=np.inf))), grad.shape)
    index = tuple(int(i) for i in worst_entry)
    where = f"d{name}{list(index) if index else ''} is {grad[index]:.6g}, the numeric derivative {numeric[index]:.6g}"
    return Check.of(name, "op", error, limit, _joined([reason, where, _pattern(grad, numeric)]))


def _pattern(grad: Array, numeric: Array) -> str:
    """Return what a wrong gradient has in common with the right one, where that tells what is missing."""
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


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def _argument_names(case: OpCase) -> list[str]:
    """Return the names that the op gives its arrays."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, each in inspect.signature(case.op).parameters.items() if each.kind in kinds]
    return [names[i] if i < len(names) else f"argument {i}" for i in range(len(case.arrays))]
