"""Beam search: keep several beginnings alive.

Chapter: 9

The likeliest first word need not begin the likeliest sentence. Beam search keeps the `width` best beginnings, extends
each by every token, and keeps the `width` best of all of these.

    table    (V, V)   log_p of the next token: table[last, next]
    start    the first token of every sequence
    width    how many beginnings are kept
    steps    how many tokens are written
    result   the best sequence (steps + 1,), the start included, and its score: the sum of its log probabilities

No tie decides what is kept.
"""

import numpy as np

HINTS = [
    "Keep a list of pairs (sequence, score). It begins with one pair: the start, and a score of 0.",
    "Each step: extend all kept sequences by all V tokens, sort by score, keep the first `width`.",
    "Scores add up over the whole sequence. Comparing the last step alone would be something else.",
]
DERIVATION = {
    "sequence": "the best of the beams after the last step, by the sum of log p",
    "score": "score = Σ table[sequence[i], sequence[i + 1]]",
}


def beam_search(table, start, width, steps):
    """Return the best sequence (steps + 1,) of whole numbers, and its score."""
    beams = [([start], 0.0)]
    for _ in range(steps):
        longer = [
            ([*sequence, token], score + table[sequence[-1], token])
            for sequence, score in beams
            for token in range(len(table))
        ]
        longer.sort(key=lambda beam: beam[1], reverse=True)
        beams = longer[:width]
    sequence, score = beams[0]
    return np.array(sequence), score


def example(draw):
    V, width, steps = draw.size("V", 2, 6), draw.size("width", 1, 4), draw.size("steps", 1, 5)
    while True:
        logits = 2 * draw.rng.standard_normal((V, V))
        table = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        start = int(draw.rng.integers(V))
        if not _has_ties(table, start, width, steps):
            return table, start, width, steps


def _has_ties(table, start, width, steps):
    """Return whether a tie decides: the same moves in another order have the same sum."""
    beams = [(0.0, start)]
    for _ in range(steps):
        longer = sorted(((c + table[s, t], t) for c, s in beams for t in range(len(table))), reverse=True)
        if len(longer) > width and longer[width - 1][0] - longer[width][0] < 1e-3:
            return True
        beams = longer[:width]
    return len(longer) > 1 and longer[0][0] - longer[1][0] < 1e-3


def _search(table, start, width, steps, *, best=True, summed=True, last=0):
    beams = [([start], 0.0)]
    for _ in range(steps + last):
        longer = [([*s, t], (c if summed else 0) + table[s[-1], t]) for s, c in beams for t in range(len(table))]
        longer.sort(key=lambda beam: beam[1], reverse=best)
        beams = longer[:width]
    return np.array(beams[0][0]), beams[0][1]


MISTAKES = {
    "wrong sign: when the worst beginnings are kept": lambda *args: _search(*args, best=False),
    "missing term: when only the last step's log probability counts": lambda *args: _search(*args, summed=False),
    "wrong variable: when only one beginning is kept (greedy search)": lambda table, start, width, steps: _search(
        table, start, 1, steps
    ),
    "transposed: when table[next, last] is read": lambda table, *args: _search(table.T, *args),
    "off by one: with one beginning too many": lambda table, start, width, steps: _search(
        table, start, width + 1, steps
    ),
}
