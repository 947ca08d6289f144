"""Attention before it is scaled: how far every query and every key go the same way.

    products = q kᵀ          scores = products · scale + bias          weights = softmax(scores)

A run keeps queries, keys, scores and weights; the products stand between, and are made when they are asked for.
"""

from __future__ import annotations

from .. import ops
from ..arrays import Array
from ..ops.attention import default_scale
from .names import check_name
from .run import Run


def products(run: Run, name: str) -> Array:
    """Return q kᵀ (B, H, T, S) of an attention by its name, such as blocks.0.attention: before scale, bias and mask."""
    q, k = (_read(run, name, part) for part in ("q", "k"))
    return ops.attention_scores(q, k, scale=1.0)


def score_scale(run: Run, name: str) -> float:
    """Return the factor that an attention of a run has on its products."""
    check_name(f"{name}.attend.q", run)
    q = run.spec(f"{name}.attend.q")
    call = run.calls[run.addresses[f"{name}.attend.weights"].number]
    while call.parent is not None and call.name != "attention":
        call = call.parent
    scale = call.settings.get("scale")
    return float(default_scale(q) if scale is None else scale)


def _read(run: Run, name: str, part: str) -> Array:
    whole = f"{name}.attend.{part}"
    check_name(whole, run)
    return run[whole]
