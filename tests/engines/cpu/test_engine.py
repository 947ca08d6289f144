"""The engine as a whole: what it asks of the C library."""

import sys

from glassformer.engines.cpu import keep_freed_memory


def test_the_c_library_is_told_once_where_there_is_one_to_tell():
    told = keep_freed_memory()
    assert told is keep_freed_memory()
    if not sys.platform.startswith("linux"):
        assert told is False
