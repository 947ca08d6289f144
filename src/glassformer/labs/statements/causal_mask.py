"""The causal mask: who may look at whom.

Chapter: 2

A language model is asked at every place which token comes next, and the answer stands one place further in the same
text. So a query must not see keys after itself. Return a mask of booleans, True where a query (row) may look at a key
(column): at itself and at all keys before it.

    queries   T, how many queries there are
    keys      S, how many keys there are, at least T
    mask      (T, S), booleans

With fewer queries than keys, the queries are the last ones: query 0 stands at position S − T. That is what happens
while a model generates, one token at a time.
"""

import numpy as np

HINTS = [
    "Write down the position of each query and of each key. For which pairs is the key not after the query?",
    "A column of positions compared with a row of positions gives a matrix: a[:, None] >= b[None, :].",
    "The queries stand at positions S − T, …, S − 1.",
]
DERIVATION = {"mask": "mask[t, s] = (s ≤ t + S − T)"}


def causal_mask(queries, keys):
    """Return the mask (T, S) of booleans: True where a query may look at a key."""
    rows = np.arange(keys - queries, keys)
    columns = np.arange(keys)
    return rows[:, None] >= columns[None, :]


def example(draw):
    queries = draw.size("T")
    return queries, queries + draw.size("S−T", 0, 3)


MISTAKES = {
    "off by one: when the queries are taken for the first of the keys instead of the last": lambda queries, keys: (
        np.arange(queries)[:, None] >= np.arange(keys)
    ),
}
