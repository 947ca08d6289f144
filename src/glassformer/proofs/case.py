"""One thing to prove, and the verdict on it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from ..core.arrays import Array, Tree, namespace
from ..core.show import Table
from ..core.tree import tree_map
from ..layers import Layer
from ..models import Batch, Encoder, Model
from ..training.trainable import EVERYTHING, Parametrization


@dataclass(frozen=True, eq=False)
class Case:
    """Base of the cases: dataclasses that hold arrays, alone and in dicts and tuples."""

    kind: ClassVar[str]

    def within(self, xp: Any) -> Self:
        """Return the same case with every array in the library `xp` (numpy or jax.numpy)."""
        return replace(self, **{part.name: _within(xp, getattr(self, part.name)) for part in fields(self)})


def _within(xp: Any, tree: Tree) -> Tree:
    return tree_map(lambda x: xp.asarray(x) if hasattr(x, "__array_namespace__") else x, tree)


@dataclass(frozen=True, eq=False)
class OpCase(Case):
    """An op with the arrays and settings under which its gradient is proved.

    y, saved = op(*arrays, *extra, **settings);  backward returns one gradient per entry of `arrays`
    """

    kind = "op"
    name: str
    """The name of the op, then what is special about the case: "softmax, all masked"."""
    op: Callable[..., tuple[Any, Any]]
    backward: Callable[..., Any]
    arrays: tuple[Array | None, ...]
    """The arguments with a gradient, in order; None for an optional one left out, whose gradient must be None."""
    extra: tuple[Array, ...] = ()
    """Arguments without a gradient that follow: ids, angles, keys."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments: masks, rates, eps."""

    def forward(self, *arrays: Array | None) -> tuple[Any, Any]:
        """Run the op, on other arrays when given."""
        return self.op(*(arrays or self.arrays), *self.extra, **self.settings)

    def gradients(self, dy: Array, saved: Any) -> tuple[Array | None, ...]:
        """Run the backward with those settings that its signature names; always a tuple."""
        taken = inspect.signature(self.backward).parameters
        grads = self.backward(dy, saved, **{name: value for name, value in self.settings.items() if name in taken})
        return grads if isinstance(grads, tuple) else (grads,)


@dataclass(frozen=True, eq=False)
class LayerCase(Case):
    """A layer with parameters, inputs and settings:  y, saved = layer.forward(params, **inputs, **settings)."""

    kind = "layer"
    name: str
    """The class, then what is special about the case: "Attention, grouped queries"."""
    layer: Layer
    params: Tree
    inputs: Mapping[str, Array]
    """Inputs with a gradient: x, memory, bias, table."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Inputs without one: ids, masks, rotations, keys."""

    @property
    def point(self) -> Tree:
        """All that may move."""
        return {"params": self.params, "inputs": dict(self.inputs)}

    def forward(self, point: Tree | None = None) -> tuple[Array, Tree]:
        """Run the layer, at another point when given."""
        point = self.point if point is None else point
        return self.layer.forward(point["params"], **point["inputs"], **self.settings)

    def function(self, point: Tree) -> Array:
        """Return  Σ dy · y  for a fixed random dy."""
        y, _ = self.forward(point)
        return (y * _cotangent(y)).sum()

    def gradients(self, point: Tree | None = None) -> Tree:
        """Return the hand-derived gradient of `function`, by the names of the point."""
        point = self.point if point is None else point
        y, saved = self.forward(point)
        backward = self.layer.backward
        again = {name: x for name, x in point["inputs"].items() if name in inspect.signature(backward).parameters}
        read, grads = backward(point["params"], saved, _cotangent(y), **again)
        inputs = read._asdict() if hasattr(read, "_asdict") else {"x": read}
        return {"params": grads, "inputs": {name: dx for name, dx in inputs.items() if dx is not None}}


@dataclass(frozen=True, eq=False)
class ModelCase(Case):
    """A model with parameters, a batch and the settings of its loss."""

    kind = "model"
    name: str
    """The row it belongs to, then what is special about the case: "decoder (positions), rotary"."""
    model: Model
    params: Tree
    batch: Batch
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the loss: key, smoothing, class_weights."""
    parametrization: Parametrization = EVERYTHING
    """From `params` to the parameters of the model: adapters determine them over frozen ones."""

    @property
    def point(self) -> Tree:
        """All that may move."""
        return self.params

    @property
    def has_loss(self) -> bool:
        """Whether the model ends in logits; without a head it ends in vectors."""
        return getattr(self.model.config, "head", "tokens") != "none"

    def within(self, xp: Any) -> Self:
        """Return the same case with every array in the library `xp`, frozen parameters too."""
        own = self.parametrization
        return replace(super().within(xp), parametrization=own.over(_within(xp, own.base)))

    def forward(self, point: Tree | None = None) -> tuple[Array, Tree]:
        """Return what the model says of the batch, and the record."""
        params = self.parametrization.effective(self.params if point is None else point)
        if self.has_loss:
            return self.model.predict(params, self.batch, key=self.settings.get("key"))
        assert isinstance(self.model, Encoder)
        return self.model.forward(params, self.batch.tokens, mask=self.batch.mask)

    def function(self, point: Tree) -> Array:
        """Return the loss;  Σ dy · y  for a fixed random dy where there is none."""
        if self.has_loss:
            return self.model.loss(self.parametrization.effective(point), self.batch, **self.settings)
        y, _ = self.forward(point)
        return (y * _cotangent(y)).sum()

    def gradients(self, point: Tree | None = None) -> Tree:
        """Return the hand-derived gradient of `function`."""
        point = self.params if point is None else point
        params = self.parametrization.effective(point)
        params = self.parametrization.marked(self.model, params, point)
        if self.has_loss:
            _, grads = self.model.loss_and_grads(params, self.batch, **self.settings)
        else:
            y, saved = self.forward(point)
            grads = self.model.backward(params, saved, _cotangent(y))
        return self.parametrization.pull_back(point, grads)


def _cotangent(y: Array) -> Array:
    """Return random numbers in the shape and library of y, the same each time."""
    dy = np.random.default_rng(3).standard_normal(tuple(y.shape))
    return namespace(y).asarray(dy, dtype=y.real.dtype)


def scattered(layer: Layer, rng: np.random.Generator) -> Tree:
    """Return parameters far from their first values, where no gamma is one and no bias zero."""
    return tree_map(lambda x: x + 0.3 * rng.standard_normal(x.shape), layer.init(rng, np.float64))


@dataclass(frozen=True)
class Check:
    """The verdict on one gradient."""

    name: str
    kind: str
    """"op", "layer" or "model"."""
    error: float
    """The largest relative error found."""
    limit: float
    """The largest error that is allowed."""
    ok: bool
    reason: str = ""
    """The mistake, with the worst entry; also how an unusual forward was compared."""

    @classmethod
    def of(cls, name: str, kind: str, error: float, limit: float, reason: str = "") -> Check:
        """Judge an error; NaN fails."""
        return cls(name, kind, float(error), limit, bool(error <= limit), reason)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which has no word for an infinite error: None."""
        error = self.error if math.isfinite(self.error) else None
        row = {"name": self.name, "kind": self.kind, "error": error, "limit": self.limit, "ok": self.ok}
        return row | ({"reason": self.reason} if self.reason else {})


class Checks(Table):
    """Verdicts that show themselves as a table."""
