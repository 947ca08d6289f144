"""Muon's steps in place: matrices of one shape together, as many as a core's cache holds, shared out over the cores.

The numbers are those of `Muon.move`, bit for bit: it does the same to one matrix, in new memory for every result.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from ...arrays import Array
from ...training.optimizers import NEWTON_SCHULZ, Muon
from .cores import cores, each
from .update import is_like

CACHED = 1 << 16  # numbers of the matrices that move together; the work needs about four times as many


class Matrix(NamedTuple):
    """A matrix that moves, in its own memory."""

    name: str
    p: Array
    momentum: Array
    decays: bool


Group = list[Matrix]
"""Matrices of one shape."""


def muon_on_all(optimizer: Muon, matrices: list[Matrix]) -> Callable[[dict[str, Array], float], None] | None:
    """Return a function that moves all matrices in place, given gradients by name; None if it cannot."""
    if not all(is_like([one.p, one.momentum], [one.p.shape] * 2) and one.p.flags.writeable for one in matrices):
        return None
    shares = [(groups, _room(groups)) for groups in _shared(matrices)]

    def step(grads: dict[str, Array], lr: float) -> None:
        each([partial(_move_all, optimizer, groups, room, grads, np.float32(lr)) for groups, room in shares])

    return step


def _shared(matrices: list[Matrix]) -> list[list[Group]]:
    """Return groups of matrices for each core, whose work is about the same."""
    alike: dict[tuple[int, ...], list[Matrix]] = defaultdict(list)
    for one in matrices:
        alike[one.p.shape].append(one)
    groups = []
    for some in alike.values():
        number = max(1, CACHED // some[0].p.size)
        groups += [some[start : start + number] for start in range(0, len(some), number)]
    shares: list[list[Group]] = [[] for _ in range(min(cores(), len(groups)))]
    for group in sorted(groups, key=_work, reverse=True):
        min(shares, key=lambda share: sum(map(_work, share))).append(group)
    return shares


def _work(group: Group) -> int:
    return len(group) * group[0].p.size * min(group[0].p.shape)


def _room(groups: list[Group]) -> tuple[Array, ...]:
    """Return memory for the largest group: twice for its matrices, and twice for their products with themselves."""
    sizes = [max(len(group) * size(group[0].p) for group in groups) for size in (np.size, lambda p: min(p.shape) ** 2)]
    return tuple(np.empty(size, np.float32) for size in (*sizes, *sizes))


def _move_all(
    optimizer: Muon, groups: list[Group], room: tuple[Array, ...], grads: dict[str, Array], lr: Array
) -> None:
    for group in groups:
        _move(optimizer, group, room, [grads[one.name] for one in group], lr)


def _move(optimizer: Muon, group: Group, room: tuple[Array, ...], gs: list[Array], lr: Array) -> None:
    """Move matrices of one shape, as `Muon.move` says."""
    inputs, outputs = group[0].p.shape
    x, spare = (memory[: len(group) * inputs * outputs].reshape(-1, inputs, outputs) for memory in (room[0], room[2]))
    rest = 1 - optimizer.momentum
    for way, other, g, one in zip(x, spare, gs, group, strict=True):
        m = one.momentum
        np.multiply(rest, g, out=way)
        m *= optimizer.momentum
        m += way
        if optimizer.nesterov:
            way += np.multiply(optimizer.momentum, m, out=other)
        else:
            way[...] = m
    scale = lr * math.sqrt(max(1.0, outputs / inputs))
    for one, way in zip(group, _orthogonalized(x, spare, room, optimizer.iterations), strict=True):
        if optimizer.weight_decay and one.decays:
            one.p[...] *= 1 - lr * optimizer.weight_decay
        way *= scale
        one.p[...] -= way


def _orthogonalized(x: Array, spare: Array, room: tuple[Array, ...], iterations: int) -> Array:
    """Return what `orthogonalized` does of each matrix of x, in the memory of x or of `spare`."""
    a, b, c = NEWTON_SCHULZ
    for one, other in zip(x, spare, strict=True):
        one /= max(np.sqrt(np.multiply(one, one, out=other).sum()), np.float32(1e-7))
    size, rows, columns = len(x), min(x.shape[1:]), max(x.shape[1:])
    A, square = (memory[: size * rows * rows].reshape(size, rows, rows) for memory in (room[1], room[3]))
    tall, here, y = x.shape[1] > x.shape[2], x.reshape(size, rows, columns), spare.reshape(size, rows, columns)
    x = x.swapaxes(1, 2) if tall else here
    for _ in range(iterations):
        np.matmul(x, x.swapaxes(1, 2), out=A)
        np.matmul(A, A, out=square)
        A *= b
        square *= c
        A += square
        np.matmul(A, x, out=y)
        x *= a
        y += x
        x, y, here = y, here, y  # a tall x is turned once: its products lie as they are read
    return x.swapaxes(1, 2) if tall else x
