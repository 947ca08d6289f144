"""A training loop: the next batch, the gradient, a step.

Chapter: 6, 10

Train a classifier with one matrix: p = softmax(x w). `loss_and_grad` returns the loss of a batch and its gradient.
Do `steps` steps of gradient descent:

    take the next `batch` rows, from row 0 on; where fewer than `batch` rows are left, begin again at row 0
    compute the loss and its gradient dw on these rows
    if the norm of dw, √Σ dw², is above 1, divide dw by it
    w = w − lr · dw

Return the final w and the losses of all steps, each measured before its update.

    w         (D, V)   the matrix to begin with; do not write into it
    x         (N, D)   the examples, and targets (N,) their classes
    losses    (steps,)
"""

import numpy as np

HINTS = [
    "Keep the number of the row at which the next batch begins. After each step it grows by `batch`.",
    "Clipping divides the whole gradient by one number, the norm of all its entries together.",
    "`w -= lr * dw` changes the caller's array. `w = w - lr * dw` makes a new one.",
]
GIVEN = ("loss_and_grad",)
DERIVATION = {
    "w": "w = w − lr · dw / max(1, √Σ dw²), step after step",
    "losses": "losses[i] is the loss of batch i before update i",
}


def loss_and_grad(w, x, targets):
    """Return the mean cross-entropy of softmax(x w), and its gradient for w (D, V)."""
    logits = x @ w
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    log_p = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    onehot = np.arange(w.shape[1]) == targets[:, None]
    return -np.mean(log_p[np.arange(len(x)), targets]), x.T @ (np.exp(log_p) - onehot) / len(x)


def training_loop(w, x, targets, batch, steps, lr):
    """Return the trained w (D, V) and the losses (steps,)."""
    losses = []
    begin = 0
    for _ in range(steps):
        if begin + batch > len(x):
            begin = 0
        loss, dw = loss_and_grad(w, x[begin : begin + batch], targets[begin : begin + batch])
        begin = begin + batch
        norm = np.sqrt(np.sum(dw**2))
        if norm > 1:
            dw = dw / norm
        w = w - lr * dw
        losses.append(loss)
    return w, np.array(losses)


def example(draw):
    batch = draw.size("batch", 1, 3)
    rows = batch + draw.size("N − batch", 0, 6)
    draw.size("V", 2, 4)
    x, steps = 2 * draw.array(rows, "D"), draw.size("steps", 1, 6)
    return draw.array("D", "V"), x, draw.ids("V", rows), batch, steps, 0.3


def _loop(w, x, targets, batch, steps, lr, *, clip="norm", early=False, drop=True, first=True, sign=-1):
    losses, begin = [], 0
    for _ in range(steps):
        if begin + (batch if drop else 1) > len(x):
            begin = 0
        rows = slice(begin, begin + batch) if first else slice(0, batch)
        loss, dw = loss_and_grad(w, x[rows], targets[rows])
        begin += batch
        norm = np.sqrt(np.sum(dw**2))
        if clip == "norm":
            dw = dw / max(1.0, norm)
        elif clip == "entries":
            dw = np.clip(dw, -1, 1)
        elif clip == "always":
            dw = dw / norm
        w = w + sign * lr * dw
        losses.append(loss_and_grad(w, x[rows], targets[rows])[0] if early else loss)
    return w, np.array(losses)


MISTAKES = {
    "wrong sign: when a step goes up instead of down": lambda *args: _loop(*args, sign=1),
    "missing function: when the gradient is not clipped": lambda *args: _loop(*args, clip="none"),
    "missing function: when every entry is clipped by itself": lambda *args: _loop(*args, clip="entries"),
    "wrong factor: when the gradient is divided by its norm even if that is below 1": lambda *args: _loop(
        *args, clip="always"
    ),
    "off by one: when losses are measured after the update": lambda *args: _loop(*args, early=True),
    "off by one: when a last batch with fewer rows is used, too": lambda *args: _loop(*args, drop=False),
    "wrong variable: when every step sees the first batch": lambda *args: _loop(*args, first=False),
}
