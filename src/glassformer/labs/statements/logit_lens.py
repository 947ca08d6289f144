"""The logit lens: what a model would say if it stopped here.

Chapter: 12

Every layer adds to the residual stream, and the head reads its end. Nothing keeps us from reading it earlier. Apply
the final norm and the unembedding to the stream after every layer:

    normed = gamma · (x − mean) / √(var + 1e-5) + beta       mean and var over the D features
    logits = normed unembedᵀ

    stream        (L, T, D)   the stream after each of L layers
    gamma, beta   (D,)        of the final norm
    unembed       (V, D)      one row for each token
    result        log_p (L, T, V), the log probabilities of the next token after each layer,
                  and best (L, T), the likeliest token of each
"""

import numpy as np

HINTS = [
    "Layers are one more axis in front: no loop is needed.",
    "Each layer's stream has its own mean and variance. The gamma and beta of the final norm serve all of them.",
    "log p = logits − log Σ exp(logits), with the maximum subtracted first.",
]
DERIVATION = {"log_p": "log_p = log_softmax(layer_norm(stream) unembedᵀ)", "best": "best = argmax of log_p"}


def logit_lens(stream, gamma, beta, unembed):
    """Return log_p (L, T, V) and best (L, T)."""
    centered = stream - np.mean(stream, axis=-1, keepdims=True)
    var = np.mean(centered * centered, axis=-1, keepdims=True)
    normed = gamma * centered / np.sqrt(var + 1e-5) + beta
    logits = normed @ unembed.T
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    log_p = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return log_p, np.argmax(log_p, axis=-1)


def example(draw):
    draw.size("D", 2, 5)
    shapes = ("L", "T", "D"), ("D",), ("D",), ("V", "D")
    # Normal numbers even in small examples: whole ones would make ties.
    return tuple(draw.rng.standard_normal(draw.shape(*axes)) for axes in shapes)


def _logits(stream, gamma, beta, unembed):
    centered = stream - np.mean(stream, axis=-1, keepdims=True)
    return (gamma * centered / np.sqrt(np.var(stream, axis=-1, keepdims=True) + 1e-5) + beta) @ unembed.T


def _total(logits):
    top = np.max(logits, axis=-1, keepdims=True)
    return top + np.log(np.sum(np.exp(logits - top), axis=-1, keepdims=True))


TERMS = {
    "log_p": {
        "the logits: layer_norm(stream) unembedᵀ": _logits,
        "the row's total: −log Σ exp logits": lambda *args: -_total(_logits(*args)) + 0 * _logits(*args),
    }
}


def _unnormed(stream, gamma, beta, unembed):
    logits = stream @ unembed.T
    return logits - _total(logits), np.argmax(logits, axis=-1)


MISTAKES = {"missing function: without the final norm": _unnormed}
