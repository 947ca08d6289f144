"""Top-p: sample from the tokens that matter.

Chapter: 8

Sampling from all tokens now and then picks a bad one: each is unlikely, but there are many. Top-p keeps the fewest of
the likeliest tokens whose probabilities sum to at least p, gives all others zero, and rescales the rest to sum to one.

    logits   (V,)   scores of the next token, all different
    p        a number between 0 and 1
    result   (V,)   the probabilities to sample from

The token with which the sum reaches p is kept. So at least one token is.
"""

import numpy as np

HINTS = [
    "Sort the probabilities from the largest to the smallest, and sum them up one by one: np.argsort, np.cumsum.",
    "A token is kept if the sum of all likelier ones, without itself, is still below p.",
    "order[keep] are the tokens that stay. Write their probabilities into an array of zeros, then divide by the sum.",
]
DERIVATION = {"probabilities": "keep a token if Σ of all likelier ones < p; then divide by the sum of what is kept"}


def top_p(logits, p):
    """Return the probabilities (V,) to sample from."""
    e = np.exp(logits - np.max(logits))
    probabilities = e / np.sum(e)
    order = np.argsort(-probabilities)
    total = np.cumsum(probabilities[order])
    keep = total - probabilities[order] < p
    kept = np.zeros_like(probabilities)
    kept[order[keep]] = probabilities[order[keep]]
    return kept / np.sum(kept)


def example(draw):
    logits = 0.8 * draw.rng.permutation(draw.size("V", 1, 8)) + 0.1 * draw.rng.random()
    return logits, float(np.round(0.05 + 0.9 * draw.rng.random(), 3))


def _kept(logits, p, rule, *, scaled=True, order=-1):
    e = np.exp(logits - np.max(logits))
    probabilities = e / np.sum(e)
    order = np.argsort(order * probabilities)
    ordered = probabilities[order]
    kept = np.zeros_like(probabilities)
    keep = rule(np.cumsum(ordered), ordered, p)
    kept[order[keep]] = ordered[keep]
    return kept / np.sum(kept) if scaled else kept


def _right(total, own, p):
    return total - own < p


MISTAKES = {
    "off by one: when the token with which the sum reaches p is dropped": lambda logits, p: _kept(
        logits, p, lambda total, own, p: total <= p
    ),
    "off by one: when that token is dropped, unless it is the only one": lambda logits, p: _kept(
        logits, p, lambda total, own, p: (total <= p) | (np.arange(len(total)) == 0)
    ),
    "off by one: when one token too many is kept": lambda logits, p: _kept(
        logits, p, lambda total, own, p: np.concatenate([[True], _right(total, own, p)[:-1]])
    ),
    "wrong factor: when what is kept is not rescaled": lambda logits, p: _kept(logits, p, _right, scaled=False),
    "wrong sign: when the unlikeliest tokens come first": lambda logits, p: _kept(logits, p, _right, order=1),
    "wrong variable: when tokens above probability p are kept (a threshold, not a sum)": lambda logits, p: _kept(
        logits, p, lambda total, own, p: own >= p
    ),
}
