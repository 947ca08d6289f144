"""What fused layers share."""

import numpy as np
import pytest

from glassformer.engines.cpu.fused import gathered, matrices_of, named, once_for_each
from glassformer.layers import Linear

NAMES = ("up", "down")
PARTS = {"up": Linear(3, 4), "down": Linear(4, 3, bias=False)}


def params():
    return {name: part.init(0) for name, part in PARTS.items()}


def test_a_fact_is_looked_up_once_for_each_layer_and_forgotten_with_it():
    asked = []

    @once_for_each
    def inputs(layer):
        asked.append(layer.inputs)
        return layer.inputs

    first, same = Linear(3, 4), Linear(3, 4)
    assert [inputs(first), inputs(first), inputs(same)] == [3, 3, 3]
    assert asked == [3, 3]  # equal layers are two layers
    for size in range(50):  # one after the other, perhaps at the same address
        assert inputs(Linear(size, 1)) == size


def test_linear_maps_are_gathered_in_the_order_of_their_names_and_gradients_named_again():
    matrices = matrices_of(PARTS, NAMES)
    ws, bs = gathered(matrices, params(), np.dtype(np.float32))
    assert [w.shape for w in ws] == [(3, 4), (4, 3)]
    assert [b.shape for b in bs] == [(4,), (0,)]
    grads = named(matrices, ws, bs)
    assert {name: set(part) for name, part in grads.items()} == {"up": {"w", "b"}, "down": {"w"}}


WRONG = {
    "a matrix is missing": lambda tree: tree.pop("up"),
    "a bias is missing": lambda tree: tree["up"].pop("b"),
    "a bias too many": lambda tree: tree["down"].update(b=np.zeros(3, np.float32)),
    "something beside them": lambda tree: tree["up"].update(scale=np.zeros(4, np.float32)),
    "another shape": lambda tree: tree["up"].update(w=np.zeros((4, 3), np.float32)),
    "another type": lambda tree: tree["up"].update(w=np.zeros((3, 4))),
    "another order": lambda tree: tree["up"].update(w=np.zeros((4, 3), np.float32).T),
}


@pytest.mark.parametrize("what", WRONG)
def test_parameters_that_do_not_fit_are_not_gathered(what):
    tree = params()
    WRONG[what](tree)
    assert gathered(matrices_of(PARTS, NAMES), tree, np.dtype(np.float32)) is None


def test_other_maps_and_maps_of_ones_own_are_not_described():
    class Own(Linear):
        pass

    assert matrices_of(PARTS, ("up",)) is None
    assert matrices_of({**PARTS, "up": Own(3, 4)}, NAMES) is None
