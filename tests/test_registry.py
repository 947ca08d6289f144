"""Parts of one's own: registered by a line, then known to configs and refused where they do not fit."""

import numpy as np
import pytest

import glassformer as gf
from glassformer import registry
from glassformer.errors import ConfigError

SIZES = {"vocab": 7, "width": 8, "heads": 2, "layers": 2, "context": 8}


def square(x):
    return x * x, x


def square_backward(dy, x):
    return 2 * x * dy


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """Leave nothing registered behind."""
    monkeypatch.setattr(registry, "_own", {family: {} for family in registry.BUILT_IN})


def test_a_name_that_nobody_registered_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match=r"activation is 'squared'(.|\n)*hint: known: gelu, gelu_tanh, relu, silu"):
        gf.DecoderConfig(**SIZES, activation="squared")


@pytest.mark.parametrize(("name", "why"), [("gelu", "built-in"), ("two words", "the name of a part"), (3, "the name")])
def test_names_that_cannot_be_taken_are_refused(name, why):
    with pytest.raises(ConfigError, match=why):
        gf.register_activation(name, square, square_backward)


def test_the_same_name_again_replaces_a_part_of_ones_own():
    registry.register("norm", "mine", 1)
    registry.register("norm", "mine", 2)
    assert registry.find("norm", "mine") == 2
    assert registry.known("norm") == ("layer", "rms", "none", "mine")


@pytest.mark.parametrize(
    ("register", "wrong"),
    [(gf.register_norm, 3), (gf.register_positions, None), (gf.register_block, object), (gf.register_block, 3)],
)
def test_what_is_no_such_part_is_refused(register, wrong):
    with pytest.raises(ConfigError, match="hint"):
        register("mine", wrong)


def test_positions_that_are_none_are_refused_when_a_model_is_built():
    gf.register_positions("nowhere", lambda config, bidirectional: np.zeros(3))
    model = gf.build(gf.DecoderConfig(**SIZES, positions="nowhere"))
    with pytest.raises(ConfigError, match="the positions 'nowhere' are"):
        model.init(0)
