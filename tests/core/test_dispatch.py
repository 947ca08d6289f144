"""Who executes: the choice, its default, that it is obeyed, and what kernels may do."""

import inspect
import pickle
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest

import glassformer
from glassformer import engines, ops
from glassformer.core import dispatch
from glassformer.core.dispatch import Engine, current, dispatched, engine, replaces, set_engine, use_engine
from glassformer.core.errors import ConfigError
from glassformer.layers import Attention
from glassformer.layers.cache import KeyValues
from glassformer.models import Batch
from glassformer.proofs import op_cases
from glassformer.training.recipe import Recipe
from runs import command


@pytest.fixture
def unchosen(monkeypatch):
    """As in a process that has not asked for the engine yet."""
    monkeypatch.setattr(dispatch, "_default", None)
    monkeypatch.delenv("GLASSFORMER_ENGINE", raising=False)
    return monkeypatch


@pytest.fixture
def no_numba(unchosen):
    """As where Numba is not installed."""
    unchosen.setitem(sys.modules, "numba", None)
    return unchosen


def kernel(name):
    return current().table.get(name)


def in_a_fresh_process(code, **environment):
    """What a piece of code prints in a process of its own."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment or None)
    return done.stdout.strip()


def test_compiled_kernels_are_the_default(unchosen):
    assert engine() == "cpu"
    assert kernel("softmax") is not None


def test_without_numba_it_is_numpy(no_numba):
    assert engine() == "numpy"
    assert kernel("softmax") is None
    np.testing.assert_allclose(ops.softmax(np.zeros(2))[0], [0.5, 0.5])


def test_the_environment_chooses_and_the_program_overrules_it(unchosen):
    unchosen.setenv("GLASSFORMER_ENGINE", "numpy")
    assert engine() == "numpy"
    with use_engine("cpu"):
        assert engine() == "cpu"
    assert engine() == "numpy"


def test_the_choice_is_undone_at_the_end_of_a_block_even_by_an_error():
    before = engine()
    with use_engine("numpy"):
        with use_engine("cpu"):
            assert engine() == "cpu"
        assert engine() == "numpy"
        with pytest.raises(ZeroDivisionError), use_engine("cpu"):
            raise ZeroDivisionError
        assert engine() == "numpy"
    assert engine() == before


def in_a_thread(function):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(function()))
    thread.start()
    thread.join()
    return seen[0]


def test_what_is_set_holds_for_all_threads_and_what_is_used_for_one(unchosen):
    set_engine("numpy")
    assert in_a_thread(engine) == "numpy"
    with use_engine("cpu"):
        assert engine() == "cpu"
        assert in_a_thread(engine) == "numpy"


def test_choices_that_overlap_in_two_threads_leave_nothing_behind(unchosen):
    entered, left = threading.Event(), threading.Event()

    def other():
        with use_engine("numpy"):
            entered.set()
            left.wait(60)
        return engine()

    found = []
    thread = threading.Thread(target=lambda: found.append(other()))
    thread.start()
    assert entered.wait(60)
    with use_engine("numpy"):
        left.set()
        thread.join()
    assert (engine(), found) == ("cpu", ["cpu"])


@pytest.mark.parametrize(("name", "hint"), [("nunpy", "did you mean 'numpy'"), ("metal", "known: cpu, jax, numpy")])
def test_an_unknown_engine_is_refused_with_the_nearest_name(unchosen, name, hint):
    message = rf"there is no engine '{name}'(.|\n)*hint: {hint}"
    with pytest.raises(ConfigError, match=message):
        set_engine(name)
    with pytest.raises(ConfigError, match=message), use_engine(name):
        pytest.fail("it was used")
    assert engine() == "cpu"
    unchosen.setattr(dispatch, "_default", None)
    unchosen.setenv("GLASSFORMER_ENGINE", name)
    with pytest.raises(ConfigError, match=message):
        engine()


def test_kernels_that_cannot_be_compiled_are_refused(no_numba):
    with pytest.raises(ConfigError, match=r"the engine cpu needs Numba, which is not installed(.|\n)*hint: "):
        set_engine("cpu")
    no_numba.setenv("GLASSFORMER_ENGINE", "cpu")
    with pytest.raises(ConfigError, match="needs Numba"):
        engine()


def test_without_jax_its_engine_is_refused(unchosen):
    unchosen.setitem(sys.modules, "jax", None)
    message = r"the engine jax needs JAX, which is not installed(.|\n)*hint: pip install \"glassformer\[jax\]\""
    with pytest.raises(ConfigError, match=message):
        set_engine("jax")
    assert engine() == "cpu"
    unchosen.setattr(dispatch, "_default", None)
    unchosen.setenv("GLASSFORMER_ENGINE", "jax")
    with pytest.raises(ConfigError, match=message):
        engine()
    result = command("train", "majority", "--engine", "jax")
    assert (result.code, "the engine jax needs JAX" in result.err) == (2, True)


@pytest.fixture
def alarms(monkeypatch):
    """Kernels of the engine cpu that note that they were called and decline."""
    calls = []

    def alarm(whole, name):
        @replaces(whole)
        def noted(*arrays, **settings):
            calls.append(name)
            return NotImplemented

        return noted.kernel

    table = engines.find("cpu").table
    for name in [name for name in table if "." not in name]:
        monkeypatch.setitem(table, name, alarm(table[name].original, name))
    with use_engine("cpu"):
        yield calls


def test_the_reference_never_asks_a_kernel_and_the_default_always_does(alarms):
    known = {name for name in engines.find("cpu").table if "." not in name}
    for name, called in (("numpy", False), ("cpu", True)):
        alarms.clear()
        asked = set()
        with use_engine(name):
            for case in op_cases():
                y, saved = case.forward()
                case.gradients(np.ones_like(y), saved)
                asked |= {case.op.__name__, case.backward.__name__}
        assert set(alarms) >= (asked & known if called else set())
        assert called or not alarms


def test_an_op_runs_as_written_where_the_kernel_declines(alarms):
    want = ops.softmax.__wrapped__(np.arange(3.0))[0]
    np.testing.assert_array_equal(ops.softmax(np.arange(3.0))[0], want)
    assert alarms == ["softmax"]


def test_arrays_of_jax_never_ask_the_host_and_arrays_of_numpy_do(jax, alarms):
    ops.softmax(jax.numpy.zeros(3))
    assert alarms == []

    cache = KeyValues()
    with use_engine("numpy"):
        jax.jit(lambda k: cache.write(0, k, k))(jax.numpy.ones((1, 2, 3, 4)))

    with use_engine("jax"):
        assert engine() == "jax"
        y, _ = ops.softmax(np.zeros(4))
    assert type(y) is np.ndarray
    assert alarms == ["softmax"]


def test_a_dispatched_op_keeps_its_name_its_words_and_its_source():
    def softmax(x):
        """Say what it does."""
        return x, "as written"

    op = dispatched(softmax)
    assert (op.__name__, op.__doc__, op.__wrapped__) == ("softmax", "Say what it does.", softmax)
    assert op(np.zeros(2))[1] == "as written"  # it is not the softmax that has a kernel
    assert op([1, 2]) == ([1, 2], "as written")  # not an array: the op says what it thinks of it


@pytest.mark.parametrize("name", ["cpu", "numpy"])
def test_a_bound_method_of_a_layer_keeps_its_name_its_words_and_its_signature(name):
    layer = Attention(8, 2)
    with use_engine(name):
        method = layer.forward
        assert (method.__name__, method.__doc__) == ("forward", Attention.forward.__doc__)
        assert list(inspect.signature(method).parameters)[:2] == ["params", "x"]
        assert pickle.loads(pickle.dumps(method)).__self__ == layer


@pytest.mark.parametrize("mark", [{"by": "y"}, {"wide": ("mean",)}])
def test_an_unknown_name_in_the_mark_of_an_op_is_refused_where_it_is_defined(mark):
    def double(x):
        return 2 * x, x

    with pytest.raises(ConfigError, match=r"double has no '(y|mean)'"):
        dispatched(**mark)(double)


def test_the_argument_that_is_named_decides_who_computes(jax):
    seen = []

    class Told(Engine):
        name = "told"

        def kernels(self):
            return [_pick_kernel.kernel]

    @dispatched(by="b")
    def pick(a, b):
        return "as written"

    @replaces(pick)
    def _pick_kernel(a, b):
        seen.append(type(b))
        return "by the kernel"

    _pick_kernel.kernel.is_current = lambda: True  # it replaces nothing in the package
    with use_engine(Told()):
        assert pick(jax.numpy.ones(1), np.ones(1)) == "by the kernel"
        assert pick(np.ones(1), jax.numpy.ones(1)) == "as written"
    assert seen == [np.ndarray]


def _twice(x):
    return 2 * x


class _Doubling(Engine):
    name = "doubling"

    def kernels(self):
        return [_softmax_twice.kernel]


@replaces(ops.softmax)
def _softmax_twice(x, *, mask=None):
    return _twice(x), x


def test_an_engine_is_a_value_that_holds_its_kernels_and_numba_may_be_missing():
    with dispatch.use_engine(_Doubling()):
        np.testing.assert_array_equal(ops.softmax(np.ones(2))[0], [2, 2])
        assert engine() == "doubling"
    assert in_a_fresh_process(TRAIN.format(before="sys.modules['numba'] = None")) == "numpy True False"


def test_importing_glassformer_imports_neither_numba_nor_jax():
    code = "import sys, glassformer, glassformer.ops, glassformer.models; print('numba' in sys.modules)"
    assert in_a_fresh_process(code) == "False"

    code = """
