"""Adam: a step of its own size for every number.

Chapter: 10

Adam keeps two running averages for every parameter, of its gradient and of the gradient's square, and divides one by
the root of the other. Both begin at zero and are too small at first; a correction makes up for that.

    m = 0.9 · m + 0.1 · dw             v = 0.999 · v + 0.001 · dw²
    m̂ = m / (1 − 0.9^step)             v̂ = v / (1 − 0.999^step)
    w = w − lr · m̂ / (√v̂ + 1e-8)

    w, dw, m, v   (D, F)
    step          the number of this step: 1 for the first one
    lr            the learning rate
    result        the new w, m and v; the arguments stay as they are
"""

import numpy as np

HINTS = [
    "Compute the new m and v first: this step's gradient counts already.",
    "The corrections change m̂ and v̂ only. What you return are m and v without them.",
    "`m *= 0.9` would change the caller's array. Write `m = 0.9 * m + …`.",
]
DERIVATION = {
    "w": "w = w − lr · m̂ / (√v̂ + 1e-8), m̂ = m / (1 − 0.9^step), v̂ = v / (1 − 0.999^step)",
    "m": "m = 0.9 · m + 0.1 · dw",
    "v": "v = 0.999 · v + 0.001 · dw²",
}


def adam(w, dw, m, v, step, lr):
    """Return the new w, m and v, each (D, F)."""
    m = 0.9 * m + (1 - 0.9) * dw
    v = 0.999 * v + (1 - 0.999) * dw**2
    m_hat = m / (1 - 0.9**step)
    v_hat = v / (1 - 0.999**step)
    w = w - lr * m_hat / (np.sqrt(v_hat) + 1e-8)
    return w, m, v


def example(draw):
    w, dw, m = (draw.array("D", "F") for _ in range(3))
    size = draw.rng.choice([1.0, 1.0, 1e-8])  # where gradients are tiny, the place of the 1e-8 shows
    v = 0.1 + draw.array("D", "F") ** 2
    return w, size * dw, size * m, size**2 * v, draw.size("step", 1, 9), 0.1


def _move(w, dw, m, v, step, lr, *, first=True, second=True, root=True, by=0):
    m, v = 0.9 * m + 0.1 * dw, 0.999 * v + 0.001 * dw**2
    m_hat = m / (1 - 0.9 ** (step + by)) if first else m
    v_hat = v / (1 - 0.999 ** (step + by)) if second else v
    return lr * m_hat / ((np.sqrt(v_hat) if root else v_hat) + 1e-8)


def _wrong(**how):
    def made(w, dw, m, v, step, lr):
        return w - _move(w, dw, m, v, step, lr, **how), 0.9 * m + 0.1 * dw, 0.999 * v + 0.001 * dw**2

    return made


TERMS = {
    "w": {
        "the weight itself: w": lambda w, dw, m, v, step, lr: w,
        "the step: −lr · m̂ / (√v̂ + 1e-8)": lambda *args: -_move(*args),
    },
    "m": {
        "what it was: 0.9 · m": lambda w, dw, m, v, step, lr: 0.9 * m,
        "the new gradient: 0.1 · dw": lambda w, dw, m, v, step, lr: 0.1 * dw,
    },
    "v": {
        "what it was: 0.999 · v": lambda w, dw, m, v, step, lr: 0.999 * v,
        "the new square: 0.001 · dw²": lambda w, dw, m, v, step, lr: 0.001 * dw**2,
    },
}
MISTAKES = {
    "missing term: without the corrections for the first steps": _wrong(first=False, second=False),
    "missing term: without the correction of m": _wrong(first=False),
    "missing term: without the correction of v": _wrong(second=False),
    "missing function: without the root of v̂": _wrong(root=False),
    "off by one: when steps are counted from 0 in the corrections": _wrong(by=-1),
    "off by one: when steps are counted from 2 in the corrections": _wrong(by=1),
}
