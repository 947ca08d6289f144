"""The examples and the README: they run, print what they promise, and say what is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glassformer.api.loading import read_model
from glassformer.interpret import zero
from glassformer.ops import softmax
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
    subprocess.run([sys.executable, str(EXAMPLES[0].with_name("tickets.py"))], check=True, cwd=tmp_path)
    code = "\nprint('----')\n".join(block for block, _ in found)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for printed, (_, expected) in zip(done.stdout.split("----\n"), found, strict=True):
        assert not expected or printed == expected


ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
[TEXT] = re.findall(r'glassformer explore smollm2 "(.+?)"', README)
SAYS = (
    r"In block (\d+), head (\d+), the last token looks at (\w+) with (\d+) %\. "
    r"The model answers (\w+) with ([\d.]+) %; without this head, with ([\d.]+) %"
)


@pytest.fixture(scope="module")
def run(numpy_engine):
    """SmolLM2 reads the text of the README."""
    return read_model(pulled("smollm2")).watch(TEXT)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_named_head_looks_at_the_answer_and_the_answer_falls_without_it(page, run):
    words = (ROOT / page).read_text(encoding="utf-8")
    said = re.findall(SAYS, words)
    assert len(said) == words.count("looks at Mary with") == words.count("In block ") > 0
    for block, head, looked_at, share, answer, before, after in said:
        name = f"blocks.{block}.attention"
        weights = run[f"{name}.attend.weights"][0, int(head), -1]
        most = int(np.argmax(weights))
        assert (run.tokens[0][most].strip(), f"{weights[most]:.0%}") == (looked_at, f"{share}%")
        token = int(np.argmax(run.logits[0, -1]))
        assert run.label(token).strip() == answer == looked_at
        without = run.changed(zero(f"{name}.output.x", head=int(head)))
        shares = [f"{softmax(one.logits[0, -1])[0][token]:.1%}" for one in (run, without)]
        assert shares == [f"{before}%", f"{after}%"]
        assert float(after) < float(before)


def test_the_line_below_the_picture_says_the_same():
    (block, head, _, _, _, before, after), *_ = re.findall(SAYS, README)
    line = f"without head {head} of block {block}, which looks at Mary, the answer falls from {before} to {after} %"
    assert line in README
