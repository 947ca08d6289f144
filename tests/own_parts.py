"""Parts that a user might write: an activation, a norm, positions, three blocks; and how they are forgotten."""

import contextlib
from dataclasses import dataclass

import numpy as np

from glassformer import ops
from glassformer.core import registry
from glassformer.data import TASKS, python_files
from glassformer.layers import Block, InputGrads, Layer, Positions, Residual, Spec
from glassformer.ops.activation import logistic
from glassformer.text import TOKENIZERS
from glassformer.training.optimizers import OPTIMIZERS


def square(x):
    """y = x²."""
    return x * x, x


def square_backward(dy, x):
    """dx = 2 x dy."""
    return 2 * x * dy


@dataclass(frozen=True)
class ScaleNorm(Layer):
    """y = gamma · x / √(Σ x² + eps), one gamma for all features."""

    width: int
    eps: float = 1e-5

    def specs(self):
        return {"gamma": Spec((1,), mean=1.0)}

    def forward(self, params, x):
        r = 1 / ((x * x).sum(axis=-1, keepdims=True) + self.eps) ** 0.5
        return params["gamma"] * x * r, {"x": x, "r": r}

    def backward(self, params, saved, dy):
        x, r = saved["x"], saved["r"]
        # y = gamma · x · r,  r = (Σ x² + eps)^(−½)
        dgamma = (dy * x * r).sum().reshape(1)
        dx = params["gamma"] * r * (dy - x * r * r * (dy * x).sum(axis=-1, keepdims=True))
        return dx, {"gamma": dgamma}


@dataclass(frozen=True)
class LearnedSlope(Positions):
    """A bias −|slope · distance| whose slopes, one for each head, are learned."""

    heads: int

    def specs(self):
        return {"slope": Spec((self.heads,), std=0.1, mean=0.3)}

    def forward(self, params, rows, columns):
        distance = np.abs(np.asarray(rows)[:, None] - np.asarray(columns))
        return -params["slope"][:, None, None] * distance, {"distance": distance}

    def backward(self, params, saved, dy):
        return None, {"slope": -(dy * saved["distance"]).sum(axis=(-2, -1))}


@dataclass(frozen=True)
class Parallel(Block):
    """Attention and feed-forward read the same norm and are added at once, as in GPT-J: x + a(n(x)) + f(n(x))."""

    def forward(self, params, x, memory=None, bias=None, *, mask=None, rotation=None, cache=None, **_):
        saved = {}
        own = None if cache is None else cache.attention
        h, saved["attention_norm"] = self.norm.forward(params["attention_norm"], x)
        a, saved["attention"] = self.attention.forward(
            params["attention"], h, None, bias, mask=mask, rotation=rotation, cache=own
        )
        f, saved["feed_forward"] = self.feed_forward.forward(params["feed_forward"], h)
        return x + a + f, saved

    def backward(self, params, saved, dy):
        grads = {}
        df, grads["feed_forward"] = self.feed_forward.backward(params["feed_forward"], saved["feed_forward"], dy)
        read, grads["attention"] = self.attention.backward(params["attention"], saved["attention"], dy)
        dh, grads["attention_norm"] = self.norm.backward(params["attention_norm"], saved["attention_norm"], df + read.x)
        return InputGrads(dy + dh, None, read.bias), grads

    def specs(self):
        return {name: part for name, part in super().specs().items() if name != "feed_forward_norm"}


@dataclass(frozen=True)
class Sandwich(Block):
    """A norm before and, without parameters of its own, after each sublayer: x + n(f(n x)), built on residuals."""

    @property
    def residuals(self):
        return tuple(
            Residual(r.name, Normed(r.sublayer, self.norm), r.norm, r.norm_position, r.dropout)
            for r in super().residuals
        )


@dataclass(frozen=True)
class Normed(Layer):
    """A sublayer, then a norm."""

    inner: Layer
    norm: Layer

    def specs(self):
        return {"inner": self.inner.specs(), "after": self.norm.specs()}

    def forward(self, params, x, **given):
        y, inner = self.inner.forward(params["inner"], x, **given)
        y, after = self.norm.forward(params["after"], y)
        return y, {"inner": inner, "after": after}

    def backward(self, params, saved, dy):
        dy, after = self.norm.backward(params["after"], saved["after"], dy)
        read, inner = self.inner.backward(params["inner"], saved["inner"], dy)
        return read, {"inner": inner, "after": after}


@dataclass(frozen=True)
class Gated(Block):
    """The block of the library behind a learned gate: x + gate · (block(x) − x); what it is given it hands on."""

    def specs(self):
        return {**super().specs(), "gate": Spec((1,), mean=0.5)}

    def forward(self, params, x, **given):
        y, saved = super().forward(params, x, **given)
        return x + params["gate"] * (y - x), {"inside": saved, "step": y - x}

    def backward(self, params, saved, dy):
        read, grads = super().backward(params, saved["inside"], params["gate"] * dy)
        dgate = (dy * saved["step"]).sum().reshape(1)
        return read._replace(x=read.x + (1 - params["gate"]) * dy), {**grads, "gate": dgate}


@dataclass(frozen=True)
class Forgetful(Block):
    """A block that was written before there were caches."""

    def forward(self, params, x, memory=None, bias=None, *, mask=None, memory_mask=None, rotation=None, key=None):
        return super().forward(params, x, memory, bias, mask=mask, rotation=rotation, key=key)


@dataclass(frozen=True)
class Careless(Block):
    """A block that takes a cache and does nothing with it."""

    def forward(self, params, x, memory=None, bias=None, *, cache=None, **given):
        return super().forward(params, x, memory, bias, **given)


BLOCKS = {"shared_norm": Parallel, "sandwich": Sandwich, "gated": Gated}
"""Blocks that read on."""
REFUSED = {"forgetful": (Forgetful, "takes no cache"), "careless": (Careless, "does not hand its cache on")}
"""Blocks that do not, and what is said of them."""


def softplus(x):
    """y = log(1 + eˣ), an op of one's own."""
    return np.logaddexp(0, x) if np.isrealobj(x) else np.log1p(np.exp(x)), x


def softplus_backward(dy, x):
    """dx = dy · σ(x)."""
    return dy * logistic(x)


@contextlib.contextmanager
def forgotten():
    """Whatever is registered meanwhile is forgotten at the end."""
    tables = (ops.ACTIVATIONS, OPTIMIZERS, TASKS, TOKENIZERS, registry._origins, python_files._imported)
    tables += tuple(registry._own.values())
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, kept in zip(tables, before, strict=True):
            if table != kept:
                table.clear()
                table.update(kept)
