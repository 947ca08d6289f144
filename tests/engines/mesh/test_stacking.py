"""Blocks as a list and blocks stacked: the same arrays, whatever the tree around them."""

import numpy as np
import pytest

from glassformer.config import config_from_dict
from glassformer.core.errors import ShapeError
from glassformer.core.tree import flatten
from glassformer.engines.mesh.sharding import stack_blocks, unstack_blocks
from glassformer.models import build
from glassformer.training import EMA, AdamW, Muon
from runs import assert_same_bits

SIZES = {"width": 8, "heads": 2, "layers": 3, "vocab": 11, "context": 8, "feed_forward": 16}
MODELS = {
    "decoder": {"architecture": "decoder", **SIZES},
    "encoder": {"architecture": "encoder", **SIZES, "classes": 2},
    "encoder-decoder": {"architecture": "encoder-decoder", **SIZES, "source_vocab": 9, "encoder_layers": 2},
}


@pytest.fixture(params=MODELS)
def params(request):
    return build(config_from_dict(MODELS[request.param])).init(0)


@pytest.mark.parametrize("optimizer", [AdamW(), Muon()], ids=["adamw", "muon"])
def test_stacking_and_unstacking_gives_back_every_bit_of_a_whole_state(params, optimizer):
    rng = np.random.default_rng(0)
    state = {"params": params, "optimizer": optimizer.init(params), "ema": EMA(0.9).init(params), "scaling": None}
    for array in flatten(state).values():
        if array.ndim:
            array[...] = rng.normal(size=array.shape)
    stacked = stack_blocks(state)
    names = flatten(stacked)
    assert not any(".blocks.0." in name for name in names)
    assert any(".encoder.blocks." in name or ".blocks." in name for name in names)
    assert stacked["scaling"] is None
    assert_same_bits(unstack_blocks(stacked), state)


def test_the_layers_are_the_first_axis(params):
    listed, stacked = flatten(params), flatten(stack_blocks(params))
    for name, array in stacked.items():
        if "blocks." in name:
            before, after = name.split("blocks.")
            for layer, part in enumerate(array):
                assert np.array_equal(part, listed[f"{before}blocks.{layer}.{after}"])
        else:
            assert array is listed[name]


def test_stacking_leaves_alone_what_is_as_wanted_and_keeps_the_library(params, jax):
    assert_same_bits(unstack_blocks(params), params)
    stacked = stack_blocks(params)
    assert_same_bits(stack_blocks(stacked), stacked)

    tree = {"blocks": [{"w": jax.numpy.ones((2, 3))}, {"w": jax.numpy.zeros((2, 3))}]}
    stacked = stack_blocks(tree)
    assert isinstance(stacked["blocks"]["w"], jax.Array)
    assert stacked["blocks"]["w"].shape == (2, 2, 3)
    assert isinstance(unstack_blocks(stacked)["blocks"][1]["w"], jax.Array)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"w": np.ones((2, 4), np.float32)}, r"w is \(2, 3, 'float32'\) in block 0 and \(2, 4, 'float32'\) in block 1"),
        ({"w": np.ones((2, 3), np.float64)}, "float64"),
        ({"v": np.ones((2, 3), np.float32)}, "v is missing in block 0"),
        ({}, "and missing in block 1"),
    ],
)
def test_blocks_of_different_kinds_are_refused(other, message):
    with pytest.raises(ShapeError, match=message):
        stack_blocks({"blocks": [{"w": np.ones((2, 3), np.float32)}, other]})


def test_stacked_arrays_of_different_layers_are_refused_and_adapters_of_some_blocks_are_none():
    with pytest.raises(ShapeError, match="differ in their number of layers"):
        unstack_blocks({"blocks": {"w": np.ones((2, 3)), "b": np.ones((3,))}})
    some = {"blocks": {"1": {"query": {"w": {"a": np.ones((3, 2)), "b": np.ones((2, 3))}}}}}
    assert unstack_blocks(some) == some
    assert stack_blocks(some) == some
