"""The page about Python: every block runs as printed."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_block_runs_as_printed(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    exec(compile(BLOCKS[number], f"block {number}", "exec"), namespace)
    if "params, optimizer" in BLOCKS[number]:
        assert namespace["loss"] < 0.5
    if "tuned" in namespace:
        assert namespace["tuned"].evaluate().loss < namespace["model"].evaluate("song.txt").loss
