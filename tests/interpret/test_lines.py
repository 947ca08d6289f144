"""The lines of source that computed something."""

import linecache

import pytest

from glassformer import ops
from glassformer.interpret.card import source_of
from glassformer.layers import Residual


def test_a_line_that_computes_is_looked_for_in_the_body():
    found = source_of(ops.softmax, "y = e")
    assert found.text.splitlines()[found.lines[0] - found.line].strip().startswith("y = e /")
    found = source_of(Residual.backward, "nowhere in it")
    rows = found.text.splitlines()
    assert rows[found.lines[0] - found.line].strip().startswith("name, norm =")
    assert found.lines[1] == found.line + len(rows) - 1


@pytest.mark.parametrize("line", ["import sys; exec(sys.stdin.readline())\n", "def other(x): return x\n", ""])
def test_what_has_no_source_has_none(line, monkeypatch):
    """From Python 3.13 on, what `exec` made has the line of `python -c` for its source, as in xdist."""
    assert source_of(None) is None
    assert source_of(len) is None
    assert source_of((lambda x: x, 0)[0]) is None
    if line:
        monkeypatch.setitem(linecache.cache, "<string>", (len(line), None, [line], "<string>"))
    scope = {}
    exec("def made(x):\n    return x", scope)
    assert source_of(scope["made"]) is None
