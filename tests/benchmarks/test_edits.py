"""The campaign of edits makes the edits that it says, undoes them, and fails when one was ignored."""

import ast
import sys
from types import ModuleType

import pytest

import edits
from _edited import edits_of, put_into_memory

TEXT = '''"""A file."""

SCALE = 2.0


def shrink(x, by=3, *, more=4.0):
    """A docstring."""
    if x < 10:
        x = x - by
    return SCALE * x - more


class Pair:
    def first(self, x):
        return max(x, 1)
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The file, imported."""
    module = ModuleType("edited")
    module.__file__ = str(tmp_path / "edited.py")
    exec(compile(TEXT, module.__file__, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "edited", module)
    return module


def test_every_kind_of_edit_is_made_and_the_same_seed_makes_the_same():
    before = ast.dump(ast.parse(TEXT))
    found = {edit.kind: edit for edit in edits_of(TEXT, 1000, 0)}
    assert {"constant", "default", "operator", "dropped term", "comparison", "scaled result"} <= found.keys()
    assert all(ast.dump(ast.parse(edit.text)) != before for edit in found.values())
    assert "swapped arguments" in found
    assert "max(1, x)" in found["swapped arguments"].text

    assert list(edits_of(TEXT, 5, 1)) == list(edits_of(TEXT, 5, 1)) != list(edits_of(TEXT, 5, 2))


@pytest.mark.parametrize("in_place", [True, False])
def test_an_edit_in_memory_computes_what_one_on_disk_does_and_is_undone(module, in_place):
    made = 0
    for edit in edits_of(TEXT, 1000, 0):
        before = vars(module)["shrink"](7), vars(module)["Pair"]().first(0)
        undo = put_into_memory(edit, module, in_place=in_place)
        if undo is None:
            continue
        on_disk: dict = {}
        exec(edit.text, on_disk)
        have = vars(module)["shrink"](7), vars(module)["Pair"]().first(0)
        assert have == (on_disk["shrink"](7), on_disk["Pair"]().first(0)), edit
        made += have != before
        undo()
        assert (vars(module)["shrink"](7), vars(module)["Pair"]().first(0)) == before
    assert made > 8


def row(**facts):
    kept = {"file": "ops/mask.py", "number": 0, "line": 1, "function": "f", "kind": "constant", "how": "on disk"}
    return kept | {"verdict": "followed", "hidden": [], "stopped": {"cpu": 0.25}} | facts


def test_an_ignored_edit_fails_the_campaign_and_parts_are_all_edits_once(capsys):
    assert edits._report([row(), row(verdict="no effect", stopped={})]) == 0
    assert "| ops/mask.py | 1 | 0 | 1 | 0 | 0 | 25 % |" in capsys.readouterr().out
    for verdict in ("ignored", "crashed"):
        assert edits._report([row(), row(verdict=verdict, hidden=["cpu: written"])]) == 1
        assert "--repeat ops/mask.py:0) in cpu: written" in capsys.readouterr().out

    class Arguments:
        quick, each, repeat, only, engines, seed = True, None, None, ["ops/mask.py", "ops/norm.py"], ("cpu",), 0

    def cases(part):
        Arguments.part = part
        return [(case.file, case.number) for case in edits._cases(Arguments)]

    assert sorted([*cases("1/2"), *cases("2/2")]) == sorted(cases("1/1"))
    assert len(cases("1/1")) == 4
