"""`make test-newest`: the newest Python is found and named, and every room has tests among those that run on it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / ".ci" / "newest_python.py"


def python(folder: Path, name: str, answer: str) -> Path:
    """Write a program of this name that answers as an interpreter does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    return folder / name


def asked(tmp_path: Path) -> tuple[str, str]:
    """Return what the script prints, and what it says, where PATH and pyenv have nothing but these."""
    alone = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv"), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, SCRIPT], env=alone, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.skipif(os.name == "nt", reason="the interpreters of this test are scripts of a shell")
def test_the_newest_release_that_can_make_an_environment_is_taken(tmp_path):
    python(tmp_path / "bin", "python3.30", "echo 3 30 9 final 0 0 /newer/python")
    folder = tmp_path / "pyenv" / "versions" / "3.31.2" / "bin"
    newest = python(folder, "python3", "echo 3 31 2 final 0 0 /newest/python")
    python(tmp_path / "bin", "python3.36", "exit 127  # as pyenv's stand-in for one that is not chosen")
    python(tmp_path / "bin", "python3.37", "echo No module named ensurepip >&2; exit 1")
    python(tmp_path / "bin", "python3.38", "echo 3 38 0 candidate 1 0 /not/released")
    python(tmp_path / "bin", "python3.39", "echo 3 39 0 final 0 1 /free/threaded")
    assert asked(tmp_path) == ("/newest/python", "The newest Python on this machine is 3.31.2.")
    newest.unlink()
    assert asked(tmp_path) == ("/newer/python", "The newest Python on this machine is 3.30.9.")


def test_where_there_is_only_one_it_is_taken_and_this_is_said(tmp_path):
    place, said = asked(tmp_path)
    assert Path(place).samefile(sys.executable)
    own = ".".join(map(str, sys.version_info[:3]))
    assert said == f"The newest Python on this machine is {own}; there is no other: the suite runs on it, too."


def test_every_room_has_tests_among_those_of_the_newest_python():
    """Rooms are folders of tests; and each path of the Makefile is there."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (listed,) = re.findall(r"^NEWEST_TESTS := \$\(addprefix tests/,(.*)\)$", makefile, flags=re.MULTILINE)
    paths = [Path("tests") / name for name in listed.split()]
    assert all((ROOT / path).exists() for path in paths)
    rooms = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert rooms <= {path.parts[1] for path in paths}
    assert {Path("tests/engines/jax"), Path("tests/interpret")} <= {*paths}
