"""Several cores and a second process: tasks run together, errors come out, and everything is left as it was found."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from glassformer.core import threads
from glassformer.core.threads import at_most, cores
from glassformer.engines.cpu import keep_freed_memory
from glassformer.engines.cpu.cores import beside, each


@pytest.fixture
def two_cores():
    with at_most(2):
        yield


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["internal_api"] == "openblas"]


def test_results_come_in_the_order_of_tasks_that_run_at_the_same_time(two_cores):
    assert each([lambda n=n: n * n for n in range(7)]) == [0, 1, 4, 9, 16, 25, 36]
    assert each([]) == []
    assert each([lambda: "alone"]) == ["alone"]

    together = threading.Barrier(2, timeout=30)  # passes only if both are there at once

    def task():
        together.wait()
        return threading.current_thread()

    first, second = each([task, task])
    assert first is threading.current_thread()
    assert second is not first


def test_one_core_does_one_task_after_the_other_and_a_task_alone_has_all_cores(two_cores):
    with at_most(1):
        assert set(each([threading.current_thread] * 3)) == {threading.current_thread()}
    assert each([cores]) == [2]


def test_inside_a_task_there_is_one_core_and_tasks_stay_on_it(two_cores):
    def inner():
        return cores(), threading.current_thread()

    def outer():
        return inner(), each([inner, inner])

    for own, nested in each([outer, outer]):
        assert own[0] == 1
        assert nested == [own, own]
    assert cores() == 2


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_comes_out_when_nothing_runs_any_more(two_cores, failing):
    done = []

    def fails():
        raise ZeroDivisionError("on purpose")

    def works():
        done.append(sum(range(100_000)))

    tasks = [works, works]
    tasks[failing] = fails
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        each(tasks)
    assert done == [sum(range(100_000))]
    assert cores() == 2
    assert each([cores, cores]) == [1, 1]  # and again


def test_products_have_one_thread_in_every_task(two_cores):
    threads._libraries.cache_clear()  # another test may have loaded one since they were counted
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        assert each([blas_threads, blas_threads]) == [[1] * len(before)] * 2
        assert blas_threads() == before
        with pytest.raises(ZeroDivisionError):
            each([lambda: 1 // 0, blas_threads])
        assert blas_threads() == before


def test_what_numpy_warns_about_is_decided_where_the_tasks_come_from(two_cores):
    def overflow():
        return np.float32(3e38) * np.float32(3e38)

    with np.errstate(over="ignore"):
        assert each([overflow] * 3) == [np.inf] * 3
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        each([lambda: 0, overflow])


def test_the_number_of_cores_is_that_of_the_process_unless_set():
    assert cores() == (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    with at_most(5):
        assert cores() == 5
        with at_most(1):
            assert cores() == 1
        assert cores() == 5


FORK = """
import os
from glassformer.core import threads
from glassformer.core.threads import at_most
from glassformer.engines.cpu.cores import each
with at_most(2):
    each([os.getpid, os.getpid])  # now there are threads, which a child does not inherit
    child = os.fork()
    if child == 0:
        os._exit(0 if each([os.getpid, os.getpid]) == [os.getpid()] * 2 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_has_threads_of_its_own():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "0"


def test_more_tasks_than_cores_are_all_done_in_order_and_no_more_at_a_time_than_there_are_cores(two_cores):
    running, most = [], []

    def task(number):
        running.append(number)
        most.append(len(running))
        time.sleep(0.001 * (number % 3))
        running.remove(number)
        return number

    assert each([partial(task, number) for number in range(12)]) == list(range(12))
    assert max(most) <= 2


def test_another_process_computes_beside_this_one_or_this_one_does():
    with at_most(1), beside(os.getpid) as asked:
        assert asked() == os.getpid()
    with at_most(2), beside(os.getpid) as asked:
        assert asked() != os.getpid()
    began = time.monotonic()
    with at_most(2), beside(signal.pause):
        pass
    assert time.monotonic() - began < 60

    with at_most(2):
        with beside(lambda: 3) as asked:
            assert asked() == 3
        with beside(threading.Lock) as asked:
            assert asked().acquire()
        with beside(os._exit) as asked, pytest.raises(TypeError):  # for want of an argument, there and here
            asked()


def test_the_c_library_is_told_once_where_there_is_one_to_tell():
    told = keep_freed_memory()
    assert told is keep_freed_memory()
    if not sys.platform.startswith("linux"):
        assert told is False


@pytest.mark.parametrize("variable", ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_whoever_has_told_it_something_else_is_left_alone(monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert keep_freed_memory.__wrapped__() is False
