"""An induction head, found by ablation.

Chapter: 12

A model that has read "A B … A" expects B. Two heads do that together: one in layer 0 tells every token which token
came before it, and one in layer 1, the induction head, looks for the place whose previous token is the current one.

Find it by ablation: switch off one head after the other, and see how much worse the model becomes at predicting the
second half of a text that repeats its first half.

    increase[l, h] = loss without head h of layer l − loss with all heads
    found = the head of layer 1 whose ablation costs most

    model    a dict of arrays; `loss(model, tokens)` is its loss on the second half of the text, and
             `loss(model, tokens, off=(l, h))` that without head h of layer l
    tokens   (T,)   a text whose second half repeats the first
    result   increase (2, H), and found, the number of a head
"""

import numpy as np

HINTS = [
    "One loss with all heads, then one for each of the 2 · H heads: two loops.",
    "model['heads'] has the shape (2, H): it says which of the six patterns each head has. You only need its shape.",
    "np.argmax of a row is the place of its largest entry.",
]
GIVEN = ("loss",)
DERIVATION = {
    "increase": "increase[l, h] = loss(off=(l, h)) − loss()",
    "found": "found = argmax over h of increase[1, h]",
}


def loss(model, tokens, off=None):
    """Return the mean surprise at the second half of the text, with all heads or without head `off` = (layer, head)."""
    T, V = len(tokens), int(model["vocabulary"])
    own = np.eye(V)[tokens]
    before = np.zeros((T, V))
    predicted = np.zeros((T, V))
    places = np.arange(T)
    for layer in range(2):
        written = np.zeros((2, T, V))
        for head, pattern in enumerate(model["heads"][layer]):
            scores = model["noise"][layer, head, :T, :T].copy()
            if pattern == 1:  # the token before
                scores = scores + 20.0 * (places[:, None] - 1 == places)
            if pattern == 2:  # the places whose previous token is the current one
                scores = scores + 20.0 * (own @ before.T)
            scores = np.where(places[:, None] >= places, scores, -np.inf)
            e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
            mixed = e / np.sum(e, axis=-1, keepdims=True) @ own
            if off is None or tuple(off) != (layer, head):
                written[0 if pattern == 1 else 1] += mixed * (1.0 if pattern else 0.2)
        before = before + written[0]
        predicted = predicted + 4.0 * written[1]
    half = T // 2
    shifted = predicted - np.max(predicted, axis=-1, keepdims=True)
    log_p = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return -np.mean(log_p[np.arange(half, T - 1), tokens[half + 1 :]])


def induction_head(model, tokens):
    """Return increase (2, H) and found, the number of the induction head in layer 1."""
    layers, heads = model["heads"].shape
    base = loss(model, tokens)
    increase = np.zeros((layers, heads))
    for layer in range(layers):
        for head in range(heads):
            increase[layer, head] = loss(model, tokens, off=(layer, head)) - base
    return increase, np.argmax(increase[1])


def example(draw):
    H, V, half = draw.size("H", 2, 4), draw.size("V", 4, 7), draw.size("T/2", 3, 5)
    first = draw.rng.permutation(V)[: min(half, V)]
    tokens = np.concatenate([first, first])
    patterns = np.zeros((2, H), dtype=int)
    patterns[0, draw.rng.integers(H)] = 1
    patterns[1, draw.rng.integers(H)] = 2
    noise = draw.rng.standard_normal((2, H, len(tokens), len(tokens)))
    return {"heads": patterns, "noise": noise, "vocabulary": np.array(V)}, tokens


TERMS = {
    "increase": {
        "without the head: loss(off=(l, h))": lambda model, tokens: np.array(
            [
                [loss(model, tokens, (layer, head)) for head in range(len(row))]
                for layer, row in enumerate(model["heads"])
            ]
        ),
        "with all heads: −loss": lambda model, tokens: -loss(model, tokens) + np.zeros(model["heads"].shape),
    }
}
