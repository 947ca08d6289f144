"""Memory for results."""

import sys

import numpy as np

from glassformer.engines.cpu.memory import empty, empty_like, keep_freed_memory


def test_arrays_are_new_plain_and_in_c_order():
    x = np.zeros((3, 4), np.float32).T
    y = empty_like(x)
    assert (y.shape, y.dtype, y.flags.c_contiguous, y.flags.owndata) == ((4, 3), np.float32, True, True)
    assert empty((2, 0), np.bool_).shape == (2, 0)
    assert not np.shares_memory(empty_like(x), empty_like(x))


def test_the_c_library_is_told_once_where_there_is_one_to_tell():
    told = keep_freed_memory()
    assert told is keep_freed_memory()
    if not sys.platform.startswith("linux"):
        assert told is False
