"""What the first picture of the documentation says about a head of SmolLM2 is what removing this head shows."""

import re
from pathlib import Path

import numpy as np
import pytest

from glassformer.api.loading import read_model
from glassformer.interpret import zero
from glassformer.ops import softmax
from published_models import pulled

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
