"""Files of one's own: read once, read again when they change, and refused with the line that is wrong."""

import pytest

from glassformer.core import registry
from glassformer.core.errors import DataError
from glassformer.data import TASKS, files_of, import_file

TASK = """
import glassformer as gf

@gf.task
def letters(*, count=40):
    for number in range(count):
        yield f"{number}=", "x"
"""
ACTIVATION = """
import glassformer as gf
gf.register_activation("halved", lambda x: (x / 2, x), lambda dy, x: dy / 2)
"""


def test_a_file_is_read_once_and_again_when_it_changed_or_others_took_its_names(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(TASK)
    file = import_file(path)
    assert file.tasks == ("letters",)
    assert registry.origin("task", "letters") == path.resolve()
    first = TASKS["letters"]
    assert import_file(path) == file
    assert TASKS["letters"] is first
    other = tmp_path / "other.py"
    other.write_text(TASK)
    import_file(other)
    assert TASKS["letters"] is not first
    assert file.tasks == ()
    assert file.loaded is None
    assert import_file(path).tasks == ("letters",)
    assert file.loaded == file.sha256
    path.write_text(TASK.replace("40", "50"))
    assert file.loaded == file.sha256  # which does not look at the disk
    assert import_file(path).sha256 != file.sha256


def test_the_files_of_parts_are_named_once(tmp_path):
    path, other = tmp_path / "mine.py", tmp_path / "other.py"
    path.write_text(TASK)
    other.write_text(ACTIVATION)
    mine, theirs = import_file(path), import_file(other)
    chosen = [("task", "letters"), ("activation", "halved"), ("norm", "layer"), ("block", None), ("task", "letters")]
    assert files_of(chosen) == (mine, theirs)
    registry.register("activation", "halved", ())  # by a program
    assert files_of(chosen) == (mine,)


def test_a_file_may_import_its_neighbors_and_have_dataclasses(tmp_path):
    (tmp_path / "neighbor_of_mine.py").write_text("HALF = 0.5\n")
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport neighbor_of_mine\n"
        "@dataclass(frozen=True)\nclass Settings:\n    half: float = neighbor_of_mine.HALF\n" + ACTIVATION
    )
    import_file(path)
    assert registry.own("activation")["halved"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1\ny = = 2\n", r"SyntaxError: invalid syntax \(wrong.py, line 2\)"),
        ("x = 1\n\ny = z\n", r"NameError: name 'z' is not defined \(wrong.py, line 3\)"),
        ("x = 1\n", "registers nothing"),
        ("import glassformer as gf\n@gf.task\ndef sort(): ...\n", r"'sort' is the name of a built-in task \(wrong.py"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "wrong.py"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        import_file(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"missing.py cannot be read: No such file(.|\n)*hint: pass a Python file"):
        import_file(tmp_path / "missing.py")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        import_file(tmp_path)
