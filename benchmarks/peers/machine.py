"""What a measurement was taken on, and which peers are here to be measured against."""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from glassformer.engines.cpu.products import mkl

PEERS = {
    "torch": "PyTorch",
    "jax": "JAX",
    "transformers": "Hugging Face transformers",
    "peft": "PEFT",
    "llama_cpp": "llama-cpp-python",
}
_CPU_COMMANDS = ((["lscpu"], r"^Model name:\s*(.+)$"), (["sysctl", "-n", "machdep.cpu.brand_string"], "(.+)"))
_PACKAGES = ("glassformer", "numpy", "numba", "torch", "jax", "transformers", "llama-cpp-python")


def is_here(module: str) -> bool:
    """Tell whether a module can be imported."""
    return importlib.util.find_spec(module) is not None


def missing(module: str) -> str:
    """Say that a peer is not here, and what to do about it."""
    package = module.replace("_", "-") + ("-python" if module == "llama_cpp" else "")
    return f"{PEERS[module]} is not installed, so it was not measured: pip install {package}"


def takes_part(*modules: str, peers: bool, notes: list[str]) -> bool:
    """Tell whether peers are asked for and all here; one that is asked for and not here is named in `notes`."""
    absent = [module for module in modules if not is_here(module)]
    notes += map(missing, absent if peers else ())
    return peers and not absent


def best_engine() -> str:
    """Return the engine that is fastest here: cpu, or numpy where kernels cannot be compiled."""
    return "cpu" if is_here("numba") else "numpy"


def machine() -> dict[str, Any]:
    """Return the processor, the cores we may use, the memory, the system, the versions and the BLAS."""
    versions = {}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "cpu": cpu_name(),
        "cores": core_count(),
        "memory_bytes": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
        "blas": blas(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def core_count() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """Return the processor's name, or its architecture where nothing else is known."""
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1].strip()
    for command, pattern in _CPU_COMMANDS:
        if shutil.which(command[0]):
            environment = {**os.environ, "LC_ALL": "C"}
            said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout
            found = re.search(pattern, said, re.MULTILINE)
            if found:
                return found[1].strip()
    return platform.processor() or platform.machine()


def blas() -> str:
    """Return the library that multiplies NumPy's matrices, with its version and threads."""
    from threadpoolctl import threadpool_info

    importlib.import_module("numpy")  # which loads the library that is asked about
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    names = [
        f"{pool['internal_api']} {pool.get('version') or ''} ({pool.get('architecture', '?')}, "
        f"{pool['num_threads']} threads)"
        for pool in pools
    ]
    intel = mkl() if best_engine() == "cpu" else None
    ours = [] if intel is None else [f"mkl {intel.version} for our kernels"]
    return ", ".join([*names, *ours]) or "unknown"


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
