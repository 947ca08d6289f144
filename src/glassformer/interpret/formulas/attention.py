"""Attention in its three lines, scores, softmax and mixture, and the rotation before it."""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Array
from ..formula import Formula, Index, Operand
from ..graph import Step
from .operands import (
    GradientReader,
    OperandReader,
    along,
    broadcast_index,
    every,
    kept,
    nothing,
    plain,
    running,
    written,
)


def scores(reader: OperandReader, step: Step, index: Index) -> Formula:
    """scores = q kᵀ · scale + bias."""
    n, h, t, s = index
    q, k = step.inputs["q"], step.inputs["k"]
    c, g = along(q.shape[-1]), shared_head(step, "k", h)
    operands = {
        "q": reader.value("q", q, "nhtc", (n, h, t, c)),
        "k": reader.value("k", k, "nhsc" if k.shape[1] == q.shape[1] else "ngsc", (n, g, s, c)),
        "scale": plain("scale", scale_of(step)),
    }
    expression = "sum(q * k * scale, c)"
    if "bias" in step.inputs:
        bias = step.inputs["bias"]
        operands["bias"] = reader.value("bias", bias, "nhts"[4 - bias.ndim :], broadcast_index(bias, index))
        expression += " + bias"
    return Formula("scores[n,h,t,s]", expression, operands, "attention_scores(")


def scores_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dq = dscores k · scale, dk = dscoresᵀ q · scale, dbias = Σ dscores."""
    q, k, scores = step.inputs["q"], step.inputs["k"], step.output
    if role == "bias":
        return _bias(reader, step, index)
    scale = plain("scale", scale_of(step))
    if role == "q":
        n, h, t, c = index
        s = along(k.shape[-2])
        operands = {
            "dscores": reader.gradient("dscores", scores, "nhts", (n, h, t, s)),
            "k": reader.value("k", k, "nhsc", (n, shared_head(step, "k", h), s, c)),
            "scale": scale,
        }
        return Formula("dq[n,h,t,c]", "sum(dscores * k * scale, s)", operands, "dq =")
    n, g, s, c = index
    h, t = _group(step, "k", g)
    operands = {
        "dscores": reader.gradient("dscores", scores, "nhts", (n, h, t, s)),
        "q": reader.value("q", q, "nhtc", (n, h, t, c)),
        "scale": scale,
    }
    one = k.shape[-3] == q.shape[-3]
    result, letters = ("dk[n,h,s,c]", "t") if one else ("dk[n,g,s,c]", "h, t")
    return Formula(result, f"sum(dscores * q * scale, {letters})", operands, "dk =")


def softmax(reader: OperandReader, step: Step, index: Index) -> Formula:
    """weights = exp(scores − max) / Σ exp(scores − max), over the keys that may be seen."""
    scores = step.inputs["scores"]
    lead, result = _row_letters(scores), written("weights", f"{_row_letters(scores)}s")
    u = softmax_row(scores, step.settings.get("mask"), index)
    if index[-1] not in u:
        return nothing(result, "the mask hides the key", "y = e /")
    operands = {
        "x": reader.value("scores", scores, f"{lead}s", index),
        "row": reader.value("scores", scores, f"{lead}u", (*index[:-1], u)),
    }
    expression = "exp(x - max(row, u)) / sum(exp(row - max(row, u)), u)"
    return Formula(result, expression, operands, "y = e /")


def softmax_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dscores = weights · (dweights − Σ dweights · weights)."""
    weights = reader.before(step.output)  # what softmax itself gave, whatever was put in its place
    lead, result = _row_letters(weights), written("dscores", f"{_row_letters(weights)}s")
    u = softmax_row(step.inputs["scores"], step.settings.get("mask"), index)
    if index[-1] not in u:
        return nothing(result, "the mask hides the key", "return y * (dy")
    row = (*index[:-1], u)
    operands = {
        "y": reader.value("weights", weights, f"{lead}s", index),
        "dy": reader.gradient("dweights", step.output, f"{lead}s", index),
        "dys": reader.gradient("dweights", step.output, f"{lead}u", row),
        "ys": reader.value("weights", weights, f"{lead}u", row),
    }
    return Formula(result, "y * (dy - sum(dys * ys, u))", operands, "return y * (dy")


