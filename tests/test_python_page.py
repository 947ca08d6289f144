"""The page about Python: every block runs as printed, and a loop of one's own has eight lines at most."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
FIRST = "import glassformer as gf\n"


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_block_runs_as_printed(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    exec(compile(BLOCKS[number], f"block {number}", "exec"), namespace)
    if "params, optimizer" in BLOCKS[number]:
        assert namespace["loss"] < 0.5
    if "tuned" in namespace:
        assert namespace["tuned"].evaluate().loss < namespace["model"].evaluate("song.txt").loss


def test_a_loop_of_ones_own_has_eight_lines_at_most():
    loops = [block for block in BLOCKS if "for " in block]
    assert len(loops) == 2
    for block in loops:
        assert block.startswith(FIRST)
        assert len([line for line in block.removeprefix(FIRST).splitlines() if line]) <= 8
