"""What to change when a plan does not fit: the cheapest change that helps, or the fewest together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from ..errors import ConfigError
from ..execution import MeshShape
from .plan import Plan

MOST_TENSOR = 8
"""Devices along `tensor` exchange messages inside of every block, so they should share a machine."""

MORE_DEVICES = (1, 2, 4, 8, 16, 32, 64, 128)


def better(refused: Plan) -> Plan | None:
    """Return the cheapest plan that fits, for the same model, batch and numbers; None if none was found.

    On the devices given, few kinds of change come before many, and among as many kinds the order is: fsdp in the place
    of data (more messages), more microbatches (smaller products), remat (up to a third more arithmetic), tensor
    (messages inside of every block). If nothing helps, the same on more devices.
    """
    for more in MORE_DEVICES:
        found = sorted(_candidates(refused, more), key=lambda candidate: _price(refused, candidate))
        for mesh, accumulate, remat in found:
            try:
                tried = replace(refused, mesh=mesh, accumulate=accumulate, remat=remat)
                if tried.fits:
                    return tried
            except ConfigError:  # this mesh does not divide the model or the batch
                continue
    return None


def changes(refused: Plan, other: Plan) -> list[str]:
    """Say in words what `other` does differently."""
    before, after = refused.mesh, other.mesh
    words = {
        f"{after.size:,} devices instead of {before.size:,}": after.size != before.size,
        f"the mesh {after}": after != before,
        f"{other.accumulate:,} microbatches per step (accumulate)": other.accumulate != refused.accumulate,
        "remat": other.remat and not refused.remat,
    }
    return [word for word, differs in words.items() if differs]


Candidate = tuple[MeshShape, int, bool]


def _candidates(refused: Plan, more: int) -> Iterator[Candidate]:
    mesh = refused.mesh
    tensors = {mesh.tensor} | {n for n in (2, 4, 8) if mesh.tensor < n <= MOST_TENSOR and n % mesh.tensor == 0}
    for tensor in sorted(tensors):
        for fsdp in _divisors(mesh.data * mesh.fsdp * more):
            if mesh.size * more % (fsdp * tensor) == 0 and fsdp >= mesh.fsdp // (tensor // mesh.tensor):
                shape = MeshShape(mesh.size * more // (fsdp * tensor), fsdp, tensor)
                rows = refused.batch // (shape.replicas * refused.accumulate)
                pieces = [refused.accumulate * n for n in _divisors(rows)] if rows else []
                yield from ((shape, *rest) for rest in product(pieces, {refused.remat, True}))


def _price(refused: Plan, candidate: Candidate) -> tuple:
    """Sort by how many kinds of change, then by which, then by how much."""
    mesh, accumulate, remat = candidate
    changes = (
        mesh.tensor != refused.mesh.tensor,
        remat != refused.remat,
        accumulate != refused.accumulate,
        mesh.fsdp > refused.mesh.fsdp,
    )
    return sum(changes), changes, mesh.tensor, accumulate, mesh.fsdp


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
