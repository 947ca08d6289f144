"""The published data sets that results are compared on, where they are at hand.

GLASSFORMER_DATA names the folder that holds names.txt and tinyshakespeare.txt.
"""

import numpy as np
import pytest

from glassformer.config import CONFIGS
from glassformer.core import tree
from glassformer.data import build_task, count_targets
from glassformer.models import build
from published_models import data_file


def parameters(task) -> int:
    model = build(CONFIGS[task.architecture](**task.settings))
    return tree.count(model.init(np.random.default_rng(0)))


def test_addition_and_sort_have_the_published_sizes():
    assert parameters(build_task("addition")) <= 400_128
    assert [build_task("sort").settings[name] for name in ("layers", "heads", "width")] == [3, 3, 48]


@pytest.mark.data("names.txt")
def test_names_are_split_as_makemore_splits_them_less_the_repeats():
    path = data_file("names.txt")
    task = build_task("lines", data=path, seed=0)
    every = path.read_text().split()
    assert len(every) == 32_033
    assert len(task.train) == 30_033  # all but a thousand to validate on and a thousand to test on
    assert len(task.validation) + len(task.held_out) == 2_000 - 301
    assert task.settings["vocab"] == 26 + 2
    assert task.settings["context"] == 16
    assert parameters(task) <= 200_000
    # Every letter of a name and its end count, as in makemore's loss.
    assert task.train.count == task.train.rows.mask.sum()


@pytest.mark.data("tinyshakespeare.txt")
def test_tinyshakespeare_is_split_as_nanogpt_splits_it():
    task = build_task("text", data=data_file("tinyshakespeare.txt"))
    assert (len(task.train.tokens), len(task.held_out.tokens)) == (1_003_854, 111_540)
    assert task.settings["vocab"] == 65
    assert sum(count_targets(batch) for batch in task.held_out.batches(256)) == 111_539
