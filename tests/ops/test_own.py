"""Ops of one's own."""

import numpy as np
import pytest

from glassformer import registry
from glassformer.errors import ConfigError
from glassformer.ops import register_op
from glassformer.proofs import op_cases, prove_case


def cube(x):
    return x**3, x


def cube_backward(dy, x):
    return 3 * dy * x**2


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """Leave nothing registered behind."""
    monkeypatch.setattr(registry, "_own", {family: {} for family in registry.BUILT_IN})


def proved(name):
    """The verdict on the only case of the op."""
    (case,) = (case for case in op_cases() if case.name.partition(",")[0] == name)
    return prove_case(case)


def test_a_pair_of_ones_own_is_proved_beside_all_others():
    register_op("cube", cube, cube_backward, np.array([0.5, -1.5]))
    assert proved("cube").ok


def test_a_wrong_gradient_of_ones_own_is_found():
    register_op("cube", cube, lambda dy, x: 2 * dy * x**2, np.array([0.5, -1.5]))
    assert not proved("cube").ok


def test_an_op_without_an_example_is_refused():
    with pytest.raises(ConfigError, match="the op 'cube' has no example") as caught:
        register_op("cube", cube, cube_backward)
    assert "float64" in caught.value.hint
