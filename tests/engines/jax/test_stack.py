"""Blocks as one loop, and blocks that run again: the numbers of blocks one after the other that keep everything."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.core.dispatch import use_engine
from glassformer.core.errors import ConfigError
from glassformer.core.tree import flatten, tree_map
from glassformer.engines.mesh.sharding import stack_blocks
from glassformer.layers.stack import RematInputs
from glassformer.models import build
from glassformer.proofs.gradient import relative_error
from proof_cases import MODEL_CASES
from runs import assert_same_bits

LIMIT = 1e-11
CASES = {case.name: case for case in MODEL_CASES if case.has_loss}
COMPILED = {
    "encoder (dropout), cls, smoothing, class weights": ("loop, again", "list, again"),
    "decoder (Llama)": ("loop",),
    "encoder-decoder (T5)": ("loop, again",),  # whose blocks share a relative bias and a memory
}
"""How blocks run: as a loop, as one whose blocks run again, and as a list whose blocks run again."""
TRACED = [
    "encoder (BERT), dropout",
    "decoder (positions), ALiBi",
    "decoder (norms), post",
    "decoder (attention), tiled, relative",
    "encoder-decoder (original)",
]


def with_remat(case):
    return replace(case, model=build(case.model.config, case.model.execution, remat=True))


def value_and_gradients(case):
    return case.model.loss_and_grads(case.params, case.batch, **case.settings)


@pytest.mark.parametrize("engine", ["numpy", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_blocks_that_run_again_give_the_same_bits(name, engine):
    with use_engine(engine):
        loss, grads = value_and_gradients(CASES[name])
        again, same = value_and_gradients(with_remat(CASES[name]))
    assert again == loss
    assert_same_bits(same, grads)


def test_only_what_a_block_read_is_kept():
    case = with_remat(CASES["decoder (GPT-2)"])
    _, saved = case.model.forward(case.params, case.batch.tokens)
    assert [type(record) for record in saved["blocks"]] == [RematInputs] * case.model.config.layers
    assert saved["blocks"][0].x is saved["embedding"]["output"]


@pytest.mark.parametrize("name", COMPILED)
def test_a_loop_over_blocks_equals_numpy(jax, name):
    case = CASES[name]
    assert case.model.config.layers >= 2
    arrays = {key: x for key, x in case.settings.items() if hasattr(x, "shape")}

    def everything(params, batch, settings):
        """The loss and the gradients of every way, in one traced function."""
        traced = replace(case, batch=batch, settings={**case.settings, **settings})
        ways = {
            way: replace(traced, params=stack_blocks(params) if way.startswith("loop") else params)
            for way in COMPILED[name]
        }
        return {
            way: value_and_gradients(with_remat(one) if way.endswith("again") else one) for way, one in ways.items()
        }

    ways = jax.jit(everything)(case.params, case.batch, arrays)
    loss, grads = value_and_gradients(case)
    assert ways.keys() == set(COMPILED[name])
    for way, found in ways.items():
        want = stack_blocks(grads) if way.startswith("loop") else grads
        assert relative_error(found[0], loss) <= LIMIT
        actual, expected = flatten(found[1]), flatten(want)
        assert actual.keys() == expected.keys()
        for parameter, x in expected.items():
            error = relative_error(actual[parameter], x)
            assert error <= LIMIT, f"{parameter}: error {error:.3g}"


@pytest.mark.parametrize("name", TRACED)
def test_a_loop_over_blocks_in_float32_stays_float32(jax, name):
    case = CASES[name].within(jax.numpy)
    params = tree_map(lambda x: jax.ShapeDtypeStruct(x.shape, np.float32), stack_blocks(case.params))
    loss, grads = jax.eval_shape(lambda p: case.model.loss_and_grads(p, case.batch, **case.settings), params)
    assert loss.dtype == np.float32
    facts = [{key: (x.shape, x.dtype) for key, x in flatten(tree).items()} for tree in (grads, params)]
    assert facts[0] == facts[1]


def test_numpy_says_that_it_cannot_loop_over_stacked_blocks():
    case = CASES["decoder (GPT-2)"]
    message = (
        r"parameters of the blocks are stacked, which these arrays cannot run(.|\n)*hint: give the blocks as a list"
    )
    with pytest.raises(ConfigError, match=message):
        case.model.forward(stack_blocks(case.params), case.batch.tokens)
