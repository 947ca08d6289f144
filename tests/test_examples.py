"""Every example runs, and prints what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from published_models import pulled

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_prints(path, tmp_path):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    if 'gf.load("smollm2")' in path.read_text(encoding="utf-8"):
        pulled("smollm2")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if path.stem == "sparse_autoencoder":
        explained, active = map(float, re.search(r"explained variance ([\d.]+), L0 ([\d.]+)", done.stdout).groups())
        assert "ok=True" in done.stdout
        assert explained > 0.6
        assert 2 < active < 40
        assert done.stdout.count("feature ") == 6


def test_the_python_of_the_readme_prints_what_it_says(tmp_path):
    readme = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", readme, flags=re.DOTALL)
    assert len(found) >= 4
    code = "\nprint('----')\n".join(block for block, _ in found)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for printed, (_, expected) in zip(done.stdout.split("----\n"), found, strict=True):
        assert not expected or printed == expected
