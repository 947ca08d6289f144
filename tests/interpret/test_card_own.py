"""Cards of models with parts of one's own: what is known of them is said, and what is not is said, too."""

from dataclasses import dataclass

import numpy as np
import pytest

import glassformer as gf
from glassformer import ops
from glassformer.core.dispatch import dispatched
from glassformer.core.errors import ConfigError
from glassformer.interpret import Cards, ablate_heads, attention_maps, evaluate, layer_statistics, watch
from glassformer.interpret.stream import sublayers
from glassformer.layers import Block, Layer
from own_parts import BLOCKS, LearnedSlope, ScaleNorm, softplus, softplus_backward, square, square_backward

pytestmark = pytest.mark.usefixtures("numpy_engine")

SIZES = {"vocab": 11, "width": 8, "heads": 2, "layers": 2, "context": 8, "feed_forward": 12}


@dispatched
def doubled(x):
    """y = 2 x."""
    return 2 * x, ()


@dispatched
def doubled_backward(dy, saved):
    """dx = 2 dy."""
    return 2 * dy


def same(x):
    return x, x


def same_backward(dy, saved):
    return dy


@dataclass(frozen=True)
class Dropped(Block):
    """A block that doubles its input and drops a part of it, always the same."""

    def forward(self, params, x, *arguments, **settings):
        x, doubled_saved = doubled(x)
        x, keep = ops.dropout(x, ops.new_key(3), rate=0.25)
        y, saved = Block.forward(self, params, x, *arguments, **settings)
        return y, {"inside": saved, "keep": keep, "doubled": doubled_saved}

    def backward(self, params, saved, dy):
        read, grads = Block.backward(self, params, saved["inside"], dy)
        dx = ops.dropout_backward(read.x, saved["keep"], rate=0.25)
        return read._replace(x=doubled_backward(dx, saved["doubled"])), grads


@dataclass(frozen=True)
class Scaled(Block):
    """A block that adds half of what a block makes to its input, by ops alone."""

    def forward(self, params, x, *arguments, **settings):
        y, saved = Block.forward(self, params, x, *arguments, **settings)
        half, _ = ops.scale(y, factor=0.5)
        y, _ = ops.add(x, half)
        return y, {**saved, "output": y}

    def backward(self, params, saved, dy):
        dx, dhalf = ops.add_backward(dy, None)
        inside = {**saved, "output": None}
        read, grads = Block.backward(self, params, inside, ops.scale_backward(dhalf, None, factor=0.5))
        return read._replace(x=dx + read.x), grads


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(gf.core.registry, "_own", {family: {} for family in gf.core.registry.BUILT_IN})
    gf.register_activation("square", square, square_backward)
    gf.register_activation("softplus", softplus, softplus_backward)
    gf.register_activation("size", lambda x: (np.abs(x), x), lambda dy, x: dy * np.sign(x))
    gf.register_norm("scale", ScaleNorm)
    gf.register_positions("slopes", lambda config, bidirectional: LearnedSlope(config.heads))
    gf.register_block("dropped", Dropped)
    for name, block in BLOCKS.items():
        gf.register_block(name, block)
    yield
    for name in ("same", "square", "softplus", "size"):
        ops.ACTIVATIONS.pop(name, None)


def cards_of(**settings):
    model = gf.build(gf.DecoderConfig(**SIZES, **settings))
    ids = (np.arange(6) + np.arange(2)[:, None]) % 11
    return Cards(watch(model, model.init(0, np.float64), gf.Batch(ids[:, :-1], ids[:, 1:])))


def check(cards, rng):
    """Compute every name once more; return the names that have no formula."""
    unknown = []
    for name in cards.names():
        for gradient in (False, True):
            if gradient and not cards.has_gradient(name):
                continue
            index = tuple(int(rng.integers(size)) for size in cards.array(name).shape)
            found = cards.card(name, index, gradient=gradient)
            if found.made is None:
                unknown.append(name)
            else:
                assert abs(evaluate(found) - found.value) <= 1e-12 * max(found.made.scale(), 1e-30), (name, gradient)
    return unknown


