"""Cross-entropy: how surprised the model is.

Chapter: 6

The loss of a language model is its mean surprise at what came true, over the places that count:

    p = softmax(logits)                         along the last axis
    loss = −(1/N) Σ_n log p[n, target_n]        over the N places whose target is not −1

A target of −1 marks padding: the place counts neither in the sum nor in N.

    logits    (T, V), possibly as large as 1000
    targets   (T,)   whole numbers from 0 to V − 1, or −1; at least one is not −1
    loss      one number
"""

import numpy as np

HINTS = [
    "log softmax needs no softmax: log p = logits − log Σ exp(logits). Subtract the maximum of the row first.",
    "logits[np.arange(T), targets] picks one entry of each row.",
    "−1 is a valid index in NumPy and means the last one. Take those places out of the sum yourself, and out of N.",
]
DERIVATION = {"loss": "loss = −(1/N) Σ (logits[n, target] − log Σ exp logits[n]) over the N places that count"}


def cross_entropy(logits, targets):
    """Return the loss, one number."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    log_p = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    counts = targets >= 0
    picked = log_p[np.arange(len(targets)), targets]
    return -np.sum(np.where(counts, picked, 0.0)) / np.sum(counts)


def example(draw):
    targets = draw.ids("V", "T")
    targets[1:][draw.booleans(len(targets) - 1, chance=0.3)] = -1
    return draw.array("T", "V"), targets


EDGES = {
    "logits near 1000": lambda draw: (1000 + draw.array("T", "V"), draw.ids("V", "T")),
    "rows of very unequal size": lambda draw: (draw.array(2, "V") + np.array([[1000.0], [-1000.0]]), draw.ids("V", 2)),
    "a hopeless prediction": lambda draw: (np.array([[0.0, -2000.0]]), np.array([1])),
}


def _mean(log, logits, targets):
    counts = targets >= 0
    return np.sum(log(logits, targets)[counts]) / np.sum(counts)


TERMS = {
    "loss": {
        "the target's logit: −mean of logits[n, target]": lambda logits, targets: _mean(
            lambda x, t: -x[np.arange(len(t)), t], logits, targets
        ),
        "the row's total: mean of log Σ exp logits[n]": lambda logits, targets: _mean(
            lambda x, t: np.max(x, -1) + np.log(np.sum(np.exp(x - np.max(x, -1, keepdims=True)), -1)), logits, targets
        ),
    }
}
MISTAKES = {
    "wrong factor: when the sum is divided by T instead of N": lambda logits, targets: (
        cross_entropy(logits, targets) * np.mean(targets >= 0)
    ),
    "wrong factor: when the sum is not divided": lambda logits, targets: (
        cross_entropy(logits, targets) * np.sum(targets >= 0)
    ),
    "mask: when padding counts, too (−1 takes the last entry of the row)": lambda logits, targets: cross_entropy(
        logits, targets % logits.shape[-1]
    ),
    "mask: when padding counts in the sum, though not in N": lambda logits, targets: (
        cross_entropy(logits, targets % logits.shape[-1]) * len(targets) / np.sum(targets >= 0)
    ),
    "wrong factor: with a logarithm to the base 2": lambda logits, targets: cross_entropy(logits, targets) / np.log(2),
}
