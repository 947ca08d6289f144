"""The libraries our numbers are compared with, loaded once and set up for exact comparison.

A test that needs one asks for the fixture `torch` or `jax`, or calls `require("torch")`. A missing library skips
the test, unless GLASSFORMER_REQUIRE_ALL is 1: then the test fails, so that nothing goes unchecked unnoticed.
"""

import gc
import importlib
import importlib.util
import os
import sys
from types import ModuleType

import pytest

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""Options with which XLA compiles several times as fast: of tiny arrays, compiling takes nearly all of the time.

A program is not cut into parts either, which other cores would compile at the same time: they run other tests.
"""

OPTIMIZED = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_parallel_codegen_split_count": 32,
}
"""The same options as XLA has them by default, for `jax.jit(…, compiler_options=OPTIMIZED)`."""


def xla_flags(**more: object) -> str:
    """Return what XLA_FLAGS must be for all programs of a process to be compiled quickly."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in {**QUICK, **more}.items())


def require(name: str) -> ModuleType:
    """Import the library `name`, ready for comparison in float64 on the CPU."""
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
