"""What to change when a plan does not fit: the cheapest change that helps, or the fewest together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..errors import ConfigError
from .mesh import MeshShape
from .plan import Plan, plan

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
        for candidate in found:
            try:
                tried = _with(refused, *candidate)
            except ConfigError:  # this mesh does not divide the model or the batch
                continue
            if tried.fits:
                return tried
    return None


def changes(refused: Plan, other: Plan) -> list[str]:
    """Say in words what `other` does differently."""
    before, after = refused.mesh, other.mesh
    words = []
    if after.size != before.size:
        words.append(f"{after.size:,} devices instead of {before.size:,}")
    if after != before:
        words.append(f"the mesh {after}")
    if other.accumulate != refused.accumulate:
        words.append(f"{other.accumulate:,} microbatches per step (accumulate)")
    if other.remat and not refused.remat:
        words.append("remat")
    return words


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
    kinds = (
        mesh.tensor != refused.mesh.tensor,
        remat != refused.remat,
        accumulate != refused.accumulate,
        mesh.fsdp > refused.mesh.fsdp,
    )
    return sum(kinds), kinds, mesh.tensor, accumulate, mesh.fsdp


def _with(refused: Plan, mesh: MeshShape, accumulate: int, remat: bool) -> Plan:
    return plan(
        refused.config,
        mesh,
        batch=refused.batch,
        length=refused.length,
        precision=refused.precision,
        optimizer=refused.optimizer,
        remat=remat,
        ema=refused.ema,
        accumulate=accumulate,
        device_memory=refused.device_memory,
    )


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
