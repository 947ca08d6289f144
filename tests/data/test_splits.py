"""Splits that share no question, and settings in their ranges."""

import itertools

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.data import build_task
from glassformer.data.splits import draw_splits, split


def numbers(limit):
    rng = np.random.default_rng(0)
    return lambda: str(rng.integers(limit))


def test_parts_share_nothing_and_have_the_sizes_that_were_asked_for_or_are_refused():
    splits = draw_splits(numbers(10_000), asked=(100, 20, None), usual=(1, 1, 30))
    assert tuple(map(len, splits)) == (100, 20, 30)
    for one, two in itertools.combinations(splits, 2):
        assert not set(one) & set(two)
    assert len({question for part in splits for question in part}) == 150
    assert splits.note == "100 examples to train on, 20 to choose settings by, 30 to test on"

    drawn = draw_splits(numbers(200), asked=(None,) * 3, usual=(1000,) * 3)
    by_hash = split(map(str, range(200)))
    assert [set(part) for part in drawn] == [set(part) for part in by_hash]

    with pytest.raises(ConfigError, match=r"held_out is 100, but only \d+ different questions(.|\n)*lower held_out"):
        draw_splits(numbers(50), asked=(None, None, 100), usual=(5, 5, 5))


def test_settings_out_of_range_are_refused():
    for wrong in (0, 10, 2.0, True, "3"):
        with pytest.raises(ConfigError, match=rf"digits is {wrong!r}(.|\n)*from 1 to 9"):
            build_task("addition", digits=wrong)
    with pytest.raises(ConfigError, match="train is 0"):
        build_task("induction", train=0)
    with pytest.raises(ConfigError, match=r"reverse is 1(.|\n)*true or false"):
        build_task("addition", reverse=1)
