"""Gradients of runs with block checkpoints equal those of runs that keep everything, bit for bit."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.tree import flatten
from glassformer.interpret import Logit, Loss, Sum, freeze, gradient_flow, gradients, scale, scale_gradient, watch, zero
from glassformer.interpret.tracing import ShapeDtype
from kept_runs import MODELS, both, packed_tree

pytestmark = pytest.mark.usefixtures("numpy_engine")


def check_same(expected, found):
    """Compare all gradients of two runs, those of values and those of parameters."""
    assert list(found) == list(expected)
    for name in expected:
        assert found[name].tobytes() == expected[name].tobytes(), name
    for name, gradient in flatten(expected.params).items():
        assert found.param(name).tobytes() == gradient.tobytes(), name


@pytest.mark.parametrize("name", MODELS)
def test_gradients_have_the_bits_of_a_run_that_keeps_everything(name):
    run, lean = both(name)
    block = next(own for own in run if own.endswith("blocks.1"))
    check_same(gradients(run), gradients(lean))
    own = [
        scale(f"{block}.attention.attend.weights", 1.5),
        freeze(f"{block}.feed_forward_norm"),
        zero(block, position=1),
    ]
    back = [scale_gradient(f"{block}.attention.output.x", 2.0, head=1)]
    for of in (Loss(), Logit(1), Sum(f"{block}.feed_forward", 2.0)):
        expected, found = (gradients(one.changed(*own), of, back) for one in (run, lean))
        check_same(expected, found)
        assert found.no_effect == expected.no_effect
    assert gradient_flow(gradients(lean)) == gradient_flow(gradients(run))


def test_statistics_of_norms_that_were_changed_send_back_the_same():
    run, lean = both("decoder")
    own = [scale("blocks.1.attention_norm.rrms", 1.1), zero("blocks.0.attention.attend.scores", key=0)]
    check_same(gradients(run.changed(*own)), gradients(lean.changed(*own)))


def test_weights_in_blocks_have_gradients_as_if_they_were_unpacked():
    model = gf.build(gf.DecoderConfig(vocab=7, width=32, heads=2, layers=2, context=8))
    params, tokens = packed_tree(model.init(0)), np.array([[1, 2, 3]])
    runs = [watch(model, params, gf.Batch(tokens, tokens), keep=keep) for keep in ("everything", "block_checkpoints")]
    check_same(*map(gradients, runs))


def test_only_borders_are_kept_on_the_way_back():
    run, lean = both("decoder")
    found = gradients(lean)
    assert all(isinstance(leaf, ShapeDtype) == ("blocks." in name) for name, leaf in flatten(found.params).items())
    kept, everything = (
        sum(
            {
                id(x): x.nbytes for call in one.undoing.values() for x in call.outputs if isinstance(x, np.ndarray)
            }.values()
        )
        for one in (found, gradients(run))
    )
    assert kept < everything / 3
