"""Steps taken on paper."""

import numpy as np
import pytest

from glassformer.core.tree import flatten
from glassformer.interpret import update, watch
from glassformer.training import SGD, AdamW, Lion, Muon


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
