"""A stack of blocks."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from glassformer.core.tree import flatten
from glassformer.layers import (
    AlibiPositions,
    Attention,
    Block,
    FeedForward,
    LayerNorm,
    RelativePositions,
    RotaryPositions,
    Stack,
)
from layers.exact import assert_exact

T, S, D, H = 5, 4, 8, 2
POSITIONS = {
    "none": None,
    "rotary": RotaryPositions(D // H),
    "alibi": AlibiPositions(H),
    "relative": RelativePositions(H, 8, 6, std=1.0),
}
every_kind = pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, T, D))


def stack_of(positions=None, *, layers=2, cross=False, dropout=0.0, norm=True):
    attention = Attention(D, H, dropout=dropout, learned_bias=isinstance(positions, RelativePositions))
    memory, feed_forward = Attention(D, H) if cross else None, FeedForward(D, 6, "gelu_tanh")
    block = Block(attention, feed_forward, LayerNorm(D), memory, dropout=dropout)
    return Stack(block, layers, LayerNorm(D) if norm else None, positions)


def test_it_is_its_blocks_in_turn_and_without_any_its_last_norm(x):
    stack = stack_of(layers=3)
    params = stack.init(0, np.float64)
    y, saved = stack.forward(params, x)
    assert len(saved["blocks"]) == 3
    for own in params["blocks"]:
        x, _ = stack.block.forward(own, x)
    assert_close(y, stack.final_norm.forward(params["final_norm"], x)[0])

    stack = stack_of(layers=0)
    params = stack.init(0, np.float64)
    assert_close(stack.forward(params, x)[0], stack.final_norm.forward(params["final_norm"], x)[0])
    assert_exact(stack, x=x)


def test_its_parameters_are_one_tree_per_block_which_all_give_gradients(x, rng):
    assert stack_of(norm=False).specs().keys() == {"blocks"}
    assert stack_of(POSITIONS["rotary"]).specs().keys() == {"blocks", "final_norm"}
    specs = stack_of(POSITIONS["relative"], layers=3).specs()
    assert specs.keys() == {"blocks", "final_norm", "relative"}
    assert specs["blocks"] == [stack_of().block.specs()] * 3
    drawn = stack_of().init(0, np.float64)["blocks"]
    assert not np.array_equal(drawn[0]["attention"]["query"]["w"], drawn[1]["attention"]["query"]["w"])

    crossed = stack_of(POSITIONS["relative"], cross=True, dropout=0.2)
    mask = {"memory_mask": (np.arange(S) < [[3], [4]])[:, None, :]}
    assert_exact(crossed, x=x, memory=rng.standard_normal((2, S, D)), settings={"key": ops.new_key(1), **mask})


@every_kind
def test_only_positions_tell_one_order_of_the_tokens_from_another(x, positions):
    stack = stack_of(positions)
    params = stack.init(0, np.float64)
    y, backwards = (stack.forward(params, tokens)[0] for tokens in (x, x[:, ::-1]))
    alike = np.allclose(backwards[:, ::-1], y)
    # Distances are the same backwards, so that what counts them alone cannot tell either.
    assert alike == (positions is None or isinstance(positions, AlibiPositions))


def test_given_positions_count_instead_of_places_and_no_two_blocks_drop_the_same(x):
    stack = stack_of(POSITIONS["rotary"])
    params = stack.init(0, np.float64)
    y, _ = stack.forward(params, x)
    assert_close(stack.forward(params, x, positions=np.arange(T) + 7)[0], y)  # only distances matter
    each = np.stack([np.arange(T), 2 * np.arange(T)])
    apart, _ = stack.forward(params, x, positions=each)
    assert_close(apart[0], y[0])
    assert not np.allclose(apart[1], y[1])

    stack = stack_of(dropout=0.5, norm=False)
    _, saved = stack.forward(stack.init(0, np.float64), x, key=ops.new_key(2))
    first, second = (flatten(record) for record in saved["blocks"])
    for name in first:
        if "dropout" in name:
            assert not np.array_equal(first[name], second[name])
    assert any("dropout" in name for name in first)
