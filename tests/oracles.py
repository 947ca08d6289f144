"""The libraries our numbers are compared with, loaded once and set up for exact comparison.

A test that needs one asks for the fixture `torch` or `jax`, or calls `require("torch")`. A missing library skips
the test, unless GLASSFORMER_REQUIRE_ALL is 1: then the test fails, so that nothing goes unchecked unnoticed. What
GLASSFORMER_LEFT_OUT names, separated by spaces, is left out on purpose: its tests are skipped, and pytest's first lines
say so.
"""

import gc
import importlib
import importlib.util
import os
import sys
from types import ModuleType

import pytest

from xla import not_known

LEFT_OUT = "GLASSFORMER_LEFT_OUT"


def left_out() -> list[str]:
    """Return the libraries that this session does without."""
    return os.environ.get(LEFT_OUT, "").split()


def done_without() -> list[str]:
    """Return lines about what this session does without: libraries, and options of XLA that make compiling quick."""
    names = {"libraries left out": left_out(), "options that this XLA does not know": not_known()}
    return [f"{what}: {', '.join(some)}" for what, some in names.items() if some]


def require(name: str) -> ModuleType:
    """Import the library `name`, ready for comparison in float64 on the CPU."""
    if name in left_out():
        pytest.skip(f"{name} is left out ({LEFT_OUT})")
    if importlib.util.find_spec(name) is None:
        refuse(f"{name} is not installed; `make test` installs it")
    is_new = name not in sys.modules
    module = importlib.import_module(name)
    if is_new:
        gc.freeze()  # a library stays until the end: the garbage collector need not look at it again and again
    if name in _SETUP:
        _SETUP[name](module)
    return module


def refuse(reason: str) -> None:
    """Skip the test for `reason`, or fail it when everything is required."""
    if os.environ.get("GLASSFORMER_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason} (GLASSFORMER_REQUIRE_ALL is set)", pytrace=False)
    pytest.skip(reason)


def _set_up_torch(torch: ModuleType) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.set_deterministic_debug_mode("error")  # unlike `use_deterministic_algorithms`, loads no compiler


def _set_up_jax(jax: ModuleType) -> None:
    # The platform is chosen by JAX_PLATFORMS, which conftest.py sets before anything can import JAX.
    jax.config.update("jax_enable_x64", True)


_SETUP = {"torch": _set_up_torch, "jax": _set_up_jax}
