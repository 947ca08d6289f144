"""Runs that keep block checkpoints against runs that keep everything: the same names, the same bits, little memory."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from glassformer.core.quantized import Quantized
from glassformer.core.tree import flatten
from glassformer.interpret import add, batched_interventions, freeze, put, scale, watch, zero
from glassformer.interpret.stream import points
from glassformer.interpret.tracing import ShapeDtype
from kept_runs import MODELS, both, packed_tree

pytestmark = pytest.mark.usefixtures("numpy_engine")


def changes(run, rng, count):
    """Changes of any values, inside blocks and outside."""
    kinds = [
        zero,
        freeze,
        lambda name: scale(name, 1.5),
        lambda name: add(name, 0.25, example=1),
        lambda name: put(name, 1),
    ]
    drawn = [str(name) for name in rng.choice([name for name in run if not name.endswith(".bias")], count)]
    return [kinds[rng.integers(len(kinds))](name) for name in drawn]


def inside(run):
    """The names of what is not kept."""
    return [name for name in run if isinstance(run.spec(name), ShapeDtype)]


@pytest.mark.parametrize("name", MODELS)
def test_names_shapes_and_bits_are_those_of_a_run_that_keeps_everything(name, rng):
    run, lean = both(name)
    assert list(lean) == list(run)
    assert lean.addresses == run.addresses
    assert lean.keeps == "block_checkpoints"
    assert run.keeps == "everything"
    assert points(lean) == points(run)
    for count in (0, 1, 3):
        own = changes(run, rng, count)
        expected, found = run.changed(*own), lean.changed(*own)
        assert found.loss == expected.loss
        assert found.logits.tobytes() == expected.logits.tobytes()
        assert len(inside(found)) > len(found) / 2
        for one in run:
            assert found.spec(one).shape == expected[one].shape
            assert found.spec(one).dtype == expected[one].dtype
            assert found[one].tobytes() == expected[one].tobytes(), (one, own)


def test_changes_of_parameters_and_of_the_batch_keep_borders_too(rng):
    run, lean = both("decoder")
    own = [
        zero("blocks.1.attention.query.w", row=2),
        put("tokens", 3, position=1),
        zero("blocks.1.attention", head=None),
    ]
    expected, found = run.changed(*own), lean.changed(*own)
    assert found.keeps == "block_checkpoints"
    assert all(found[name].tobytes() == expected[name].tobytes() for name in run)


def test_of_the_blocks_asked_for_only_the_last_stay(monkeypatch):
    run, _ = both("decoder")
    roomy = watch(run.model, run.params, run.batch, keep="block_checkpoints")
    assert all(roomy[name] is roomy[name] for name in roomy if not name.endswith("mask"))
    assert len(roomy.inside) == 3
    monkeypatch.setattr("glassformer.interpret.block_checkpoints.INSIDE", 0)
    lean = watch(run.model, run.params, run.batch, keep="block_checkpoints")
    kept, everything = (
        sum({id(x): x.nbytes for call in one.calls for x in call.outputs if isinstance(x, np.ndarray)}.values())
        for one in (lean, run)
    )
    assert kept < everything / 5
    changed = lean.changed(zero("blocks.1.feed_forward"))
    for one in (lean, changed, lean):
        for name in inside(one):
            one[name]
            assert len(lean.inside) == 1


def test_a_block_that_no_change_reached_is_run_again_once_for_both_runs():
    _, lean = both("decoder")
    changed = lean.changed(zero("blocks.2.feed_forward"))
    assert changed["blocks.1.attention.attend.weights"] is lean["blocks.1.attention.attend.weights"]
    assert changed["blocks.2.attention.attend.weights"] is not lean["blocks.2.attention.attend.weights"]
    assert changed["blocks.1"] is lean["blocks.1"] is not None  # a border


def test_weights_in_blocks_stay_packed_and_give_the_bits_of_unpacked_ones():
    config = gf.DecoderConfig(vocab=7, width=32, heads=2, layers=2, context=8)
    params = gf.build(config).init(0)
    packed = packed_tree(params)
    run, lean = both(config, packed)
    assert any(isinstance(leaf, Quantized) for leaf in flatten(lean.params).values())
    own = [zero("blocks.1.attention.query.w", row=2), scale("blocks.0.attention.attend.scores", 2.0)]
    for expected, found in ((run, lean), (run.changed(*own), lean.changed(*own))):
        assert all(found[name].tobytes() == expected[name].tobytes() for name in run)
    variants = [[zero("blocks.1.attention.output.x", head=head)] for head in range(2)]
    assert np.array_equal(batched_interventions(lean, variants), batched_interventions(run, variants))


def test_what_a_run_cannot_keep_is_refused():
    run, _ = both("decoder")
    with pytest.raises(ConfigError, match="a run cannot keep 'border'"):
        watch(run.model, run.params, run.batch, keep="border")