def mix(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = weights v."""
    n, h, t, c = index
    weights, v = step.inputs["weights"], step.inputs["v"]
    s, g = along(v.shape[-2]), shared_head(step, "v", h)
    operands = {
        "weights": reader.value("weights", weights, "nhts", (n, h, t, s)),
        "v": reader.value("v", v, "nhsc" if v.shape[1] == weights.shape[1] else "ngsc", (n, g, s, c)),
    }
    if step.settings["keep"] is not None:
        operands["kept"] = kept(step, (n, h, t, s), "nhts")
    return Formula("y[n,h,t,c]", f"sum({' * '.join(operands)}, s)", operands, "@ v")


def mix_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dweights = dy vᵀ, dv = weightsᵀ dy."""
    weights, v = step.inputs["weights"], step.inputs["v"]
    keep = step.settings["keep"] is not None
    if role == "weights":
        n, h, t, s = index
        c = along(v.shape[-1])
        operands = {
            "dy": reader.gradient("dy", step.output, "nhtc", (n, h, t, c)),
            "v": reader.value("v", v, "nhsc", (n, shared_head(step, "v", h), s, c)),
        }
        if keep:
            operands["kept"] = kept(step, index, "nhts")
        return Formula("dweights[n,h,t,s]", f"sum({' * '.join(operands)}, c)", operands, "dweights =")
    n, g, s, c = index
    h, t = _group(step, "v", g)
    operands = {
        "weights": reader.value("weights", weights, "nhts", (n, h, t, s)),
        "dy": reader.gradient("dy", step.output, "nhtc", (n, h, t, c)),
    }
    if keep:
        operands["kept"] = kept(step, (n, h, t, s), "nhts")
    one = v.shape[-3] == weights.shape[-3]
    result, letters = ("dv[n,h,s,c]", "t") if one else ("dv[n,g,s,c]", "h, t")
    return Formula(result, f"sum({' * '.join(operands)}, {letters})", operands, "dv =")


def rotary(reader: OperandReader, step: Step, index: Index) -> Formula:
    """a′ = a cos − b sin, b′ = b cos + a sin."""
    a, b, angle, first = pair(step, index)
    x = step.inputs["x"]
    letters = "nhts"[4 - x.ndim : 3]
    operands = {
        "a": reader.value("x", x, f"{letters}a", a),
        "b": reader.value("x", x, f"{letters}b", b),
        **turning(step, angle),
    }
    expression = "a * cos - b * sin" if first else "b * cos + a * sin"
    return Formula(written("y", f"{letters}{'a' if first else 'b'}"), expression, operands, "_rotate(x")


def rotary_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """da = da′ cos + db′ sin, db = db′ cos − da′ sin."""
    a, b, angle, first = pair(step, index)
    letters = "nht"[4 - step.output.ndim :]
    operands = {
        "da": reader.gradient("dy", step.output, f"{letters}a", a),
        "db": reader.gradient("dy", step.output, f"{letters}b", b),
        **turning(step, angle),
    }
    expression = "da * cos + db * sin" if first else "db * cos - da * sin"
    return Formula(written("dx", f"{letters}{'a' if first else 'b'}"), expression, operands, "_rotate(dy")


def _bias(reader: GradientReader, step: Step, index: Index) -> Formula:
    """Return what a bias gets: the sum over the axes that it was broadcast along."""
    bias, scores = step.inputs["bias"], step.output
    own = [None] * (scores.ndim - bias.ndim) + [
        None if size == 1 and wide > 1 else part
        for part, size, wide in zip(index, bias.shape, scores.shape[scores.ndim - bias.ndim :], strict=True)
    ]
    free = every(tuple(size for part, size in zip(own, scores.shape, strict=True) if part is None))
    runs = iter(free)
    place = tuple(next(runs) if part is None else part for part in own)
    letters = "nhts"[4 - scores.ndim :]
    over = [letter for part, letter in zip(own, letters, strict=True) if part is None]
    dscores = reader.gradient("dscores", scores, letters, place)
    result = written("dbias", letters[scores.ndim - bias.ndim :])
    expression = f"sum(dscores, {running(''.join(over))})" if over else "dscores"
    return Formula(result, expression, {"dscores": dscores}, "dbias =")


def _group(step: Step, shared: str, head: int) -> tuple[Array, Array]:
    """Return all heads that share a head of keys or values, with all queries of each."""
    heads, queries = step.output.shape[-3:-1]
    size = heads // step.inputs[shared].shape[-3]
    h, t = every((size, queries))
    return h + head * size, t


def scale_of(step: Step) -> float:
    """Return the factor on the scores."""
    scale = step.settings["scale"]
    return 1 / math.sqrt(step.inputs["q"].shape[-1]) if scale is None else float(scale)


def shared_head(step: Step, shared: str, head: int) -> int:
    """Return which head of keys or values serves a head of queries."""
    return int(head) // (step.output.shape[-3] // step.inputs[shared].shape[-3])


def _row_letters(scores: Array) -> str:
    return "nht"[4 - scores.ndim :] if scores.ndim <= 4 else ""


def softmax_row(scores: Array, mask: Array | None, index: Index) -> Array:
    """Return the keys that a query may see."""
    row = scores[index[:-1]]
    allowed = np.isfinite(row)
    return np.flatnonzero(allowed if mask is None else allowed & np.broadcast_to(mask, scores.shape)[index[:-1]])


def pair(step: Step, index: Index) -> tuple[Index, Index, Index, bool]:
    """Return where the two channels of a pair stand, where its angle does, and whether the first one is asked for."""
    *row, c = index
    half = step.inputs["x"].shape[-1] // 2
    if step.settings.get("pairing", "halves") == "halves":
        number, first = c % half, c < half
        return (*row, number), (*row, number + half), (*row, number), first
    number, first = c // 2, c % 2 == 0
    return (*row, 2 * number), (*row, 2 * number + 1), (*row, number), first


def turning(step: Step, angle: Index) -> dict[str, Operand]:
    """Return the cosine and the sine that a pair is turned by."""
    saved = step.settings["saved"]
    place = broadcast_index(saved.cos, angle)
    return {"cos": plain("cos[t,a]", saved.cos[place]), "sin": plain("sin[t,a]", saved.sin[place])}
