"""Grokking: from memory to an algorithm, in addition modulo a prime."""

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..interpret import fourier
from ..models import Batch
from ..training import History
from .measures import check_training, session_of
from .study import Figures, Rows, Study

KEY = 0.04  # a frequency with this share of the embedding is a key frequency
KNOWN = 0.99  # share of right answers from which a part of the table counts as known
LOOKS = 60  # evaluations on the way


def _settings(point: dict[str, Any]) -> dict[str, Any]:
    shape = {"activation": "relu", "heads": 4, "layers": 1, "feed_forward": 4 * point["width"]}
    recipe = {"beta2": 0.98, "warmup": 10, "keep": "last", "eval_every": max(1, point["steps"] // LOOKS)}
    return {**shape, **recipe, **point}


def _grid(quick: bool) -> list[dict[str, Any]]:
    point: dict[str, Any] = {"weight_decay": 1.0, "norm": "layer", "schedule": "cosine"}
    if quick:
        point |= {"modulus": 31, "fraction": 0.7, "width": 64, "schedule": "constant"}
        return [{**point, "batch": 256, "lr": 5e-3, "steps": 1500}]
    point |= {"modulus": 113, "fraction": 0.3, "width": 128}
    return [{**point, "batch": 512, "lr": 3e-3, "steps": 9000}]


def explained(logits: Array, frequencies: list[int]) -> float:
    """Return the share of the variance of logits (n, n, n) of all a, b and c that cos(2π k (a + b − c) / n) explain.

    Logits that are shifted by a number for each a and b mean the same, so their means over c are taken out.
    """
    n = len(logits)
    x = logits - logits.mean(axis=2, keepdims=True)
    a, b, c = np.ogrid[:n, :n, :n]
    by_distance = np.bincount(((a + b - c) % n).ravel(), weights=x.ravel(), minlength=n) / n**2
    amplitudes = [2 / n * np.sum(by_distance * np.cos(2 * np.pi * k * np.arange(n) / n)) for k in frequencies]
    return float(np.sum(np.square(amplitudes)) / 2 / np.mean(x**2))


def measure(point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train on a part of the table; return the curves, the key frequencies, and what they explain of the logits."""
    session, n = session_of("modular", seed, **_settings(point)), point["modulus"]
    for _ in session.steps():
        pass
    session.write_records()
    history, params = History.from_metrics(session.metrics()), session.now()
    found = fourier(params["embedding"]["tokens"]["table"][:n])
    share = found.share[1:] / found.share[1:].sum()  # without the constant
    keys = sorted((k for k, one in enumerate(share.tolist(), 1) if one >= KEY), key=lambda k: -share[k - 1])
    a, b = (axis.ravel() for axis in np.indices((n, n)))
    tokens = np.stack([a, np.full_like(a, n), b, np.full_like(a, n + 1)], axis=1)  # a + b =
    logits = session.model.predict(params, Batch(tokens))[0][:, -1, :n].astype(np.float64).reshape(n, n, n)
    return {
        "train_accuracy": float(history.train_accuracy[-1]),
        "test_accuracy": session.test(session.state.params).accuracy,
        "memorized_at": _first(history, history.train_accuracy),
        "grokked_at": _first(history, history.accuracy),
        "key_frequencies": len(keys),
        "embedding_share": float(sum(share[k - 1] for k in keys)),
        "explained": explained(logits, keys),
        "frequencies": keys,
        "shares": share.round(4).tolist(),
        "step": history.val_step.tolist(),
        "train": history.train_accuracy.round(4).tolist(),
        "test": history.accuracy.round(4).tolist(),
    }


def _first(history: History, accuracy: Array) -> int | None:
    """Return the first step from which on a part of the table is known; None if there is none."""
    known = np.flatnonzero(accuracy >= KNOWN)
    return int(history.val_step[known[0]]) if len(known) else None


def figures(rows: Rows) -> Figures:
    """Draw the curves of every seed, and the frequencies of the first."""
    from ..plots import style

    color, (figure, (left, right)) = style.colors(), style.row(2, 4.0, 3.2)
    for tint, name, label in ((color.blue, "train", "training part"), (color.vermilion, "test", "the rest")):
        for row in rows:
            left.plot(row["step"], row[name], color=tint, label=label if row is rows[0] else None)
    shares = rows[0]["shares"]
    right.bar(range(1, len(shares) + 1), shares, color=color.green)
    left.set(xlabel="step", ylabel="answers right", xscale="log", title="on the way")
    left.legend(loc="center left")
    right.set(xlabel="frequency", ylabel="share of the embedding", title=f"cosines explain {rows[0]['explained']:.0%}")
    words = "accuracy by step, curves for each seed; the Fourier components of the embedding for one seed"
    return {"grokking": style.titled(figure, "From memory to an algorithm", words)}


STUDY = Study(
    name="grokking", question="How does a model get from memory to an algorithm?",
    published="Trained on 30% of a + b modulo 113, a model of one layer first memorizes, much later generalizes, and "
    "then computes with cosines of a few frequencies (Nanda et al. 2023, Progress Measures for Grokking).",
    grid=_grid, measure=measure, figures=figures, minutes=14,
    answers={"memorized_at": "lowest", "grokked_at": "lowest", "test_accuracy": "highest", "key_frequencies": "lowest",
             "explained": "highest"},
    check=lambda point: check_training("modular", **_settings(point)),
    columns=("norm", "train_accuracy", "test_accuracy", "memorized_at", "grokked_at", "key_frequencies", "explained"),
)  # fmt: skip
