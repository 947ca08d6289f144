"""The formula of one entry of a value, or of a gradient: a table with a line for every step of a run.

    linear      y[*,j] = sum(x[*,k] * w[k,j], k){ + b[j]}
    linear, x   dx[*,k] = sum(dy[*,j] * w[k,j], j)
    linear, w   dw[k,j] = sum(x[*,k] * dy[*,j], *)

The entry "y" of a step says how it makes an entry; the others say what it sends back to an array that it read. An array
with several readers gets the sum of what all of them send.

Letters: n the example, t the query, s the key, h the head, c the channel; i, j, k are features, f those inside a
feed-forward layer, v a token; g is a head of keys and values that several heads share. * stands for the letters of all
axes but the last, {…} for what an op may do without.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .formula import Index, Letters
from .graph import Step, moved, moved_back

Choose = Callable[[Step, Index], tuple[int, Letters]]
"""Returns whether the other formula holds, and what letters besides those of the result stand for."""


class Line(NamedTuple):
    """A formula, and another for some steps or entries.

    source   a piece of the line of source that computes it
    choose   tells which; without it, the other formula is for steps that read values which were changed
    """

    formula: str
    source: str = "return"
    choose: Choose | None = None
    other: str = ""


# --- which formula, and which entries --------------------------------------------------------------------------------


def _looked_up(step: Step, index: Index) -> tuple[int, Letters]:
    """The places where a row of a table was looked up."""
    places = np.nonzero(step.settings["buckets" if step.rule == "relative_bias" else "ids"] == index[0])
    letters = "ts" if step.rule == "relative_bias" else rows_of(step)
    return int(not places[0].size), dict(zip(letters, places, strict=True))


def key_head(step: Step, index: Index) -> tuple[int, Letters]:
    """The head of keys or values that serves a head of queries."""
    size = group_size(step)
    return int(size == 1), {"g": index[1] // size}


def _query_heads(step: Step, index: Index) -> tuple[int, Letters]:
    """All heads of queries that share a head of keys or values, with all queries of each."""
    size = group_size(step)
    if size == 1:
        return 1, {}
    h, t = np.indices((size, step.output.shape[-2])).reshape(2, -1)
    return 0, {"h": h + index[1] * size, "t": t}


def group_size(step: Step) -> int:
    shared = step.inputs["k" if step.rule == "scores" else "v"]
    return int(step.output.shape[-3] // shared.shape[-3])


def visible_keys(step: Step, index: Index) -> tuple[int, Letters]:
    """The keys that a query may see."""
    scores, mask = step.inputs["scores"], step.settings.get("mask")
    allowed = np.isfinite(scores[index[:-1]])
    if mask is not None:
        allowed = allowed & np.broadcast_to(mask, scores.shape)[index[:-1]]
    return int(not allowed[index[-1]]), {"u": np.flatnonzero(allowed)}


def rotated_pair(step: Step, index: Index) -> tuple[int, Letters]:
    """The two channels of a pair, and its number."""
    channel, half = index[-1], step.output.shape[-1] // 2
    if step.settings.get("pairing", "halves") == "halves":
        number = channel % half
        return channel // half, {"a": number, "b": number + half, "p": number}
    number = channel // 2
    return channel % 2, {"a": number * 2, "b": number * 2 + 1, "p": number}


def moved_letters(step: Step, index: Index) -> tuple[int, Letters]:
    return 0, dict(zip("nti" if step.rule == "split_heads" else "nhtc", moved_back(step, index), strict=True))


def _after_move(step: Step, index: Index) -> tuple[int, Letters]:
    return 0, dict(zip("nhtc" if step.rule == "split_heads" else "nti", moved(step, index), strict=True))


def starts_with(step: Step, index: Index) -> tuple[int, Letters]:
    return int(index[1] != 0), {}


# --- the table -------------------------------------------------------------------------------------------------------

SOFTMAX = "exp({0}[*,{1}] - max({0}[*,u], u)) / sum(exp({0}[*,u] - max({0}[*,u], u)), u)"
HIDDEN = "0, for the mask hides the key"
DX = "dx = (dx_hat"
"""The line that folds the gradients of the statistics of a norm into that of x."""
KEPT = "{ * keep[n,h,t,s] / (1 - rate)}"


def _shared(formula: str, source: str, choose: Choose) -> Line:
    """Return a formula for heads g of keys and values that several heads share; the other is for one to each head."""
    return Line(formula, source, choose, formula.replace("n,g,", "n,h,").replace(", h, t)", ", t)"))


TABLE: dict[str, dict[str, Line]] = {
    "linear": {
        "y": Line("y[*,j] = sum(x[*,k] * w[k,j], k){ + b[j]}", "x @ w"),
        "x": Line("dx[*,k] = sum(dy[*,j] * w[k,j], j)", "dx = dy @"),
        "w": Line("dw[k,j] = sum(x[*,k] * dy[*,j], *)", "dw ="),
        "b": Line("db[j] = sum(dy[*,j], *)", "db ="),
    },
    "tied_linear": {  # logits = x tableᵀ
        "y": Line("y[*,j] = sum(x[*,k] * table[j,k], k){ + b[j]}", "x @ w"),
        "x": Line("dx[*,k] = sum(dy[*,j] * table[j,k], j)", "dx = dy @"),
        "table": Line("dtable[j,k] = sum(x[*,k] * dy[*,j], *)", "dw ="),
        "b": Line("db[j] = sum(dy[*,j], *)", "db ="),
    },
    "embedding": {
        "y": Line("y[*,i] = {scale * }table[ids[*],i]", "table[ids]"),
        "table": Line(
            "dtable[v,i] = sum(dy[*,i]{ * scale}, *)",
            "scatter_add(",
            _looked_up,
            "dtable[v,i] = 0, for the row was not looked up",
        ),
    },
    "relative_bias": {
        "y": Line("bias[h,t,s] = table[buckets[t,s],h]", "table[buckets]"),
        "table": Line(
            "dtable[b,h] = sum(dbias[h,t,s], t, s)",
            "scatter_add(",
            _looked_up,
            "dtable[b,h] = 0, for no distance falls into the bucket",
        ),
    },
    "layer_norm": {
        "y": Line("y[*,j] = (x[*,j] - mean[*]) * rstd[*] * gamma[j]{ + beta[j]}", "centered * rstd * gamma"),
        "x": Line(
            "dx[*,j] = (dy[*,j] * gamma[j] - mean(dy[*,i] * gamma[i], i) - (x[*,j] - mean[*]) * rstd[*]"
            " * mean(dy[*,i] * gamma[i] * (x[*,i] - mean[*]) * rstd[*], i)) * rstd[*]",
            DX,
            None,
            "dx[*,j] = dy[*,j] * gamma[j] * rstd[*] - (x[*,j] - mean[*]) * rstd0[*]**3 * drstd[*] / D + dmean[*] / D",
        ),
        "mean": Line(
            "dmean[*] = -sum(dy[*,i] * gamma[i] * rstd[*] - (x[*,i] - mean[*]) * rstd0[*]**3 * drstd[*] / D, i)", DX
        ),
        "rstd": Line("drstd[*] = sum(dy[*,i] * gamma[i] * (x[*,i] - mean[*]), i)", DX),
        "gamma": Line("dgamma[j] = sum(dy[*,j] * (x[*,j] - mean[*]) * rstd[*], *)", "dgamma ="),
        "beta": Line("dbeta[j] = sum(dy[*,j], *)", "dbeta ="),
    },
    "rms_norm": {
        "y": Line("y[*,j] = x[*,j] * rrms[*] * gamma[j]", "x * rrms * gamma"),
        "x": Line(
            "dx[*,j] = (dy[*,j] * gamma[j] - x[*,j] * rrms[*]"
            " * mean(dy[*,i] * gamma[i] * x[*,i] * rrms[*], i)) * rrms[*]",
            DX,
            None,
            "dx[*,j] = dy[*,j] * gamma[j] * rrms[*] - x[*,j] * rrms0[*]**3 * drrms[*] / D",
        ),
        "rrms": Line("drrms[*] = sum(dy[*,i] * gamma[i] * x[*,i], i)", DX),
        "gamma": Line("dgamma[j] = sum(dy[*,j] * x[*,j] * rrms[*], *)", "dgamma ="),
    },
    # The norm's own gradient holds what its statistics send back.
    "mean": {"y": Line("mean[*] = mean(x[*,i], i)", ".mean(")},
    "rstd": {"y": Line("rstd[*] = 1 / sqrt(mean((x[*,i] - mean[*])**2, i) + eps)", "sqrt")},
    "rrms": {"y": Line("rrms[*] = 1 / sqrt(mean(x[*,i]**2, i) + eps)", "sqrt")},
    "scores": {
        "y": _shared(
            "scores[n,h,t,s] = sum(q[n,h,t,c] * k[n,g,s,c] * scale, c){ + bias[n,h,t,s]}",
            "attention_scores(",
            key_head,
        ),
        "q": _shared("dq[n,h,t,c] = sum(dscores[n,h,t,s] * k[n,g,s,c] * scale, s)", "dq =", key_head),
        "k": _shared("dk[n,g,s,c] = sum(dscores[n,h,t,s] * q[n,h,t,c] * scale, h, t)", "dk =", _query_heads),
        "bias": Line("dbias[n,h,t,s] = unbroadcast(dscores[n,h,t,s])", "dbias ="),
    },
    "softmax": {
        "y": Line(
            f"weights[*,s] = {SOFTMAX.format('scores', 's')}", "y = e /", visible_keys, f"weights[*,s] = {HIDDEN}"
        ),
        "scores": Line(
            "dscores[*,s] = weights[*,s] * (dweights[*,s] - sum(dweights[*,u] * weights[*,u], u))",
            "return y * (dy",
            visible_keys,
            f"dscores[*,s] = {HIDDEN}",
        ),
    },
    "mix": {
        "y": _shared(f"y[n,h,t,c] = sum(weights[n,h,t,s] * v[n,g,s,c]{KEPT}, s)", "@ v", key_head),
        "weights": _shared(f"dweights[n,h,t,s] = sum(dy[n,h,t,c] * v[n,g,s,c]{KEPT}, c)", "dweights =", key_head),
        "v": _shared(f"dv[n,g,s,c] = sum(weights[n,h,t,s] * dy[n,h,t,c]{KEPT}, h, t)", "dv =", _query_heads),
    },
    "rotary": {
        "y": Line(
            "y[*,a] = x[*,a] * cos[*,p] - x[*,b] * sin[*,p]",
            "_rotate(x",
            rotated_pair,
            "y[*,b] = x[*,b] * cos[*,p] + x[*,a] * sin[*,p]",
        ),
        "x": Line(
            "dx[*,a] = dy[*,a] * cos[*,p] + dy[*,b] * sin[*,p]",
            "_rotate(dy",
            rotated_pair,
            "dx[*,b] = dy[*,b] * cos[*,p] - dy[*,a] * sin[*,p]",
        ),
    },
    "activation": {
        "y": Line("y[*,f] = act(x[*,f])"),
        "x": Line("dx[*,f] = dy[*,f] * slope(x[*,f])"),
    },
    "gated": {
        "y": Line("y[*,f] = act(gate[*,f]) * up[*,f]", "opened * up"),
        "gate": Line("dgate[*,f] = dy[*,f] * up[*,f] * slope(gate[*,f])"),
        "up": Line("dup[*,f] = dy[*,f] * act(gate[*,f])"),
    },
    "add": {
        "y": Line("y[*,j] = x[*,j] + h[*,j]", "x + h"),
        "x": Line("dx[*,j] = unbroadcast(dy[*,j])", "dy"),
        "h": Line("dh[*,j] = unbroadcast(dy[*,j])", "dy"),
    },
    "split_heads": {
        "y": Line("heads[n,h,t,c] = x[n,t,i]", choose=moved_letters),
        "x": Line("dx[n,t,i] = dheads[n,h,t,c]", choose=_after_move),
    },
    "merge_heads": {
        "y": Line("merged[n,t,i] = x[n,h,t,c]", choose=moved_letters),
        "x": Line("dx[n,h,t,c] = dmerged[n,t,i]", choose=_after_move),
    },
    "copy": {"y": Line("y[*,j] = x[*,j]", "+x"), "x": Line("dx[*,j] = dy[*,j]", "+dy")},
    "scale": {
        "y": Line("y[*,j] = x[*,j] * factor", "x * factor"),
        "x": Line("dx[*,j] = dy[*,j] * factor", "dy * factor"),
    },
    "take_first": {
        "y": Line("pooled[n,j] = x[n,0,j]", "x[..., 0, :]"),
        "x": Line(
            "dx[n,0,j] = dpooled[n,j]", "return", starts_with, "dx[n,t,j] = 0, for only the first position is read"
        ),
    },
    "prepend": {
        "y": Line("y[n,0,j] = first[j]", "concatenate(", starts_with, "y[n,t,j] = x[n,t-1,j]"),
        "first": Line("dfirst[j] = sum(dy[n,0,j], n)"),
        "x": Line("dx[n,t,j] = dy[n,t+1,j]"),
    },
    "mean_pool": {
        "y": Line("y[n,j] = sum(x[n,t,j] * share[n,t], t)", "xp.sum(x * share"),
        "x": Line("dx[n,t,j] = dy[n,j] * share[n,t]", "saved.share"),
    },
    "dropout": {
        "y": Line("y[*,j] = keep[*,j] / (1 - rate) * x[*,j]", "dropped(x, keep"),
        "x": Line("dx[*,j] = keep[*,j] / (1 - rate) * dy[*,j]", "dropped(dy, keep"),
    },
}

# --- what a line says of one step ------------------------------------------------------------------------------------

TWICE_U = "2 * sqrt(2 / pi) * ({0} + 0.044715 * {0}**3)"
ACTIVATIONS = {
    "relu": "larger({0}, 0)",
    "gelu": "{0} * Phi({0})",
    "gelu_tanh": f"{{0}} * sigma({TWICE_U})",
    "silu": "{0} * sigma({0})",
}
SLOPES = {
    "relu": "positive({0})",
    "gelu": "(Phi({0}) + {0} * exp(-{0}**2 / 2) / sqrt(2 * pi))",
    "gelu_tanh": f"(sigma({TWICE_U}) + {{0}} * sigma({TWICE_U}) * (1 - sigma({TWICE_U})) * 2 * sqrt(2 / pi)"
    " * (1 + 3 * 0.044715 * {0}**2))",
    "silu": "sigma({0}) * (1 + {0} * (1 - sigma({0})))",
}


def formula_of(step: Step, role: str, line: str) -> str:
    """Return a formula of the table with the letters, the activation and the optional parts that a step has."""
    lead = ",".join(rows_of(step))

    def optional(part: re.Match[str]) -> str:
        value = step.inputs.get(part[2], step.settings.get(part[2]))
        return part[1] if isinstance(value, np.ndarray) or value not in (None, 1) else ""

    line = re.sub(r"\{(\W*(\w+).*?)\}", optional, line)
    line = line.replace("[*,", f"[{lead}," if lead else "[").replace("[*]", f"[{lead}]" if lead else "")
    line = line.replace(", *)", f", {lead.replace(',', ', ')})" if lead else ")")
    name = str(step.settings.get("activation", "silu"))
    line = re.sub(r"\bact\((.*?\])\)", lambda x: ACTIVATIONS.get(name, f"act_{name}({{0}})").format(x[1]), line)
    line = re.sub(r"\bslope\((.*?\])\)", lambda x: SLOPES.get(name, f"slope_{name}({{0}})").format(x[1]), line)
    return _unbroadcast(step, role, line) if "unbroadcast(" in line else line


def _unbroadcast(step: Step, role: str, line: str) -> str:
    """Return what a term gets that was broadcast: the sum over the axes along which it was."""
    _, symbol, index = re.split(r"unbroadcast\((\w+)\[(.*)\]\)", line)[:3]
    letters, own, shape = index.split(","), step.inputs[role].shape, step.output.shape
    missing = len(shape) - len(own)
    over = [letter for n, letter in enumerate(letters) if n < missing or own[n - missing] != shape[n]]
    dy = f"{symbol}[{index}]"
    return f"d{role}[{','.join(letters[missing:])}] = " + (f"sum({dy}, {', '.join(over)})" if over else dy)


def rows_of(step: Step) -> str:
    """Return the letters of all axes of a step's result but the last."""
    if step.rule == "embedding" and step.output.ndim == 2:
        return "t"  # positions, the same for every example
    return {1: "", 2: "n", 3: "nt"}.get(step.output.ndim, "WXYZ"[: step.output.ndim - 4] + "nht")
