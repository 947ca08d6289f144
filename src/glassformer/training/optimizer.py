"""The base of every optimizer: settings in, one pure step over all parameters out.

    state = optimizer.init(params)
    params, state = optimizer.update(params, grads, state, lr=1e-3)

An optimizer is written for one array: what it remembers about it (`slots`) and how the array moves (`move`). This file
carries that to the whole tree. The state is plain data, {"step": count, "mean": {…}, …}: what is remembered stands
under the dotted name of its parameter, so it can be saved and restored by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ..core.arrays import Array, Tree, cast, namespace, widen
from ..core.errors import ShapeError
from ..core.tree import flatten, library, named_leaves, rebuilt, unflatten, zeros_like

Predicate: TypeAlias = Callable[[str, Array], bool]
"""A question about one parameter, by its dotted name and its array."""

Memory: TypeAlias = dict[str, Array]
"""State of an optimizer for one parameter, by slot."""


def is_matrix(name: str, array: Array) -> bool:
    """Return whether weight decay applies: to arrays with two axes or more, not to norms and biases."""
    return array.ndim >= 2


@dataclass(frozen=True)
class Optimizer(ABC):
    """A recipe for turning gradients into smaller losses; nothing changes inside it.

    Parameters of half precision move, and are remembered, in float32. Scalars never widen an array.
    """

    default_lr: ClassVar[float] = 1e-3

    @abstractmethod
    def slots(self, name: str, p: Array) -> tuple[str, ...]:
        """Name what is remembered about the parameter `p`: arrays of its shape that start at zero."""

    def scalars(self, step: Array, lr: Any) -> tuple[Any, ...]:
        """Return the numbers that all arrays share at step 1, 2, …; `move` gets them in the type of its array."""
        return (lr,)

    @abstractmethod
    def move(self, name: str, p: Array, g: Array, memory: Memory, *scalars: Array) -> tuple[Array, Memory]:
        """Move the parameter `p` by its gradient `g`; return it and what is remembered from now on."""

    def init(self, params: Tree) -> dict[str, Tree]:
        """Return the state before the first step."""
        memories = {
            name: {slot: zeros_like(widen(p)) for slot in self.slots(*single(name, p))}
            for name, p in named_leaves(params)
        }
        return {"step": library(params).zeros((), dtype=np.int32), **_by_slot(memories, params)}

    def update(self, params: Tree, grads: Tree, state: Tree, *, lr: Any) -> tuple[Tree, dict[str, Tree]]:
        """Take one step of size `lr`; return the new parameters and the new state, leaving the old ones alone."""
        leaves, grads, memories = flatten(params), flatten(grads), memories_of(state)
        check_gradients(grads, leaves)
        self.check_state(memories, leaves)
        step = library(params).asarray(state["step"] + 1, dtype=np.int32)
        scalars = self.scalars(step, lr)
        typed: dict[Any, list[Array]] = {}
        moved: dict[str, Memory] = {}
        for name, param in leaves.items():
            p = widen(param)
            if p.dtype not in typed:
                typed[p.dtype] = [namespace(p).asarray(number, dtype=p.dtype) for number in scalars]
            memory = memories.get(name, {})
            p, moved[name] = self._move(name, p, cast(grads[name], p.dtype), memory, *typed[p.dtype])
            leaves[name] = cast(p, param.dtype)
        return rebuilt(params, leaves), {"step": step, **_by_slot(moved, params)}

    def _move(self, name: str, p: Array, g: Array, memory: Memory, *scalars: Array) -> tuple[Array, Memory]:
        """Move a parameter; where the blocks are stacked, that of every block on its own."""
        if not _is_stacked(name):
            return self.move(name, p, g, memory, *scalars)
        from jax import vmap

        block_name, _ = single(name, p)
        return vmap(lambda p, g, memory: self.move(block_name, p, g, memory, *scalars))(p, g, memory)

    def is_bounded(self, lr: float) -> bool:
        """Return whether finite gradients can never make a parameter infinite, however large they are."""
        return False

    def check_state(self, memories: dict[str, Memory], params: dict[str, Array]) -> None:
        """Refuse what was remembered about other parameters, or by another optimizer."""
        wrong = [
            name
            for name, p in params.items()
            if memories.get(name, {}).keys() != set(self.slots(*single(name, p)))
            or any(array.shape != p.shape for array in memories.get(name, {}).values())
        ]
        wrong += sorted(memories.keys() - params.keys())
        if wrong:
            raise ShapeError(
                f"the optimizer's state does not fit the parameters: see {wrong[0]}",
                hint="make the state with init() of the same optimizer and the same parameters",
            )


def _is_stacked(name: str) -> bool:
    """Return whether a parameter is that of all blocks at once, with the layers as its first axis."""
    path = name.split(".")
    after = path.index("blocks") + 1 if "blocks" in path else len(path)
    return after < len(path) and not path[after].isdigit()


def single(name: str, p: Array | None) -> tuple[str, Any]:
    """Return the name and the array of the first block's parameter where the blocks are stacked."""
    return (name.replace("blocks.", "blocks.0.", 1), p if p is None else p[0]) if _is_stacked(name) else (name, p)


def _by_slot(memories: dict[str, Memory], params: Tree) -> dict[str, Tree]:
    """Turn {parameter: {slot: array}} into {slot: tree of the parameters that have one}."""
    slots: dict[str, dict[str, Array]] = {}
    for name, memory in memories.items():
        for slot, array in memory.items():
            slots.setdefault(slot, {})[name] = array
    return {
        slot: rebuilt(params, arrays) if len(arrays) == len(memories) else unflatten(arrays)
        for slot, arrays in slots.items()
    }


def memories_of(state: Tree) -> dict[str, Memory]:
    """Return what the state of an optimizer remembers, by parameter and slot."""
    memories: dict[str, Memory] = {}
    for slot, tree in state.items():
        if slot != "step":
            for name, array in named_leaves(tree):
                memories.setdefault(name, {})[slot] = array
    return memories


def check_gradients(grads: dict[str, Array], params: dict[str, Array]) -> None:
    """Refuse gradients that are not those of these parameters."""
    hint = "pass the gradients that loss_and_grads returned for these parameters"
    for name, p in params.items():
        if name not in grads or grads[name].shape != p.shape:
            have = f"has shape {tuple(grads[name].shape)}" if name in grads else "is missing"
            raise ShapeError(f"the gradient of {name} {have}, expected {tuple(p.shape)}", hint=hint)
    if len(grads) > len(params):
        extra = sorted(grads.keys() - params.keys())
        raise ShapeError(f"there are gradients without a parameter: {', '.join(extra[:4])}", hint=hint)
