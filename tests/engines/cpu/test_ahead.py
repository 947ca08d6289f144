"""What a second process compiles or computes while this one works."""

import os
import signal
import threading
import time

import pytest

from glassformer.engines.cpu.ahead import ahead, beside
from glassformer.engines.cpu.cores import at_most
from glassformer.engines.cpu.kernel_cache import before_compiling


def miss() -> None:
    """Do what the cache does when something must be compiled."""
    while before_compiling:
        before_compiling.pop()()


def test_a_second_process_works_only_if_something_must_be_compiled(tmp_path):
    with at_most(2):
        with ahead(os.mkdir, str(tmp_path / "not")):
            pass
        with ahead(os.mkdir, str(tmp_path / "done")):
            miss()
            end = time.monotonic() + 60
            while not (tmp_path / "done").exists() and time.monotonic() < end:
                time.sleep(0.05)
    assert [path.name for path in tmp_path.iterdir()] == ["done"]
    assert not before_compiling


def test_the_second_process_ends_when_it_is_not_needed():
    began = time.monotonic()
    with at_most(2), ahead(time.sleep, 300):
        miss()
    assert time.monotonic() - began < 60


def test_what_cannot_be_sent_is_no_error():
    with at_most(2), ahead(lambda: None):
        miss()


def test_on_one_core_nothing_is_started():
    with at_most(1), ahead(time.sleep, 300), beside(os.getpid) as asked:
        assert not before_compiling
        assert asked() == os.getpid()


def test_another_process_computes_beside_this_one_and_neither_has_more_helpers_than_cores():
    with at_most(2), beside(os.getpid) as asked, ahead(time.sleep, 300):
        assert not before_compiling
        assert asked() != os.getpid()


def test_what_another_process_cannot_compute_or_send_is_computed_here():
    with at_most(2):
        with beside(lambda: 3) as asked:
            assert asked() == 3
        with beside(threading.Lock) as asked:
            assert asked().acquire()
        with beside(os._exit) as asked, pytest.raises(TypeError):  # for want of an argument, there and here
            asked()


def test_the_other_process_ends_with_its_block():
    began = time.monotonic()
    with at_most(2), beside(signal.pause):
        pass
    assert time.monotonic() - began < 60
