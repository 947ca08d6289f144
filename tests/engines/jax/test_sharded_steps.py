"""Sharded training does what the plan says: rounded weights travel, wide gradients, and no host holds the whole."""

import math
from pathlib import Path

import numpy as np
import pytest

from devices import answer, start
from engines.jax.step_on_devices import BATCH, BEGUN, COMPILED, MODEL
from glassformer.core.tree import flatten
from glassformer.engines.mesh.plan import plan
from glassformer.models import build

HERE = Path(__file__).parent
SPREAD = {name: execution for name, execution in COMPILED.items() if execution.mesh.size > 1}
TYPES = {"bfloat16": "bf16", "float16": "f16"}


@pytest.fixture(scope="module")
def found():
    return answer(start(HERE / "step_on_devices.py", devices=8))


def messages(found, name, operation):
    return [sent for sent in found["compiled"][name]["messages"] if sent["operation"] == operation]


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPREAD)
def test_weights_are_rounded_before_they_are_gathered(found, name):
    gathers = messages(found, name, "all-gather")
    assert {sent["type"] for sent in gathers} == {TYPES[COMPILED[name].precision]}
    assert all(len(sent["shape"]) == 2 for sent in gathers)


@pytest.mark.parametrize("name", SPREAD)
def test_as_many_bytes_are_gathered_as_the_plan_counts(found, name):
    execution = COMPILED[name]
    planned = plan(MODEL, execution.mesh, batch=BATCH, precision=execution.precision, remat=execution.remat)
    expected = sum(one.size * one.times for one in planned.messages if one.operation == "all-gather")
    gathered = sum(
        2 * math.prod(sent["shape"]) * (1 if sent["outside"] else MODEL.layers)
        for sent in messages(found, name, "all-gather")
    )
    assert gathered == expected


@pytest.mark.parametrize("name", SPREAD)
def test_gradients_of_parameters_are_added_up_in_float32(found, name):
    sums = messages(found, name, "all-reduce")
    assert {sent["type"] for sent in sums if len(sent["shape"]) < 3} == {"f32"}
    tensor = COMPILED[name].mesh.tensor
    for matrix in ([32, 32 // tensor], [32, 48 // tensor], [48 // tensor, 32]):
        assert any(sent["shape"] == matrix and not sent["outside"] for sent in sums), matrix
    others = {operation: messages(found, name, operation) for operation in ("all-to-all", "collective-permute")}
    assert not any(others.values())


def test_as_many_bytes_of_gradients_are_added_up_as_the_plan_counts(found):
    execution = COMPILED["fsdp"]
    planned = plan(MODEL, execution.mesh, batch=BATCH, precision=execution.precision).messages
    expected = sum(one.size * one.times for one in planned if one.operation != "all-gather")
    added = sum(
        4 * math.prod(sent["shape"]) * (1 if sent["outside"] else MODEL.layers)
        for sent in messages(found, "fsdp", "all-reduce")
        if sent["shape"]  # the loss and the norm of the gradients are single numbers
    )
    assert added == expected


def test_activations_are_added_up_in_half_precision_and_looked_up_rows_in_float32(found):
    sums = messages(found, "all", "all-reduce")
    vectors = [(sent["type"], sent["outside"]) for sent in sums if sent["shape"] == [4, 16, 32]]
    assert vectors.count(("f32", True)) == vectors.count(("f16", True)) == 1  # the lookup; before the head
    assert ("f32", False) not in vectors
    assert not [sent for sent in messages(found, "fsdp", "all-reduce") if len(sent["shape"]) == 3]


@pytest.mark.parametrize("name", SPREAD)
def test_half_precision_on_a_mesh_stays_close_to_one_device(found, name):
    losses, alone = (np.array(found["compiled"][which]["losses"]) for which in (name, "one"))
    assert losses[-1] < losses[0] - 0.3
    np.testing.assert_allclose(losses, alone, rtol=2e-3)


# --- the first state -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BEGUN)
def test_a_first_state_is_that_of_the_host_bit_for_bit_and_lies_where_it_should(found, name):
    begun = found["begun"][name]
    assert begun["different"] == []
    assert begun["names"] == [True, True]


@pytest.mark.parametrize("name", BEGUN)
def test_a_host_holds_one_parameter_at_a_time_and_nothing_of_the_optimizer(found, name):
    begun, shapes = found["begun"][name], list(flatten(build(BEGUN[name][0]).specs()).values())
    all_bytes, zeros = begun["otherwise"]  # on the host alone
    assert all_bytes == sum(4 * math.prod(spec.shape) for spec in shapes)
    assert zeros > 0
    assert begun["zeros"] == 0
    # JAX may let go of one only when it is given the next.
    assert begun["held"] <= 2 * max(4 * math.prod(spec.shape) for spec in shapes) < all_bytes
