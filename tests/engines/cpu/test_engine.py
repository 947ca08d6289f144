"""The engine as a whole: what it asks of the C library."""

import sys

import pytest

from glassformer.engines.cpu import keep_freed_memory


def test_the_c_library_is_told_once_where_there_is_one_to_tell():
    told = keep_freed_memory()
    assert told is keep_freed_memory()
    if not sys.platform.startswith("linux"):
        assert told is False


@pytest.mark.parametrize("variable", ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_whoever_has_told_it_something_else_is_left_alone(monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert keep_freed_memory.__wrapped__() is False
