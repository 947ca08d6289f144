"""Parameters as runs have them: unpacked, or as they are stored where one block at a time is unpacked."""

import numpy as np

import glassformer as gf
from glassformer.interpret.packed import as_stored, unpacked
from glassformer.quantized import Quantized
from glassformer.tree import flatten
from kept_runs import packed_tree


def test_only_what_blocks_do_not_hold_and_is_no_block_of_bits_is_widened():
    params = gf.build(gf.DecoderConfig(vocab=7, width=32, heads=2, layers=1, context=8)).init(0)
    half = gf.tree.tree_map(lambda leaf: leaf.astype(np.float16), params)
    stored, plain = flatten(as_stored(half)), flatten(unpacked(half))
    assert {leaf.dtype for leaf in plain.values()} == {np.dtype(np.float32)}
    assert all(leaf.dtype == (np.float16 if "blocks." in name else np.float32) for name, leaf in stored.items())
    packed = packed_tree(params)
    leaves = flatten(packed)
    assert all(leaf is leaves[name] for name, leaf in flatten(as_stored(packed)).items())
    assert any(isinstance(leaf, Quantized) for leaf in leaves.values())
    assert not any(isinstance(leaf, Quantized) for leaf in flatten(unpacked(packed)).values())