import sys, glassformer, glassformer.models, glassformer.training, glassformer.runs.session
from glassformer.core.execution import Execution
glassformer.set_engine("jax")
Execution(precision="bfloat16")
print(sorted({"jax", "jaxlib", "orbax"} & sys.modules.keys()))
"""
    assert in_a_fresh_process(code) == "[]"


TRAIN = """
import sys
{before}
import numpy as np
import glassformer
from glassformer import Batch, DecoderConfig, build
from glassformer.core.dispatch import engine
model = build(DecoderConfig(vocab=5, width=4, heads=2, layers=1, context=4))
tokens = np.array([[1, 2, 3], [3, 0, 4]])
loss, grads = model.loss_and_grads(model.init(0), Batch(tokens, tokens))
print(engine(), bool(np.isfinite(loss)), sys.modules.get("numba") is not None)
"""


WRAPPERS = ("core/dispatch.py", "core/arrays.py", "core/sources.py", "contextlib.py")
"""Files whose frames are the dispatcher's own."""


def frames_to(last):
    """A function in place of one, and the calls that led to it, without those that dispatch or explain errors."""
    chains = []

    def counted(*arguments, **settings):
        frames = traceback.extract_stack()[:-1]
        chains.append([f for f in frames if not f.filename.endswith(WRAPPERS) and f.name != "named"])
        return last(*arguments, **settings)

    return counted, chains


