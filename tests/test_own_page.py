"""The page about parts of one's own: each file on it is short, and everything it shows runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from own_parts import forgotten
from runs import command, write_data

pytestmark = pytest.mark.usefixtures("numpy_engine")  # `test_own_parts.py` has both engines

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "guides" / "own_parts.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
FILES = {match[1]: code for code in CODE if (match := re.match(r"# (\w+\.py)\n", code))}
(PROOF,) = (code for code in CODE if not code.startswith("# "))
COMMANDS = [line for part in re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL) for line in part.splitlines()]
SMALL = {"eval_every": 3, "layers": 1, "width": 16, "heads": 2}
"""Settings of a run that is quick enough for a test, where a command as printed does not have its own."""


def quick(line: str) -> list[str]:
    """What makes a command as printed quick enough."""
    small = [f"--set={name}={value}" for name, value in SMALL.items() if f"{name}=" not in line]
    more = {"train": ["--steps", "3", *small], "generate": ["--max-new-tokens", "3"]}
    return more.get(line.split()[1], [])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with all files of the page."""
    for name, code in FILES.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_of_the_page_runs(folder, unseen_figures):
    assert FILES
    assert COMMANDS
    short = ["--data", write_data("text", folder)]
    for line in COMMANDS:
        program, name, *rest = shlex.split(line)
        assert program == "glassformer"
        with forgotten():  # each command is a process of its own
            result = command(name, *rest, *quick(line), *(short if rest[0] == "text" else []))
        assert result.code == 0, f"{line}\n{result.err}"


def test_the_gradients_of_the_page_are_proved(folder):
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROOF], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
