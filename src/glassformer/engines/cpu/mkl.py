"""Intel's BLAS, where PyPI's package `mkl` is installed: its products are faster on Intel's processors than NumPy's.

It multiplies on the thread that calls it. So kernels take it inside shards and for small products; a large product that
may use several cores is shared out to them (`multiply_into`), and inside of a kernel left to NumPy's BLAS. The variable
GLASSFORMER_BLAS says `numpy` to do without it, and `mkl` to take it on other makers' processors, too, and to be told if
it is not there.
"""

import ctypes
import importlib.metadata
import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import ConfigError
from ...core.reporting import log_once

VARIABLE = "GLASSFORMER_BLAS"
_SEQUENTIAL, _SAME_BITS = 1, 2  # MKL_THREADING_SEQUENTIAL and MKL_CBWR_AUTO of mkl_service.h and mkl_types.h


class Mkl(NamedTuple):
    """A loaded library, and the version of its package."""

    version: str
    library: Any

    def address(self, name: str) -> int:
        """Return where a function lies, 0 if there is none of this name."""
        return address_of(self.library, name, f"mkl {self.version}")


def address_of(library: Any, name: str, title: str) -> int:
    """Return where a function of a library lies; 0, and say so, if there is none of this name."""
    function = getattr(library, name, None)
    if function is None:
        log_once(f"{title} has no {name}: kernels do without, and small products are slower")
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


def mkl() -> Mkl | None:
    """Return the library; None where it is not installed or not wanted."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "mkl", "numpy"):
        raise ConfigError(f"{VARIABLE} is {wanted!r}", hint="set it to numpy or mkl, or not at all")
    if wanted == "numpy" or (not wanted and not _is_intel()):
        return None
    found = _load()
    if wanted and found is None:
        hint = f"pip install 'glassformer[mkl]' on Linux for x86-64, or unset {VARIABLE}"
        raise ConfigError(f"{VARIABLE} is mkl, which is not installed or cannot be loaded", hint=hint)
    return found


@cache
def _load() -> Mkl | None:
    try:
        package = importlib.metadata.distribution("mkl")
    except importlib.metadata.PackageNotFoundError:
        return None
    try:
        files = [file for file in package.files or () if file.name.startswith("libmkl_rt.so")]
        library = ctypes.CDLL(str(Path(str(files[0].locate())).resolve()))
        # It may be in use already by another library, with threads that shards would compete with.
        if library.MKL_Set_Threading_Layer(_SEQUENTIAL) != _SEQUENTIAL:
            raise OSError("another library has started its threads")
        library.MKL_CBWR_Set(_SAME_BITS)  # wherever in memory arrays begin: a resumed run has them elsewhere
    except (IndexError, OSError, AttributeError) as error:
        log_once(f"mkl {package.version} is installed, but cannot be used ({error}): NumPy's BLAS multiplies")
        return None
    return Mkl(package.version, library)


@cache
def _is_intel() -> bool:
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
