"""Who executes the mathematics.

    cpu      the default: hot ops and whole blocks as compiled kernels, a batch in shards over the cores; needs Numba
    numpy    every op and layer as its source reads; needs NumPy alone
    jax      the same source traced and compiled, for GPUs and many machines; needs JAX

Each is one value, an `Engine`: its kernels, its trainer and its reader. An op runs where its
arrays are: given JAX arrays, JAX computes it whatever the engine; given NumPy arrays under the engine jax, the host
does.
"""

import importlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..dispatch import Engine
from ..errors import ConfigError, did_you_mean

_HOMES = {"cpu": "cpu", "numpy": "reference", "jax": "jax"}
_NEEDS = {"cpu": "numba", "jax": "jax"}
_HINTS = {
    "cpu": "pip install numba, or use the engine numpy",
    "jax": 'pip install "glassformer[jax]"; for a GPU see the JAX documentation',
}
ENGINES = tuple(_HOMES)


def find(name: str | None = None) -> Engine:
    """Return an engine by name; None: cpu where Numba is installed, else numpy."""
    if name is None:
        name = "cpu" if is_installed("cpu") else "numpy"
    if name not in _HOMES:
        raise ConfigError(f"there is no engine {name!r}", hint=did_you_mean(name, ENGINES))
    if not is_installed(name):
        title = {"cpu": "Numba", "jax": "JAX"}[name]
        raise ConfigError(f"the engine {name} needs {title}, which is not installed", hint=_HINTS[name])
    return _loaded(name)


def find_for(array_type: type, own: Engine) -> Engine:
    """Return the engine that is at home with a type of arrays: `own`, if it is."""
    library = "jax" if array_type.__module__.partition(".")[0] in ("jax", "jaxlib") else "numpy"
    return own if own.library == library else find("jax" if library == "jax" else None)


def gather(folder: Path) -> None:
    """Write the newest state of a run into one file where many processes wrote it; this needs JAX only if they did."""
    importlib.import_module(f"{__name__}.jax.sharded_checkpoint").gather(folder)


def is_installed(name: str) -> bool:
    """Tell whether what an engine needs can be imported."""
    try:
        return name not in _NEEDS or find_spec(_NEEDS[name]) is not None
    except ValueError:  # made unavailable on purpose
        return False


@cache
def _loaded(name: str) -> Engine:
    return importlib.import_module(f"{__name__}.{_HOMES[name]}").ENGINE
