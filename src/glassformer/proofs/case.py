"""One thing to prove, and the verdict on it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from ..arrays import Array
from ..tree import tree_map


@dataclass(frozen=True, eq=False)
class Case:
    """Base of the cases: dataclasses that hold arrays, alone and in dicts and tuples."""

    def within(self, xp: Any) -> Self:
        """Return the same case with every array in the library `xp` (numpy or jax.numpy)."""

        def moved(x: Any) -> Any:
            return xp.asarray(x) if hasattr(x, "__array_namespace__") else x

        return replace(self, **{part.name: tree_map(moved, getattr(self, part.name)) for part in fields(self)})


@dataclass(frozen=True, eq=False)
class OpCase(Case):
    """An op with the arrays and settings under which its gradient is proved.

    y, saved = op(*arrays, *extra, **settings);  backward returns one gradient per entry of `arrays`
    """

    name: str
    """What is special about the case, after the name of the op: "softmax, all masked"."""
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


@dataclass(frozen=True)
class Check:
    """The verdict on one gradient."""

    name: str
    kind: str
    """"op", "layer" or "model"; "argument" for one array of these."""
    error: float
    """The largest relative error found."""
    limit: float
    """What the error may be at most."""
    ok: bool
    reason: str = ""
    """What is wrong, with the worst entry; also how an unusual forward was compared."""
    arguments: tuple[Check, ...] = ()
    """One verdict for each array with a gradient; of a layer or model, for the wrong ones."""
    worst: tuple[int, ...] | None = None
    """The index of the worst entry, of an argument."""

    @classmethod
    def of(cls, name: str, kind: str, error: float, limit: float, **details: Any) -> Check:
        """Judge an error; NaN fails."""
        return cls(name, kind, float(error), limit, bool(error <= limit), **details)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which has no word for an infinite error: None."""
        error = self.error if math.isfinite(self.error) else None
        row = {"name": self.name, "kind": self.kind, "error": error, "limit": self.limit, "ok": self.ok}
        if self.reason:
            row["reason"] = self.reason
        return row
