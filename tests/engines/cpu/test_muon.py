"""Muon's steps in place: groups of matrices on several cores give what one matrix after the other gives."""

from dataclasses import dataclass

import numpy as np
import pytest

from glassformer.blas import threads
from glassformer.engines.cpu import muon
from glassformer.engines.cpu.cores import at_most
from glassformer.engines.cpu.trainer import in_place
from glassformer.training import Muon
from glassformer.tree import flatten, tree_map
from runs import assert_same_bits

SHAPES = {"square": (24, 24), "wide": (24, 96), "tall": (96, 24), "row": (1, 24)}


def draw(seed):
    rng = np.random.default_rng(seed)
    blocks = [{name: {"w": rng.normal(size=shape)} for name, shape in SHAPES.items()} for _ in range(5)]
    return tree_map(lambda x: x.astype(np.float32), {"table": rng.normal(size=(7, 24)), "blocks": blocks})


def steps_both_ways(optimizer):
    params = draw(0)
    state = optimizer.init(params)
    own, own_state = tree_map(np.copy, (params, state))
    step_in_place = in_place(optimizer, own, own_state)
    for step in range(3):
        grads = draw(step + 1)
        params, state = optimizer.update(params, grads, state, lr=0.02)
        step_in_place(flatten(grads), 0.02)
    assert_same_bits(own, params)
    assert_same_bits(own_state, state)


@pytest.mark.parametrize("together", [1, 3000, 1 << 16])
@pytest.mark.parametrize("cores", [1, 3])
def test_groups_of_matrices_move_as_each_does_alone(cores, together, monkeypatch):
    monkeypatch.setattr(muon, "CACHED", together)
    with at_most(cores), threads(1):
        steps_both_ways(Muon(weight_decay=0.1))


@pytest.mark.parametrize("settings", [{"nesterov": False}, {"iterations": 0}, {"iterations": 3, "momentum": 0.0}])
def test_all_settings_are_those_of_the_optimizer(settings):
    with threads(1):
        steps_both_ways(Muon(**settings))


@dataclass(frozen=True)
class Doubled(Muon):
    """Moves twice as far."""

    def move(self, name, p, g, memory, *scalars):
        moved, remembered = super().move(name, p, g, memory, *scalars)
        return 2 * moved - p, remembered


def test_a_class_that_moves_otherwise_moves_as_it_is_written():
    steps_both_ways(Doubled())


def test_gradients_of_another_kind_move_everything_as_written_or_nothing():
    params = draw(0)
    state = Muon().init(params)
    want, _ = Muon().update(params, draw(1), state, lr=0.02)
    grads = flatten(draw(1))
    grads["blocks.0.wide.w"] = np.asfortranarray(grads["blocks.0.wide.w"])
    in_place(Muon(), params, state)(grads, 0.02)
    assert_same_bits(params["table"], want["table"])
    np.testing.assert_allclose(params["blocks"][0]["wide"]["w"], want["blocks"][0]["wide"]["w"], atol=1e-6)
