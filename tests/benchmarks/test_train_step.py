"""A training step as it is measured: the same work for all contenders, and the floor of its matrix products."""

from dataclasses import asdict

import numpy as np
import pytest

from peers.report import Bar, Check
from peers.steps import Floor, gradient_difference
from train_step import GRADIENT_LIMIT, LOSS_LIMIT, Setting, same_losses

MINUTE = Setting(layers=2, width=8, heads=2, length=4, batch=3, vocab=5)


def test_eager_pytorch_computes_the_same_step(torch):
    found = gradient_difference(engine="numpy", **asdict(MINUTE))
    assert found["loss"] < LOSS_LIMIT
    assert found["gradients"] < GRADIENT_LIMIT


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_the_floor_multiplies_as_much_in_any_number_of_shards(shards, monkeypatch):
    done = []
    multiply = np.matmul
    flops = lambda a, b: 2 * a.size * b.shape[-1]  # noqa: E731
    monkeypatch.setattr(np, "matmul", lambda a, b, out: done.append(flops(a, b)) or multiply(a, b, out=out))
    Floor(shards=shards, **asdict(MINUTE)).step()
    N, D, T, L, V = 12, 8, 4, 2, 5
    forward = L * (N * 12 * D * D + 2 * 3 * T * T * D) + N * D * V
    assert sum(done) == 2 * 3 * forward


def test_losses_that_differ_and_figures_that_are_no_numbers_are_found():
    facts = {"A": {"losses": [2.0, 1.5, 1.25]}, "B": {"losses": [2.0, 1.5]}, "products": {"losses": []}}
    assert same_losses(facts).ok
    facts["C"] = {"losses": [2.0, 1.5003]}
    check = same_losses(facts)
    assert not check.ok
    assert check.error == pytest.approx(2e-4)

    assert not Bar("speed", float("nan"), 1.2, at_most=True).ok
    assert not Bar("speed", float("nan"), 1.2).ok
    assert not Check("losses", float("nan"), 1e-4).ok
