"""Helpers: they change how long a kernel takes, and nothing else; also in threads, after forks, and in pools."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from glassformer.engines.cpu import cores
from glassformer.engines.cpu.cores import DONE, TICKET, WORTHWHILE, ThreadPool, new_queue, on_all_cores
from glassformer.engines.cpu.linear import add_rows, described, multiply, workspace


def product(w):
    """The arguments of a product with a matrix, and where its result will be."""
    x = np.random.default_rng(1).standard_normal((1, w.shape[0])).astype(np.float32)
    y = np.empty(w.shape[1], np.float32)
    return (x, np.array([described(w)]), y, workspace(*x.shape)), y


@pytest.fixture(scope="module")
def matrix():
    return np.asfortranarray(np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32))


@pytest.mark.parametrize("helpers", [1, 3])
def test_all_parts_are_done_when_a_kernel_ends(matrix, helpers):
    arguments, alone = product(matrix)
    multiply(*arguments, new_queue())
    np.testing.assert_allclose(alone, (arguments[0] @ matrix)[0], rtol=0, atol=1e-4)
    own = ThreadPool()
    for _ in range(30):
        arguments, y = product(matrix)
        y[:] = np.nan
        own.run(multiply, arguments, helpers)
        np.testing.assert_array_equal(y, alone)
    assert own.queue[DONE] == own.queue[TICKET] >> 32 > 1
    own.threads.shutdown()


def test_sums_are_the_same_however_many_help_and_helpers_leave_when_there_is_nothing_to_do(matrix):
    x, w = np.ones(1024, np.float32), np.ascontiguousarray(matrix.T)
    alone, helped = np.empty((4, 256), np.float32), np.empty((4, 256), np.float32)
    add_rows(x, w, alone, new_queue())
    own = ThreadPool()
    own.run(add_rows, (x, w, helped), 2)
    np.testing.assert_array_equal(helped, alone)
    own.threads.shutdown()

    own = ThreadPool()
    own.run(multiply, product(matrix)[0], 1)
    for helper in own.helpers:
        helper.result(timeout=30)  # they come back by themselves
    own.threads.shutdown()


def test_an_error_releases_the_lock(monkeypatch):
    own = ThreadPool()
    monkeypatch.setattr(cores, "_pool", own)
    monkeypatch.setattr(cores.numba.config, "NUMBA_NUM_THREADS", 2)
    monkeypatch.setattr(cores, "cores", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        on_all_cores(lambda queue: 1 // 0, size=WORTHWHILE)
    assert own.lock.acquire(blocking=False)
    own.threads.shutdown()


PROCESSES = """
import multiprocessing, os, sys, threading
import numpy as np
from glassformer.engines.cpu import cores
from glassformer.core.threads import at_most
from glassformer.engines.cpu.cores import each
from glassformer.generation.storage import stored
from glassformer.models import build

cores.WORTHWHILE = 1  # everything is helped with
model = build("tiny-decoder", width=96, layers=2, feed_forward=192)
params = {kind: stored(model.init(0), kind) for kind in ("float32", "int8")}

def written(kind):
    cache = model.new_cache()
    return b"".join(model.read(params[kind], np.array([[token]]), cache).tobytes() for token in (3, 1, 4, 1, 5, 2))

def both(_=None):
    with at_most(2):
        return [written(kind) for kind in params]

with at_most(1):
    alone = [written(kind) for kind in params]
assert not cores._pool.helpers
assert both() == alone
assert cores._pool.helpers, "nobody helped"

found = []
threads = [threading.Thread(target=lambda: found.append(both())) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert found == [alone] * 4, "in threads"
with at_most(2):
    assert each([both, both]) == [alone] * 2, "in tasks"

if hasattr(os, "fork"):
    child = os.fork()
    if child == 0:
        os._exit(0 if both() == alone else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "after a fork"
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(both, range(4)).get(60) == [alone] * 4, "in a pool"
assert both() == alone
"""


def test_threads_tasks_forks_and_pools_write_what_one_does():
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2", "GLASSFORMER_ENGINE": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PROCESSES], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_one_cache_is_not_read_by_two_threads_at_once(monkeypatch):
    from glassformer.core.errors import ConfigError
    from glassformer.engines.cpu import decode
    from glassformer.generation.storage import stored
    from glassformer.models import build

    model = build("tiny-decoder", width=48, layers=1)
    params, cache, token = stored(model.init(0), "float32"), model.new_cache(), np.array([[3]])
    model.read(params, token, cache)
    inside, go_on = threading.Event(), threading.Event()
    run = decode.on_all_cores

    def slowly(*arguments, **settings):
        inside.set()
        assert go_on.wait(30)
        return run(*arguments, **settings)

    monkeypatch.setattr(decode, "on_all_cores", slowly)
    other = threading.Thread(target=model.read, args=(params, token, cache))
    other.start()
    assert inside.wait(30)
    with pytest.raises(ConfigError, match="another thread"):
        model.read(params, token, cache)
    go_on.set()
    other.join()
    assert cache.length == 2