def test_from_a_models_forward_to_softmax_there_are_at_most_eight_calls(monkeypatch):
    home = ops.softmax.__wrapped__.__globals__
    counted, chains = frames_to(home["_exponentials"])
    monkeypatch.setitem(home, "_exponentials", counted)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    model = glassformer.build("tiny-decoder")
    params = model.init(0)
    with use_engine("numpy"):
        model.forward(params, np.array([[1, 2, 3]]))
    names = [frame.name for frame in max(chains, key=len)]
    assert len(names) - names.index("forward") - 1 <= 8


@pytest.mark.parametrize("op", ["layer_norm_backward", "attention_backward"])
def test_from_a_step_to_a_backward_kernel_of_a_block_there_are_at_most_ten_calls(monkeypatch, op):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    model = glassformer.build("tiny-decoder")
    with use_engine("cpu"):
        kernel = current().table[op]
        counted, chains = frames_to(kernel.function)
        monkeypatch.setattr(kernel, "function", counted)
        trainer = current().executor.trainer(model, Recipe(batch=1))
        tokens = np.array([[1, 2, 3]])
        trainer.step(trainer.first(), Batch(tokens, tokens), 1e-3)
    names = [frame.name for frame in max(chains, key=len)]
    assert len(names) - names.index("step") <= 10  # to the kernel itself
