"""What a second process computes while this one works."""

import os
import signal
import threading
import time

import pytest

from glassformer.core.threads import at_most
from glassformer.engines.cpu.cores import beside


def test_another_process_computes_beside_this_one_and_ends_with_its_block_and_none_starts_on_one_core():
    with at_most(1), beside(os.getpid) as asked:
        assert asked() == os.getpid()
    with at_most(2), beside(os.getpid) as asked:
        assert asked() != os.getpid()
    began = time.monotonic()
    with at_most(2), beside(signal.pause):
        pass
    assert time.monotonic() - began < 60


def test_what_another_process_cannot_compute_or_send_is_computed_here():
    with at_most(2):
        with beside(lambda: 3) as asked:
            assert asked() == 3
        with beside(threading.Lock) as asked:
            assert asked().acquire()
        with beside(os._exit) as asked, pytest.raises(TypeError):  # for want of an argument, there and here
            asked()
