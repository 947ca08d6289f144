"""Nested parameters as data."""

from typing import NamedTuple

import numpy as np
import pytest

from compare import assert_close
from glassformer.core import tree
from glassformer.core.errors import ShapeError


class Pair(NamedTuple):
    a: object
    b: object


def example():
    return {
        "blocks": [{"w": np.ones((2, 3)), "b": None}, {"w": np.zeros((2, 3)), "b": np.arange(3.0)}],
        "pair": Pair(np.ones(2), (np.ones(1), np.ones(()))),
    }


NAMES = ["blocks.0.w", "blocks.1.w", "blocks.1.b", "pair.a", "pair.b.0", "pair.b.1"]


def test_leaves_have_dotted_names_in_order_and_a_name_may_stop_at_a_part():
    assert [name for name, _ in tree.named_leaves(example())] == NAMES
    assert list(tree.flatten(example())) == NAMES
    assert next(tree.named_leaves(np.ones(2)))[0] == ""
    params = example()
    assert tree.leaf(params, "blocks.1") is params["blocks"][1]


def test_mapping_keeps_the_structure_and_none_and_gives_every_leaf_its_dotted_name():
    doubled = tree.tree_map(lambda x: 2 * x, example())
    assert isinstance(doubled["pair"], Pair)
    assert isinstance(doubled["pair"].b, tuple)
    assert doubled["blocks"][0]["b"] is None
    assert_close(doubled["blocks"][1]["b"], [0, 2, 4])

    named = tree.map_named(lambda name, x: (name, x.shape), example())
    assert named["blocks"][1]["b"] == ("blocks.1.b", (3,))
    assert named["pair"].b[1] == ("pair.b.1", ())
    assert named["blocks"][0]["b"] is None
    assert tree.map_named(lambda name, x: name, np.ones(2)) == ""


def test_trees_are_rebuilt_from_leaves_by_name_in_order():
    like = {"head": {}, "blocks": [{"w": 0, "b": None}], "pair": Pair(1, 2)}
    leaves = {"pair.b": "b", "pair.a": "a", "blocks.0.w": "w", "more": "?"}
    assert tree.rebuilt(like, leaves) == {"head": {}, "blocks": [{"w": "w", "b": None}], "pair": Pair("a", "b")}
    params = [{"w": np.full(1, i)} for i in range(12)]
    assert [int(part["w"][0]) for part in tree.unflatten(tree.flatten(params))] == list(range(12))
    assert tree.unflatten({"0": 1, "2": 3}) == {"0": 1, "2": 3}

    params = {"blocks": [{"w": np.ones(1)}, {"w": np.zeros(1)}], "head": {"b": np.ones(2)}}
    again = tree.unflatten(tree.flatten(params))
    assert isinstance(again["blocks"], list)
    assert tree.flatten(again).keys() == tree.flatten(params).keys()
    assert again["blocks"][1]["w"] is params["blocks"][1]["w"]


def test_mapping_over_several_trees_pairs_their_leaves_or_refuses_them_by_name():
    total = tree.add(example(), example())
    assert_close(total["blocks"][0]["w"], np.full((2, 3), 2.0))
    differences = tree.tree_map(lambda x, y, z: x + y - z, example(), example(), total)
    assert not any(np.any(x) for _, x in tree.named_leaves(differences))
    with pytest.raises(ShapeError, match=r"one has no part 'b'"):
        tree.add({"a": np.ones(1), "b": np.ones(1)}, {"a": np.ones(1)})
    with pytest.raises(ValueError, match="argument 2"):
        tree.add([np.ones(1), np.ones(1)], [np.ones(1)])


@pytest.mark.parametrize("name", NAMES)
def test_a_leaf_is_found_by_its_name(name):
    params = example()
    assert tree.leaf(params, name) is tree.flatten(params)[name]


def test_counting_needs_shapes_alone_and_others_than_expected_are_refused():
    class Shape:
        shape = (10**6, 10**7)

    assert tree.count(example()) == 6 + 6 + 3 + 2 + 1 + 1
    assert tree.count([Shape(), Shape()]) == 2 * 10**13

    want = {"a": np.ones(2), "b": np.ones(3)}
    tree.check_same({"a": np.zeros(2), "b": np.zeros(3)}, want)
    with pytest.raises(ShapeError, match=r"missing b, unexpected c(?s:.*)hint: build them with init"):
        tree.check_same({"a": np.ones(2), "c": np.ones(3)}, want)
    with pytest.raises(ShapeError, match=r"b has shape \(4,\), the model expects \(3,\)(?s:.*)hint: check the config"):
        tree.check_same({"a": np.ones(2), "b": np.ones(4)}, want)
    many = {f"p{i}": np.ones(1) for i in range(6)}
    with pytest.raises(ShapeError, match=r"missing p0, p1, p2, p3 and 2 more, unexpected nothing"):
        tree.check_same({}, many)


def test_trees_move_between_libraries_and_stay_in_theirs(jax):
    moved = tree.like(example(), jax.numpy)
    assert all(isinstance(x, jax.Array) for _, x in tree.named_leaves(moved))
    back = tree.like(moved, np)
    for name, x in tree.named_leaves(example()):
        assert_close(tree.leaf(back, name), x, 0)

    assert tree.library({"a": None, "b": jax.numpy.ones(1)}) is jax.numpy
    assert tree.library(example()) is np
    assert tree.library({}) is np

    x = jax.numpy.ones((2, 3), dtype="bfloat16")
    zeros = tree.zeros_like(x)
    assert isinstance(zeros, jax.Array)
    assert (zeros.shape, zeros.dtype) == (x.shape, x.dtype)
    assert tree.zeros_like(np.ones(2, dtype=np.float32)).dtype == np.float32
