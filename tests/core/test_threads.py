"""One thread of BLAS: as long as somebody wants it, and no longer."""

import os
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import glassformer as gf
from glassformer.core import threads
from glassformer.core.errors import ConfigError
from glassformer.core.threads import cores, one_blas_thread, one_thread_if_busy


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["internal_api"] == "openblas"]


@pytest.fixture(autouse=True)
def two_threads():
    """A BLAS with two threads."""
    threads._libraries.cache_clear()  # another test may have loaded one since they were counted
    with threadpool_limits(2, user_api="blas"):
        assert set(blas_threads()) == {2}
        yield
    threads._begin_anew()  # with a lock that is free: what is broken off may have taken it for good


def test_blas_has_one_thread_inside_and_as_many_as_before_afterwards():
    with one_blas_thread():
        assert set(blas_threads()) == {1}
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        1 / 0  # noqa: B018
    assert set(blas_threads()) == {2}


@pytest.mark.parametrize(("load", "expected"), [(0.0, 2), (1e6, 1)])
def test_beside_other_jobs_blas_has_one_thread(load, expected, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load), raising=False)
    with one_thread_if_busy():
        assert set(blas_threads()) == {expected}
    assert set(blas_threads()) == {2}


def test_the_number_can_be_set_before_anything_is_computed():
    program = (
        "import glassformer as gf; gf.threads(1); import numpy, threadpoolctl; print(threadpoolctl.threadpool_info())"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "'num_threads': 1" in found
    assert "'num_threads': 2" not in found


def test_the_number_of_threads_is_set_for_good_or_for_a_block():
    before = cores()
    with gf.threads(1):
        assert (set(blas_threads()), cores()) == ({1}, 1)
        gf.threads(3)
        assert (set(blas_threads()), cores()) == ({3}, 3)
        with one_blas_thread(), gf.threads(4):
            assert (set(blas_threads()), cores()) == ({1}, 4)
        assert set(blas_threads()) == {3}
        with one_blas_thread():
            gf.threads(2)
        assert set(blas_threads()) == {2}
    assert (set(blas_threads()), cores()) == ({2}, before)
    for wrong in (0, 1.5, None):
        with pytest.raises(ConfigError, match="number of threads"):
            gf.threads(wrong)


def test_blocks_of_two_threads_that_overlap_leave_it_as_it_was():
    first, second, left = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def early():
        with one_blas_thread():
            first.set()
            assert second.wait(30)
        left.set()

    def late():
        assert first.wait(30)
        with one_blas_thread():
            second.set()
            assert left.wait(30)
            seen.append(blas_threads())  # who came first has gone, and this block is still open

    both = [threading.Thread(target=part) for part in (early, late)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert set(seen[0]) == {1}
    assert set(blas_threads()) == {2}


def test_an_open_block_that_is_let_go_of_closes():
    def steps():
        with one_blas_thread():
            yield

    left = steps()
    next(left)
    assert set(blas_threads()) == {1}
    del left
    assert set(blas_threads()) == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:os.fork", "ignore:This process")
def test_a_child_does_not_wait_for_blocks_of_threads_that_stayed_behind():
    with one_blas_thread():
        child = os.fork()
        if child == 0:
            right = set(blas_threads()) == {2} and not threads._open
            with one_blas_thread():
                right = right and set(blas_threads()) == {1}
            os._exit(0 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert set(blas_threads()) == {1}


def interrupted_at(moment):
    """Open and close a block; Ctrl-C falls between two instructions of it. Tells whether there were so many."""
    passed = 0

    def trace(frame, event, _):
        nonlocal passed
        if frame.f_code.co_filename != threads.__file__:
            return None
        frame.f_trace_opcodes = True
        if event in ("call", "opcode"):
            passed += 1
            if passed == moment:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with one_blas_thread():
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interruption_between_any_two_instructions_leaves_blas_as_it_was():
    with one_blas_thread():
        pass  # the libraries are known now
    moment = 1
    while interrupted_at(moment):
        assert set(blas_threads()) == {2}, f"after {moment} instructions"
        assert not threads._open
        assert not threads._before
        moment += 1
    assert moment > 50  # there were many


def test_a_lock_that_an_interruption_left_taken_holds_up_no_other_thread(monkeypatch):
    monkeypatch.setattr(threads, "PATIENCE", 0.01)
    threads._lock.acquire()  # and nobody is left who would release it
    seen = []

    def other():
        with one_blas_thread():
            seen.append(set(blas_threads()))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(30)
    assert seen == [{1}]
    assert set(blas_threads()) == {2}
