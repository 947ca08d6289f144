"""Cards of runs with block checkpoints equal those of runs that keep everything."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.tree import flatten, tree_map
from glassformer.interpret import Cards, Logit, add_gradient, gradients, scale, update, watch, zero
from glassformer.interpret.graph import materialize_around
from glassformer.interpret.tracing import ShapeDtype
from glassformer.training.optimizers import OPTIMIZERS
from kept_runs import MODELS, both, packed_tree

pytestmark = pytest.mark.usefixtures("numpy_engine")
PACKED = gf.DecoderConfig(vocab=7, width=32, heads=2, layers=2, context=8)


def compare(run, lean, rng, count, of=None, changes=()):
    """Compare the cards of random entries of everything."""
    whole, part = (
        Cards(one, *([] if of is None else [of]), found=gradients(one, *([] if of is None else [of]), changes=changes))
        for one in (run, lean)
    )
    assert part.names() == whole.names()
    for name in rng.permutation(whole.names())[:count]:
        shape = whole.array(name).shape
        index = tuple(int(rng.integers(size)) for size in shape)
        assert part.card(name, index).to_dict() == whole.card(name, index).to_dict(), name
        assert part.has_gradient(name) == whole.has_gradient(name)
        if whole.has_gradient(name):
            expected = whole.card(name, index, gradient=True).to_dict()
            assert part.card(name, index, gradient=True).to_dict() == expected, name


@pytest.mark.parametrize("name", MODELS)
def test_cards_say_the_same(name, rng):
    run, lean = both(name)
    compare(run, lean, rng, count=15)


def test_cards_of_changed_runs_say_the_same(rng):
    run, lean = both("decoder")
    own = [zero("blocks.1.attention.output.x", head=1), scale("blocks.2", 0.5), scale("blocks.0.attention.query.w", 2)]
    back = [add_gradient("blocks.1.feed_forward", 0.25)]
    compare(run.changed(*own), lean.changed(*own), rng, 15, Logit(2), back)


def test_cards_of_weights_in_blocks_say_the_same(rng):
    run, lean = both(PACKED, packed_tree(gf.build(PACKED).init(0)))
    compare(run, lean, rng, count=20)


def test_only_the_blocks_around_a_value_are_there():
    _, lean = both("decoder")
    for name, blocks in (
        ("blocks.1.attention", {1}),
        ("blocks.1", {1, 2}),
        ("blocks.0.feed_forward.up.w", {0}),
        ("logits", set()),
        ("final_norm.x", {2}),
    ):
        near = materialize_around(lean, name)
        here = {n for n in range(3) if not isinstance(near.spec(f"blocks.{n}.attention"), ShapeDtype)}
        assert here == blocks, name


@pytest.mark.parametrize("name", MODELS)
def test_proofs_are_the_same(name):
    run, lean = (in_single(one) for one in both(name))
    stack = "decoder." if name == "encoder-decoder" else ""
    for one, index in (("blocks.1.attention", (1, 2, 3)), ("blocks.2.feed_forward.up.w", (2, 3))):
        found = Cards(lean).prove(stack + one, index)
        assert found == Cards(run).prove(stack + one, index)
        assert found.difference < 1e-9


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_steps_of_an_optimizer_are_the_same(optimizer):
    run, lean = both(PACKED, packed_tree(gf.build(PACKED).init(0)))
    expected, found = (update(one, OPTIMIZERS[optimizer](), lr=0.01) for one in (run, lean))
    assert found.after == expected.after < expected.before
    assert found.moves == expected.moves
    new = flatten(expected.params)
    assert all(leaf.tobytes() == new[name].tobytes() for name, leaf in flatten(found.params).items())


def in_single(run):
    """The same run in float32."""
    return watch(run.model, tree_map(lambda x: x.astype(np.float32), run.params), run.batch, keep=run.keeps)
