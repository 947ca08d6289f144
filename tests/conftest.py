"""What every test relies on: one thread per process, repeatable examples, and the oracles as fixtures."""

import os
from functools import partial

# Read when NumPy, PyTorch and JAX are first imported, so they come before every other import.
# pytest-xdist runs one process per core; more threads per process would only get in each other's way.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

from glassformer import engine as engine_module  # noqa: E402
from oracles import QUICK, require  # noqa: E402
from published_models import data_file  # noqa: E402

try:
    import hypothesis
except ImportError:  # The tests that use it fail on their own import and say so.
    pass
else:
    # The same examples on every run and machine; time limits belong to pytest-timeout.
    hypothesis.settings.register_profile(
        "glassformer", derandomize=True, deadline=None, max_examples=20, print_blob=False, database=None
    )
    hypothesis.settings.load_profile("glassformer")


@pytest.fixture(scope="session")
def torch():
    """PyTorch: float64, one thread, deterministic."""
    return require("torch")


@pytest.fixture(scope="session")
def jax():
    """JAX: float64 allowed, on the CPU."""
    return require("jax")


@pytest.fixture(scope="module")
def quickly_compiled(jax):
    """Let XLA compile without optimizing: programs that run once are then done sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "jit", partial(jax.jit, compiler_options=QUICK))
        yield


@pytest.fixture
def rng():
    """A NumPy random generator that starts each test in the same state."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _same_engine():
    """Leave every test the engine that it would have had alone: setting one holds for the whole process."""
    before = engine_module._chosen, engine_module._kernels
    yield
    engine_module._chosen, engine_module._kernels = before


def pytest_collection_modifyitems(config, items):
    """Leave out tests of data files that a copy of the repository alone does not have; nothing is skipped for them."""
    absent = [item for item in items if any(not data_file(name).is_file() for name in _data_names(item))]
    if absent:
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if item not in absent]


def _data_names(item):
    return [name for marker in item.iter_markers("data") for name in marker.args]
