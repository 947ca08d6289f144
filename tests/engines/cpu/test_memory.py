"""Memory for results."""

import sys

from glassformer.engines.cpu.memory import keep_freed_memory


def test_the_c_library_is_told_once_where_there_is_one_to_tell():
    told = keep_freed_memory()
    assert told is keep_freed_memory()
    if not sys.platform.startswith("linux"):
        assert told is False
