"""Who executes the ops: compiled kernels, the reference as it is written, or JAX.

    cpu      the default: hot ops run as fused Numba kernels of the same name and signature, from `kernels/`
    numpy    every op runs as its source reads; needs NumPy alone
    jax      training and generation move their arrays to JAX's devices and compile whole steps

An op runs where its arrays are: given JAX arrays it runs under JAX whatever the engine, given NumPy arrays under the
engine jax it runs as under cpu.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from .errors import ConfigError, did_you_mean

ENGINES = ("cpu", "numpy", "jax")
VARIABLE = "GLASSFORMER_ENGINE"

_OWN = (np.ndarray, float)

Op = TypeVar("Op", bound=Callable[..., Any])

_chosen: str | None = None
_kernels: dict[str, Callable[..., Any]] | None = None  # None: not loaded yet; empty: none to use


def engine() -> str:
    """Return the engine in use: the one set, else the environment's GLASSFORMER_ENGINE, else "cpu" where Numba is."""
    global _chosen
    if _chosen is None:
        asked = os.environ.get(VARIABLE)
        _chosen = _checked(asked) if asked else ("cpu" if _has("numba") else "numpy")
    return _chosen


def set_engine(name: str) -> None:
    """Let ops run on the engine `name` from now on, in the whole process."""
    global _chosen, _kernels
    _chosen = _checked(name)
    _kernels = None


@contextmanager
def use_engine(name: str) -> Iterator[None]:
    """Let ops run on the engine `name` inside a `with` block, in the whole process."""
    before = engine()
    set_engine(name)
    try:
        yield
    finally:
        set_engine(before)


def accelerated(op: Op) -> Op:
    """Let a kernel of the same name stand for an op where there is one.

    A kernel answers NotImplemented for what it does not cover, such as half precision, complex numbers or wrong shapes;
    then the op runs as written. `op.__wrapped__` is the op as written, whatever the engine.
    """
    name = op.__name__

    @functools.wraps(op)
    def run(*arrays: Any, **settings: Any) -> Any:
        # JAX's arrays go straight to the op; a plain float is the gradient of a loss.
        if arrays and type(arrays[0]) in _OWN:
            kernel = (_kernels if _kernels is not None else _load()).get(name)
            if kernel is not None:
                result = kernel(*arrays, **settings)
                if result is not NotImplemented:
                    return result
        return op(*arrays, **settings)

    return run  # type: ignore[return-value]


def kernel(name: str, *arrays: Any) -> Callable[..., Any] | None:
    """Return the kernel called `name`; None where the engine has none, or where an array given is not NumPy's."""
    for array in arrays:
        if type(array) is not np.ndarray:
            return None
    return (_kernels if _kernels is not None else _load()).get(name)


def _load() -> dict[str, Callable[..., Any]]:
    global _kernels
    if engine() == "numpy" or not _has("numba"):
        _kernels = {}
    else:
        from .kernels import load

        _kernels = load()
    return _kernels


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _checked(name: str) -> str:
    if name not in ENGINES:
        raise ConfigError(f"there is no engine {name!r}", hint=did_you_mean(name, ENGINES))
    if name == "cpu" and not _has("numba"):
        raise ConfigError(
            "the engine cpu needs Numba, which is not installed", hint="pip install numba, or use the engine numpy"
        )
    if name == "jax" and not _has("jax"):
        raise ConfigError(
            "the engine jax needs JAX, which is not installed",
            hint='pip install "glassformer[jax]"; for a GPU see the JAX documentation',
        )
    return name
