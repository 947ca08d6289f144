"""How results are compared: by one relative error, and with PyTorch's values and gradients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.core.tree import flatten
from oracles import require


def error(actual: Any, expected: Any) -> float:
    """The largest difference over the size of the larger array (at least 1); infinities must agree exactly."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"shapes differ: {actual.shape} and {expected.shape}"
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    actual, expected = actual[finite].astype(np.float64), expected[finite].astype(np.float64)
    if expected.size == 0:
        return 0.0
    return float(np.max(np.abs(actual - expected)) / max(1.0, np.max(np.abs(expected))))


def assert_close(actual: Any, expected: Any, limit: float = 1e-12) -> None:
    """Refuse arrays whose error is above the limit or not a number."""
    found = error(actual, expected)
    assert found <= limit, f"error {found:.3g} is above {limit:.3g}"


def assert_same(have: Any, want: Any, limit: float | Mapping[Any, float] = 1e-12) -> None:
    """Refuse trees that differ in a name, a type, a shape, or by more than a limit; whole numbers must be equal.

    limit   of their errors; by the types of their arrays, where it is a table
    """
    assert type(have) is type(want)
    have, want = flatten(have), flatten(want)
    assert have.keys() == want.keys()
    for name, x in want.items():
        assert np.asarray(have[name]).dtype == np.asarray(x).dtype, name
        if np.asarray(x).dtype.kind not in "fc":
            np.testing.assert_array_equal(have[name], x, err_msg=name)
            continue
        found = error(have[name], x)
        assert found <= (limit[x.dtype] if isinstance(limit, Mapping) else limit), f"{name}: error {found:.3g}"


def torch_gradients(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], dy: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The value of a function of PyTorch tensors, and its gradients for a given dy, as NumPy arrays."""
    torch = require("torch")
    tensors = [torch.tensor(np.ascontiguousarray(x), requires_grad=True) for x in arrays]
    y = function(*tensors)
    y.backward(torch.tensor(np.asarray(dy)))
    return y.detach().numpy(), [np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in tensors]


def assert_equals_torch(
    pair: tuple[Callable[..., Any], Callable[..., Any]],
    function: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    *,
    extra: tuple[Any, ...] = (),
    backward: dict[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Compare an op and its gradients with a function of PyTorch tensors, to 1e-12 and 1e-11.

    `backward` are the settings that the backward takes, none unless given.
    """
    op, op_backward = pair
    y, saved = op(*arrays, *extra, **settings)
    dy = np.random.default_rng(1).standard_normal(np.shape(y))
    grads = op_backward(dy, saved, **(backward or {}))
    expected, expected_grads = torch_gradients(function, arrays, dy)
    assert_close(y, expected)
    grads = grads if isinstance(grads, tuple) else (grads,)
    for grad, expected_grad in zip(grads, expected_grads, strict=False):
        assert_close(grad, expected_grad, 1e-11)
