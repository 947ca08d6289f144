"""How XLA compiles the programs of tests, and those of processes that tests start.

XLA ends a process that asks it for an option it does not know, and its options come and go. So it is asked in a process
of its own which of these it knows, once: the answer stands in the environment for the workers and children.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""Options with which XLA compiles several times as fast: of tiny arrays, compiling takes nearly all of the time.

A program is not cut into parts either, which other cores would compile at the same time: they run other tests.
"""

DEFAULTS = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_parallel_codegen_split_count": 32,
}
"""The same options as XLA has them by default."""

UNKNOWN = "GLASSFORMER_XLA_UNKNOWN"
"""The variable that names, once XLA was asked, which of these it does not know."""


def xla_flags(**more: object) -> str:
    """Return what XLA_FLAGS must be for all programs of a process to be compiled quickly."""
    return _flags({**without_unknown(QUICK), **more})


def optimized() -> dict[str, object]:
    """Return XLA's own options for `jax.jit(…, compiler_options=optimized())`."""
    return without_unknown(DEFAULTS)


def not_known() -> list[str]:
    """Return which options of `QUICK` the installed XLA does not know."""
    if UNKNOWN not in os.environ:
        os.environ[UNKNOWN] = " ".join(sorted(ask(QUICK)))
    return os.environ[UNKNOWN].split()


def without_unknown(options: dict) -> dict:
    return {name: value for name, value in options.items() if name not in not_known()}


def ask(options: dict) -> set[str]:
    """Ask XLA, in a process of its own, which options it does not know; without JAX there is nobody to ask."""
    if find_spec("jax") is None:
        return set()
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": _flags(options)}
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if asked.returncode == 0:
        return set()
    line = next((line for line in asked.stderr.splitlines() if "nknown flag" in line), "")
    found = options.keys() & set(re.findall(r"--(\w+)", line))
    assert found, f"XLA did not start, and named no option that it does not know:\n{asked.stderr[-2000:]}"
    return found | ask({name: value for name, value in options.items() if name not in found})


def _flags(options: dict) -> str:
    return " ".join(f"--{name}={str(value).lower()}" for name, value in options.items())
