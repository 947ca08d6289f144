"""How XLA compiles the programs of tests, and those of processes that tests start."""

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
