"""Parts of one's own: registered by a line, then known to configs and refused where they do not fit."""

import contextlib

import numpy as np
import pytest

import glassformer as gf
from glassformer.core import registry
from glassformer.core.errors import ConfigError, WeightsError
from glassformer.layers import LayerNorm
from glassformer.text import ByteTokenizer
from runs import command

SIZES = {"vocab": 7, "width": 8, "heads": 2, "layers": 2, "context": 8}


def square(x):
    return x * x, x


def square_backward(dy, x):
    return 2 * x * dy


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


@pytest.mark.parametrize("setting", ["activation", "norm", "tokenizer"])
def test_a_model_whose_part_is_registered_elsewhere_says_how_to_register_it_here(setting, tmp_path):
    if setting == "tokenizer":

        @gf.register_tokenizer
        class Mine(ByteTokenizer):
            kind = "mine"

        chosen, tokenizer, line = {}, Mine(), "gf.register_tokenizer(cls)"
    else:
        gf.register_activation("mine", square, square_backward)
        gf.register_norm("mine", lambda width, eps: LayerNorm(width, eps))
        chosen, tokenizer = {setting: "mine"}, ByteTokenizer()
        line = f'gf.register_{setting}("mine", {registry.PARTS[setting]})'
    config = gf.DecoderConfig(**{**SIZES, "vocab": tokenizer.size}, **chosen)
    saved = gf.save(gf.TrainedModel(config, gf.build(config).init(0), tokenizer=tokenizer), tmp_path / "saved")
    assert gf.load(saved).config == config
    for parts in registry._own.values():
        parts.clear()
    for read in (gf.load, lambda place: command("generate", place, "a")):
        with pytest.raises(WeightsError) if read is gf.load else contextlib.nullcontext() as caught:
            said = read(saved)
        text = str(caught.value) if read is gf.load else said.err
        assert f"saved has the {setting} 'mine', which is not built in: Python code registered it, but not here" in text
        assert f"first run that code again: {line}; commands know it" in text


def test_positions_that_are_none_and_ops_without_an_example_are_refused():
    gf.register_positions("nowhere", lambda config, bidirectional: np.zeros(3))
    model = gf.build(gf.DecoderConfig(**SIZES, positions="nowhere"))
    with pytest.raises(ConfigError, match="the positions 'nowhere' are"):
        model.init(0)
    with pytest.raises(ConfigError, match="the op 'square' has no example") as caught:
        gf.register_op("square", square, square_backward)
    assert "float64" in caught.value.hint
