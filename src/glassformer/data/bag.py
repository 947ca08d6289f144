"""A bag of words: multinomial naive Bayes on the counts of tokens, to judge a classifier by, and its labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array
from .examples import Examples

MOST = 10_000_000
"""Tokens that are counted, and products that are added up, at most; of larger data, examples that lie evenly."""


@dataclass(frozen=True)
class BagOfWords:
    """How often each token stands in the examples of each class.

        log p(class | tokens) = log share(class) + Σ log (n(token, class) + 1) / (n(class) + tokens) + constant

    counts   n(token, class), (V, C)
    shares   log of the share of each class, (C,)
    """

    counts: Array
    shares: Array

    @classmethod
    def learn(cls, data: Examples, vocab: int, classes: int) -> BagOfWords:
        """Count the tokens of examples with classes."""
        data = evenly(data, MOST)
        ids, rows = _flat(data)
        labels = np.asarray(data.rows.targets)
        counts = np.bincount(ids * classes + labels[rows], minlength=vocab * classes).reshape(vocab, classes)
        shares = np.bincount(labels, minlength=classes) + 1.0
        return cls(counts, np.log(shares / shares.sum()))

    def scores(self, data: Examples, *, left_out: bool = False) -> Array:
        """Return the log-probability of each class up to a constant, (N, C).

        left_out   each example is one of those that were counted, and is taken out of the counts in turn
        """
        ids, rows = _flat(data)
        labels = np.asarray(data.rows.targets)
        totals = self.counts.sum(0) + len(self.counts)
        logs = np.log((self.counts + 1.0) / totals)
        scores = np.stack([np.bincount(rows, log[ids], minlength=len(data)) for log in logs.T], axis=1) + self.shares
        if left_out:
            own, index = labels[rows], np.arange(len(data))
            _, place, times = np.unique(rows * len(self.counts) + ids, return_inverse=True, return_counts=True)
            fewer = totals[own] - np.bincount(rows, minlength=len(data))[rows]
            terms = np.log((self.counts[ids, own] - times[place] + 1.0) / fewer)
            scores[index, labels] = np.bincount(rows, terms, minlength=len(data)) + self.shares[labels]
        return scores


def evenly(data: Examples, most: int) -> Examples:
    """Return examples that lie evenly, with as many places for tokens at most; all of them, where there are no more."""
    apart = -(-data.rows.tokens.size // most)
    return data if apart == 1 else Examples(data.take(np.arange(0, len(data), apart)))


def _flat(data: Examples) -> tuple[Array, Array]:
    """Return all tokens without padding, and which example each of them is of."""
    tokens, mask = np.asarray(data.rows.tokens), data.rows.mask
    rows = np.broadcast_to(np.arange(len(tokens))[:, None], tokens.shape)
    return (tokens.ravel(), rows.ravel()) if mask is None else (tokens[mask], rows[mask])
