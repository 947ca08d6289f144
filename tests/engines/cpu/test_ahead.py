"""What a second process compiles while this one does."""

import os
import time

from glassformer.engines.cpu.ahead import ahead
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
    with at_most(1), ahead(time.sleep, 300):
        assert not before_compiling
