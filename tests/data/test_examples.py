"""Batches: a pure function of the step, every example and every target once; splits that share no question."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.core.errors import ConfigError, DataError, DTypeError, ShapeError
from glassformer.data import build_task
from glassformer.data.examples import (
    Examples,
    Windows,
    count_targets,
    decoder_examples,
    stack,
    translation_examples,
    trim,
)
from glassformer.data.splits import draw_splits, split
from glassformer.data.task import encode_each
from glassformer.models.model import Batch
from glassformer.ops.loss import IGNORE
from glassformer.text import CharTokenizer


def numbered(count: int) -> Examples:
    """Examples whose only token is their own number."""
    return Examples(Batch(np.arange(count)[:, None], np.arange(count)))


def same(a: Batch, b: Batch) -> bool:
    return all((x is None and y is None) or np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@given(count=st.integers(1, 20), size=st.integers(1, 30), seed=st.integers(0, 3))
def test_an_epoch_visits_every_example_once(count, size, seed):
    examples = numbered(count)
    steps = -(-3 * count // size)
    stream = np.concatenate([examples.batch(step, size, seed).tokens[:, 0] for step in range(steps)])
    for epoch in range(3):
        assert sorted(stream[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(rows=st.lists(st.integers(0, 11), min_size=1, max_size=12), step=st.integers(0, 9))
def test_some_rows_of_a_batch_are_those_of_the_whole(rows, step):
    lengths = np.arange(1, 6)
    padded = Batch(tokens=np.arange(30).reshape(5, 6), targets=np.arange(5), mask=np.arange(6) < lengths[:, None])
    for data in (Examples(padded), Windows(np.arange(100) % 7, 6), Windows(np.arange(4), 6)):
        some = data.batch(step, 12, 3, rows=np.asarray(rows))
        whole = data.batch(step, 12, 3, rows=np.arange(12))
        assert same(some, Batch(*(None if array is None else array[rows] for array in whole)))
        assert same(trim(whole), data.batch(step, 12, 3))


def test_a_batch_depends_on_seed_and_step_alone():
    examples = numbered(50)
    forward = [examples.batch(step, 8, 7) for step in range(20)]
    fresh = numbered(50)
    backward = [fresh.batch(step, 8, 7) for step in reversed(range(20))]
    assert all(same(a, b) for a, b in zip(forward, reversed(backward), strict=True))
    assert not same(examples.batch(0, 8, 7), examples.batch(0, 8, 8))
    assert not np.array_equal(examples.order(0, 50, 7), examples.order(1, 50, 7))


@pytest.mark.parametrize("size", [1, 3, 10, 100])
def test_a_full_pass_keeps_the_order_and_leaves_nothing_out(size):
    examples = numbered(10)
    batches = list(examples.batches(size))
    assert np.concatenate([batch.tokens[:, 0] for batch in batches]).tolist() == list(range(10))
    assert sum(count_targets(batch) for batch in batches) == examples.count == 10


def test_batches_are_trimmed_to_their_longest_example_source_and_target_apart():
    examples = decoder_examples([np.arange(n) for n in (3, 4, 9)], [1, 1, 1])
    assert examples.rows.tokens.shape == (3, 8)
    first, second = examples.batches(2)
    assert first.tokens.shape == first.targets.shape == first.mask.shape == (2, 3)
    assert second.tokens.shape == (1, 8)
    assert second.mask is None  # hides nothing
    assert sum(count_targets(batch) for batch in (first, second)) == 2 + 3 + 8
    assert examples.take(np.array([0])).tokens.shape == (1, 8)

    mask = np.array([[True, True, False], [True, False, False]])
    ids = np.arange(6).reshape(2, 3)
    batch = trim(Batch(ids, np.array([1, 0]), mask, ids, np.array([[True, False, False]] * 2), ids))
    assert batch.tokens.tolist() == [[0, 1], [3, 4]]
    assert batch.segments.tolist() == [[0, 1], [3, 4]]
    assert batch.targets.tolist() == [1, 0]
    assert batch.source.tolist() == [[0], [3]]
    assert batch.source_mask is None


def test_examples_need_rows_of_one_number():
    with pytest.raises(ShapeError, match="'targets': 3"):
        Examples(Batch(np.zeros((2, 1), int), np.zeros(3, int)))
    with pytest.raises(DataError, match="no examples"):
        Examples(Batch(np.zeros((0, 1), int)))


@pytest.mark.parametrize("data", [numbered(3), Windows(np.arange(9), 4)])
def test_steps_sizes_and_seeds_out_of_range_are_refused(data):
    with pytest.raises(ConfigError, match="batch size is 0"):
        data.batch(0, 0, 0)
    with pytest.raises(ConfigError, match="batch size is 0"):
        next(data.batches(0))
    with pytest.raises(ConfigError, match="step -1"):
        data.batch(-1, 1, 0)
    with pytest.raises(ConfigError, match="seed -1"):
        data.batch(0, 1, -1)


@given(length=st.integers(2, 70), context=st.integers(1, 20), size=st.integers(1, 6))
def test_a_full_pass_counts_every_target_once(length, context, size):
    # Token i is i, so a target names its own place.
    windows = Windows(np.arange(length, dtype=np.uint16), context)
    seen = []
    for batch in windows.batches(size):
        counted = batch.targets != IGNORE
        assert np.array_equal(batch.targets[counted], batch.tokens[counted] + 1)
        assert batch.mask is None or np.array_equal(batch.mask, counted)
        assert batch.tokens.shape[1] <= context
        seen += batch.targets[counted].tolist()
    assert seen == list(range(1, length))
    assert windows.count == length - 1
    assert sum(len(batch.tokens) for batch in windows.batches(size)) == len(windows)


@given(length=st.integers(2, 40), context=st.integers(1, 20))
def test_random_windows_lie_inside_and_predict_the_next_token(length, context):
    windows = Windows(np.arange(length), context)
    batch = windows.batch(3, 50, 0)
    assert batch.tokens.shape == (50, min(context, length - 1))
    assert np.array_equal(batch.targets, batch.tokens + 1)
    assert batch.tokens.min() >= 0
    assert batch.targets.max() < length


def test_random_windows_reach_both_ends_and_depend_on_seed_and_step_alone():
    tokens = Windows(np.arange(12), 8).batch(0, 200, 0).tokens
    assert set(tokens[:, 0].tolist()) == {0, 1, 2, 3}

    windows = Windows(np.arange(1000), 16)
    later = windows.batch(9, 4, 5)
    windows.batch(2, 4, 5)
    assert same(windows.batch(9, 4, 5), later)
    assert same(Windows(np.arange(1000), 16).batch(9, 4, 5), later)
    assert not same(windows.batch(10, 4, 5), later)
    assert not same(windows.batch(9, 4, 6), later)


def test_windows_refuse_what_is_no_text():
    with pytest.raises(DataError, match="1 tokens"):
        Windows(np.arange(1), 4)
    with pytest.raises(ShapeError, match=r"\(2, 3\)"):
        Windows(np.zeros((2, 3), int), 4)
    with pytest.raises(ConfigError, match="context is 0"):
        Windows(np.arange(5), 0)
    with pytest.raises(DTypeError, match="list"):
        Windows([1, 2, 3], 2)


def test_sequences_are_padded_at_the_end_and_targets_begin_behind_the_prompt():
    ids, mask = stack([np.array([1, 2, 3]), np.array([4])], pad=9)
    assert ids.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert mask.tolist() == [[True, True, True], [True, False, False]]

    rows = decoder_examples([np.array([1, 2, 3, 4]), np.array([5, 6])], [2, 1], pad=0).rows
    assert rows.tokens.tolist() == [[1, 2, 3], [5, 6, 0]]
    assert rows.targets.tolist() == [[IGNORE, 3, 4], [6, IGNORE, IGNORE]]
    assert rows.mask.tolist() == [[True, True, True], [True, False, False]]

    rows = translation_examples([np.array([3]), np.array([4, 5])], [np.array([6, 7]), np.array([8])], bos=1, eos=2).rows
    assert rows.source.tolist() == [[3, 0], [4, 5]]
    assert rows.source_mask.tolist() == [[True, False], [True, True]]
    assert rows.tokens.tolist() == [[1, 6, 7], [1, 8, 0]]
    assert rows.targets.tolist() == [[6, 7, 2], [8, 2, IGNORE]]
    assert rows.mask.tolist() == [[True, True, True], [True, True, False]]


@given(st.lists(st.text("abc", max_size=5), min_size=1, max_size=8))
def test_texts_encoded_together_equal_texts_encoded_alone(texts):
    tokenizer = CharTokenizer("abc")
    together = encode_each(tokenizer, texts)
    assert [ids.tolist() for ids in together] == [tokenizer.encode(text).tolist() for text in texts]


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
