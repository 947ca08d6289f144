"""What fused layers share."""

from glassformer.engines.cpu.fused import once_for_each
from glassformer.layers import Linear


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
