"""Gradients through depth, against their definition on each path, and the step of an optimizer."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.tree import flatten
from glassformer.interpret import gradient_flow, gradients, stop, update, watch
from glassformer.training import SGD, AdamW, Lion, Muon


@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("fixture", ["encoder", "decoder", "encoder_decoder"])
def test_the_parts_are_those_of_each_path(fixture, norm_position, request):
    model, _, batch = request.getfixturevalue(fixture)
    model = gf.build(model.config.replace(norm_position=norm_position))
    run = watch(model, model.init(0, np.float64), batch)
    found = gradients(run)
    flows = gradient_flow(found)
    assert [flow.name for flow in flows] == sublayers(run)
    for flow in flows:
        # Without what comes through the sublayer, the stream carries `arriving` alone.
        alone = gradients(run, changes=[stop(flow.name)])
        stream = f"{flow.name}_norm.x" if norm_position == "pre" else _read(flow.name)
        assert np.linalg.norm(found[stream]) == pytest.approx(flow.leaving, rel=1e-12)
        assert np.linalg.norm(alone[stream]) == pytest.approx(flow.arriving, rel=1e-9)
        assert np.linalg.norm(found[stream] - alone[stream]) == pytest.approx(flow.through, rel=1e-9)
        assert 0 <= flow.share <= 1
        assert -1 <= flow.cosine <= 1


def test_without_residuals_all_of_it_comes_through_the_sublayers(decoder):
    model, _, batch = decoder
    model = gf.build(model.config.replace(block="no_residual"))
    flows = gradient_flow(gradients(watch(model, model.init(0, np.float64), batch)))
    assert {(flow.share, flow.cosine, flow.through == flow.leaving > 0) for flow in flows} == {(1, 0, True)}


def sublayers(run):
    parts = ("attention", "cross_attention", "feed_forward")
    names = [name for name in run if name.rpartition(".")[2] in parts and "blocks." in name]
    return sorted(names, key=lambda name: run.addresses[name].number)


def _read(name):
    return f"{name}.query.x" if name.endswith("attention") else f"{name}.up.x"


@pytest.mark.parametrize("optimizer", [SGD(), AdamW(), Lion(), Muon()], ids=lambda one: type(one).__name__)
def test_a_small_step_does_what_it_promises(decoder, optimizer):
    run = watch(*decoder)
    before = {name: x.copy() for name, x in flatten(run.params).items()}
    taken = update(run, optimizer, lr=1e-6)
    assert taken.before == run.loss
    assert taken.after < taken.before
    assert taken.after - taken.before == pytest.approx(taken.promised, rel=1e-2)
    assert {move.name for move in taken.moves} == set(before)
    assert all(np.array_equal(x, before[name]) for name, x in flatten(run.params).items())
    if isinstance(optimizer, SGD):
        assert all(move.downhill == pytest.approx(1.0) for move in taken.moves if move.gradient)


def test_a_step_goes_on_from_a_state(decoder):
    run = watch(*decoder)
    first = update(run, AdamW())
    second = update(watch(run.model, first.params, run.batch), AdamW(), state=first.state)
    assert second.state["step"] == 2
    assert second.after < first.after < run.loss
