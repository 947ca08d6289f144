"""How long compilers took is counted, once, whoever they are."""

import logging

import pytest

from glassformer import dispatch
from glassformer.progress.compiling import Compilation, watched
from oracles import require


@pytest.fixture
def now(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("glassformer.progress.compiling.time.perf_counter", lambda: now[0])
    return now


def test_what_is_compiled_for_something_else_is_counted_with_it(now):
    said = []
    compilation = Compilation(begun=said.append)
    assert (compilation.running, compilation.seconds, compilation.count) == (False, 0.0, 0)
    compilation.begin()
    now[0] += 2.0
    compilation.begin()
    now[0] += 1.0
    compilation.end()
    assert (compilation.running, compilation.seconds, compilation.count) == (True, 3.0, 1)
    compilation.end()
    now[0] += 9.0
    compilation.begin()
    now[0] += 0.5
    compilation.end()
    compilation.end()  # more than begun
    assert (compilation.running, compilation.seconds, compilation.count) == (False, 3.5, 2)
    assert said == ["compiling kernels; they are cached for the next start"]
    assert str(compilation) == "compiling kernels, number 2; they are cached for the next start"


def test_an_engine_that_compiles_nothing_has_nothing_to_watch():
    with watched(dispatch.engines().find("numpy")) as compilation:
        pass
    assert (compilation.count, compilation.what) == (0, "kernels")


def test_kernels_are_counted_as_numba_compiles_them():
    numba = require("numba")
    with watched(dispatch.engines().find("cpu")) as compilation:
        numba.njit(lambda x: x + 1)(1)
    assert compilation.count == 1
    assert compilation.seconds > 0
    assert not compilation.running
    numba.njit(lambda x: x + 2)(1)
    assert compilation.count == 1, "nobody looks any more"


def test_the_engine_need_not_say_what_is_shown(caplog):
    logger = logging.getLogger("glassformer")
    with watched(dispatch.engines().find("cpu")):
        logger.warning("compiling kernels for this machine")
        logger.warning("softmax was edited")
    logger.warning("compiling kernels again")
    assert caplog.messages == ["softmax was edited", "compiling kernels again"]


def test_jax_compiles_a_step(jax):
    with watched(dispatch.engines().find("jax")) as compilation:
        compilation.begin()
    assert str(compilation) == "compiling the step"
