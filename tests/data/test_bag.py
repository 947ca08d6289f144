"""The bag of words: its counts against a program without arrays, and each example left out against learning anew."""

import math
from collections import Counter

import numpy as np
import pytest

from glassformer.data import bag as module
from glassformer.data.bag import BagOfWords, evenly
from glassformer.data.examples import class_examples

CLASSES = ("a", "b", "c")


def drawn(count=30, vocab=7):
    draw = np.random.default_rng(0)
    rows = [draw.integers(0, vocab, size=draw.integers(1, 6)) for _ in range(count)]
    return rows, [CLASSES[i] for i in draw.integers(0, 3, size=count)]


def by_hand(rows, labels, text, vocab=7):
    """Return the score of each class for a text."""
    scores = []
    for name in CLASSES:
        inside = [row for row, label in zip(rows, labels, strict=True) if label == name]
        counts = Counter(token for row in inside for token in row.tolist())
        share = math.log((len(inside) + 1) / (len(rows) + len(CLASSES)))
        scores.append(share + sum(math.log((counts[t] + 1) / (counts.total() + vocab)) for t in text.tolist()))
    return scores


def test_scores_are_those_of_naive_bayes():
    rows, labels = drawn()
    data = class_examples(rows, labels, CLASSES)
    found = BagOfWords.learn(data, 7, 3).scores(data)
    np.testing.assert_allclose(found, [by_hand(rows, labels, row) for row in rows])


def test_an_example_left_out_is_scored_by_the_counts_of_the_others():
    rows, labels = drawn()
    data = class_examples(rows, labels, CLASSES)
    bag = BagOfWords.learn(data, 7, 3)
    found = bag.scores(data, left_out=True)
    for i, label in enumerate(labels):
        others = by_hand(rows[:i] + rows[i + 1 :], labels[:i] + labels[i + 1 :], rows[i])
        own = CLASSES.index(label)
        share = math.log((labels.count(label)) / (len(labels) + 3 - 1)) - bag.shares[own]  # shares count all examples
        assert found[i, own] == pytest.approx(others[own] - share)


def test_of_large_data_examples_that_lie_evenly_are_counted(monkeypatch):
    rows, labels = drawn(1000)
    data = class_examples(rows, labels, CLASSES)
    assert evenly(data, data.rows.tokens.size) is data
    some = evenly(data, data.rows.tokens.size // 4)
    assert some.rows.targets.tolist() == data.rows.targets[::4].tolist()
    monkeypatch.setattr(module, "MOST", data.rows.tokens.size // 4)
    assert BagOfWords.learn(data, 7, 3).counts.sum() == some.rows.mask.sum()
