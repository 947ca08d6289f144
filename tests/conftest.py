"""What every test relies on: one thread per process, repeatable examples, and the oracles as fixtures."""

import os
import signal
import tempfile
from importlib.util import find_spec

# Read when NumPy, PyTorch and JAX are first imported, so they come before every other import.
# pytest-xdist runs one process per core; more threads per process would only get in each other's way. Kernels still cut
# their work into parts, and `engines/cpu/test_team.py` lets several threads do them.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Hardly a program is compiled twice, and to keep each on disk takes more time than that. One that was kept would hide
# messages that XLA writes while it compiles, which `engines/jax/step_on_devices.py` counts.
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

# Tests agree to no file in the user's own name.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="glassformer-tests-")

from oracles import done_without, require  # noqa: E402
from xla import xla_flags  # noqa: E402

os.environ.setdefault("XLA_FLAGS", xla_flags())

import numpy as np  # noqa: E402
import pytest  # noqa: E402

from glassformer.core import dispatch  # noqa: E402
from glassformer.core.reporting import log_once  # noqa: E402
from own_parts import forgotten  # noqa: E402
from pages import draw_nothing, really_drawn  # noqa: E402
from published_models import choose_cache, data_file  # noqa: E402

choose_cache()

try:
    import hypothesis
except ImportError:  # The tests that use it fail on their own import and say so.
    pass
else:
    # `suite`: the same examples on every run and machine. `fuzz` (`make fuzz`): many that nobody has seen, and a line
    # that draws a failing one again. Time limits belong to pytest-timeout.
    _both = {"deadline": None, "database": None}
    hypothesis.settings.register_profile("suite", derandomize=True, max_examples=20, print_blob=False, **_both)
    hypothesis.settings.register_profile("fuzz", derandomize=False, max_examples=200, print_blob=True, **_both)
    hypothesis.settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def _heeded_ctrl_c():
    """Let Ctrl-C interrupt this process and its children, even where a shell that started it in the background said no.

    An ignored signal is handed down to every child; a handler is not, so each child gets Python's own.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def torch():
    """PyTorch: float64, one thread, deterministic."""
    return require("torch")


@pytest.fixture(scope="session")
def jax():
    """JAX: float64 allowed, on the CPU."""
    return require("jax")


@pytest.fixture(scope="session", autouse=True)
def _doubles():
    """Let JAX, where it is installed, have float64 in every test of this process, whichever comes first."""
    if find_spec("jax") is not None:
        require("jax")


@pytest.fixture(scope="module")
def numpy_engine():
    """Let NumPy compute all ops as they are written, here and in processes started from here: nothing is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(dispatch.VARIABLE, "numpy")
        patch.setattr(dispatch, "_default", None)
        yield


@pytest.fixture
def unseen_figures(monkeypatch):
    """Write a dot in place of every figure of a page or a run: `tests/plots` draws and looks at them all."""
    really_drawn()  # is remembered
    monkeypatch.setattr("glassformer.plots.style._saved", draw_nothing)


@pytest.fixture
def coarse_figures(monkeypatch):
    """Draw figures with few dots, and do not arrange them: quick, where nobody asks but whether they can be drawn."""
    monkeypatch.setattr("glassformer.plots.style._saved", really_drawn())
    from glassformer.plots.style import SETTINGS

    for settings in SETTINGS.values():
        monkeypatch.setitem(settings, "figure.dpi", 24)
        monkeypatch.setitem(settings, "figure.constrained_layout.use", False)


@pytest.fixture
def rng():
    """A NumPy random generator that starts each test in the same state."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _same_engine_and_parts():
    """Leave every test what it would have had alone: the engine, its own names, and nothing logged yet."""
    engine = dispatch._default
    log_once.cache_clear()
    with forgotten():
        yield
    dispatch._default = engine


def pytest_report_header():
    """Say first what this session does without."""
    return done_without()


def pytest_addoption(parser):
    """Let all planted bugs be tried: `make test ARGS="tests/proofs -k mutations --all-bugs"`."""
    parser.addoption("--all-bugs", action="store_true", help="also plant the bugs that take seconds to compile")


def pytest_collection_modifyitems(config, items):
    """Leave out tests of data files that a copy of the repository alone does not have, and bugs that are tried seldom.

    Nothing is skipped for them.
    """
    left_out = {item for item in items if any(not data_file(name).is_file() for name in _data_names(item))}
    if not config.option.all_bugs:
        left_out |= {item for item in items if item.get_closest_marker("seldom")}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one process run all tests of a file: what they share is made once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


def _data_names(item):
    return [name for marker in item.iter_markers("data") for name in marker.args]
