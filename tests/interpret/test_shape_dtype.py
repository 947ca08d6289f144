"""Placeholders: what is left of arrays, in structures in which identity still tells."""

from typing import NamedTuple

import numpy as np

from glassformer.interpret.shape_dtype import Placeholders, ShapeDtype


class Pair(NamedTuple):
    x: object
    y: object


def test_structure_and_identity_stay_and_numbers_go():
    x, y = np.zeros((2, 3), np.float32), np.ones(4)
    inner = [x, y]
    outlines = Placeholders()
    outlines.keep(y, y)
    found = outlines.of({"pair": Pair(x, inner), "again": inner, "word": "text", "none": None})
    assert isinstance(found["pair"].x, ShapeDtype)
    assert found["pair"].x is found["again"][0]
    assert found["pair"].y is found["again"]
    assert found["again"][1] is y
    assert (found["word"], found["none"]) == ("text", None)
    left = found["pair"].x
    assert (left.shape, left.dtype, left.ndim, left.nbytes, len(left)) == ((2, 3), np.float32, 2, 24, 2)


def test_something_else_of_the_same_structure_may_stand_for_a_thing():
    unpacked, stored = {"w": np.zeros(3), "inner": [np.ones(2)]}, {"w": "packed", "inner": ["packed too"]}
    outlines = Placeholders()
    outlines.keep(unpacked, stored)
    assert outlines.of(unpacked) is stored
    assert outlines.of((unpacked["w"], unpacked["inner"])) == ("packed", ["packed too"])