def test_an_op_that_hands_back_its_own_argument_made_nothing(rng):
    gf.register_activation("same", same, same_backward)
    cards = cards_of(activation="same")
    assert check(cards, rng) == []
    found = cards.card("blocks.0.feed_forward.up", (0, 1, 2))
    assert (found.op, found.feeds) == ("ops.linear", ["blocks.0.feed_forward"])
    assert cards.card("blocks.0.feed_forward.up", (0, 1, 2), gradient=True).op == "ops.linear_backward"


@pytest.mark.parametrize("activation", ["square", "softplus", "size"])
@pytest.mark.parametrize("gated", [False, True])
def test_an_activation_of_ones_own_is_a_number_and_a_complex_step(activation, gated, rng):
    cards = cards_of(activation=activation, gated=gated)
    assert check(cards, rng) == []
    found = cards.card("blocks.0.feed_forward.down.x", (0, 1, 2))
    role = "gate" if gated else "x"
    assert f"{activation}({role}[n,t,f])" in found.formula
    back = cards.card(f"blocks.0.feed_forward.{'gate' if gated else 'up'}", (0, 1, 2), gradient=True)
    assert f"{activation}′({role}[n,t,f])" in back.formula


def test_a_norm_of_ones_own_is_named_and_has_no_formula(rng):
    cards = cards_of(norm="scale")
    unknown = check(cards, rng)
    assert "final_norm" in unknown
    assert "blocks.0" not in unknown
    found = cards.card("final_norm", (0, 1, 2))
    assert found.op == "ScaleNorm.forward"
    assert (found.formula, found.filled, found.terms) == (None, None, [])
    assert found.note == "computed by ScaleNorm.forward, which has no formula here"
    assert found.read == ["blocks.1"]
    assert found.source["forward"].file == "own_parts.py"
    with pytest.raises(ConfigError, match="the card of final_norm has no formula"):
        evaluate(found)
    back = cards.card("blocks.1", (0, 1, 2), gradient=True)
    assert back.formula == "d0 = what ScaleNorm.backward returned"
    assert evaluate(back) == back.value


class Doubled(Layer):
    def specs(self):
        return {}

    def forward(self, params, x):
        return 2 * x, {"x": x}

    def backward(self, params, saved, dy):
        return 2 * dy, {}


class Inherited(Doubled):
    pass


def test_a_norm_that_a_function_makes_and_that_inherits_its_methods_is_named(rng):
    gf.register_norm("doubled", lambda width, eps: Inherited())
    assert "final_norm" in check(cards_of(norm="doubled"), rng)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_ones_own_may_have_the_name_of_another(block, rng):
    cards = cards_of(block=block)
    unknown = check(cards, rng)
    assert all(name.startswith("blocks") or name == "final_norm.x" for name in unknown)


def test_positions_of_ones_own_reach_the_scores(rng):
    cards = cards_of(positions="slopes")
    assert {name.rpartition(".")[2] for name in check(cards, rng)} == {"bias", "positions"}
    found = cards.card("blocks.1.attention.attend.scores", (0, 1, 2, 1))
    assert found.formula.endswith(" + bias[h,t,s]")


def test_dropout_and_an_op_of_ones_own(rng):
    cards = cards_of(block="dropped")
    check(cards, rng)
    stream = "blocks.0.attention_norm.x"
    found = cards.card(stream, (0, 1, 2))
    assert found.formula == "y[n,t,j] = keep[n,t,j] / (1 − rate) · x[n,t,j]"
    kept = cards.run[stream] != 0
    assert 0 < kept.mean() < 1
    back = cards.card("embedding", (0, 1, 2), gradient=True)
    assert back.op == "ops.doubled_backward"


def test_the_inside_of_blocks_of_ones_own_is_found_and_has_cards(rng):
    run = cards_of(block="dropped").run
    assert [one.name for one in sublayers(run)][:2] == ["blocks.0.attention", "blocks.0.feed_forward"]
    assert len(ablate_heads(run).parts) == 4
    assert attention_maps(run)["decoder"].weights.shape == (2, 2, 5, 5)
    assert len(layer_statistics(run)) == 3

    gf.register_block("scaled", Scaled)
    cards = cards_of(block="scaled")
    assert check(cards, rng) == []
    assert cards.card("blocks.0", (0, 1, 2)).formula == "y[n,t,j] = x[n,t,j] + h[n,t,j]"
