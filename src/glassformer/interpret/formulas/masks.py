"""Who may see whom, one cell: what the pattern of attention allows, and which keys are real."""

from __future__ import annotations

import numpy as np

from ...ops import FULL
from ..formula import Formula, Index, Operand
from ..names import MASK
from ..run import Run
from ..tracing import Call
from .operands import plain


def mask(run: Run, call: Call, index: Index) -> Formula:
    """mask[n,h,t,s] = pattern[t,s] · real[n,s], of a softmax in attention; one where there is neither."""
    n, _, t, s = index
    outer = call.parent
    given = None if outer is None else outer.settings.get(MASK)
    pattern = FULL if outer is None else outer.settings.get("pattern", FULL)
    scores = call.arguments[0]
    operands = {}
    if not pattern.is_full:
        operands["pattern"] = plain("pattern[t,s]", pattern.dense(*scores.shape[-2:])[t, s])
    if given is not None:
        real = bool(np.broadcast_to(given, scores.shape)[index])
        name = next((own for own in (MASK, "source_mask") if _is_part(getattr(run.batch, own), given)), None)
        operands["real"] = Operand("mask[n,s]", float(real), name, (n, s) if name else ())
    if not operands:
        operands["all"] = plain("1, for nothing is hidden", 1)
    return Formula("mask[n,h,t,s]", " * ".join(operands), operands, "mask & allowed")


def _is_part(mask: object, given: object) -> bool:
    return isinstance(mask, np.ndarray) and isinstance(given, np.ndarray) and np.may_share_memory(mask, given)
