"""Cross-entropy, backward: what the model believes less what is true.

Chapter: 6

The loss is the mean surprise at the targets, over the places that count:

    p = softmax(logits)                         along the last axis
    loss = −(1/N) Σ_n log p[n, target_n]        over the N places whose target is not −1

A target of −1 marks padding: the place counts neither in the sum nor in N. Return the gradient of the loss for the
logits.

    logits, dlogits   (T, V)
    targets           (T,)   whole numbers from 0 to V − 1, or −1; at least one is not −1
"""

import numpy as np

HINTS = [
    "log p[n, target] = logits[n, target] − log Σ exp(logits[n]). Differentiate both parts by one logit.",
    "The second part gives p, the first a 1 at the target: p − onehot, for each place that counts.",
    "The mean divides by N, the number of places that count, not by T. Places that do not count send nothing back.",
]
DERIVATION = {"dlogits": "dlogits = (p − onehot(target)) / N at the N places that count, 0 elsewhere"}


def cross_entropy_backward(logits, targets):
    """Return dlogits (T, V)."""
    e = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    p = e / np.sum(e, axis=-1, keepdims=True)
    onehot = np.arange(logits.shape[-1]) == targets[:, None]
    counts = targets[:, None] >= 0
    return np.where(counts, p - onehot, 0.0) / np.sum(counts)


def example(draw):
    targets = draw.ids("V", "T")
    targets[1:][draw.booleans(len(targets) - 1, chance=0.3)] = -1
    return draw.array("T", "V"), targets


def _share(part, logits, targets):
    counts = (targets >= 0)[:, None]
    return np.where(counts, part, 0.0) / counts.sum()


def _p(logits):
    e = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


TERMS = {
    "dlogits": {
        "what the model believes: p / N": lambda logits, targets: _share(_p(logits), logits, targets),
        "what is true: −onehot / N": lambda logits, targets: (
            -_share(1.0 * (np.arange(logits.shape[-1]) == targets[:, None]), logits, targets)
        ),
    }
}
EDGES = {
    "logits near 1000": lambda draw: (1000 + draw.array("T", "V"), draw.ids("V", "T")),
    "rows of very unequal size": lambda draw: (draw.array(2, "V") + np.array([[1000.0], [-1000.0]]), draw.ids("V", 2)),
}
