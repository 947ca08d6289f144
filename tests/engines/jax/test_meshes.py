"""Training on eight devices: the losses of one, arrays where the rules say, and the messages that the plan counts."""

import math
from pathlib import Path

import numpy as np
import pytest

from devices import answer, start
from engines.jax.step_on_devices import BATCH, BEGUN, COMPILED, MODEL
from engines.jax.train_on_devices import HALFWAY, MEASURED, OTHER, RUNS, STEPS
from glassformer.config import config_from_dict
from glassformer.core.dispatch import use_engine
from glassformer.core.tree import flatten
from glassformer.engines.mesh.plan import plan
from glassformer.engines.mesh.rules import axes_for
from glassformer.models import build
from glassformer.training.evaluate import evaluate
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import Trainer
from glassformer.training.trainer import start as first_state

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return answer(start(HERE / "train_on_devices.py", tmp_path_factory.mktemp("run"), devices=8))


@pytest.fixture(scope="module")
def alone():
    """The same runs in NumPy, each once."""
    known = {}

    def run(name):
        config, recipe, _, data = RUNS[name]
        key = repr((config, recipe))
        if key not in known:
            model, settings = build(config_from_dict(config)), Recipe(**recipe)
            with use_engine("numpy"):
                steps = list(training_steps(Trainer(model, settings), data, first_state(model, settings)))
                params = steps[-1][0].params
                known[key] = (
                    [record.loss for _, record in steps],
                    evaluate(model, params, data, metric="answer"),
                    params,
                )
        return known[key]

    return run


@pytest.mark.parametrize("name", RUNS)
def test_eight_devices_train_as_one_and_every_array_lies_where_the_rules_say(trained, alone, name):
    assert trained["devices"] == 8
    losses, evaluation, params = alone(name)
    found = trained[name]
    assert len(found["losses"]) == STEPS
    np.testing.assert_allclose(found["losses"], losses, rtol=1e-5)
    assert losses[-1] < losses[0]
    if name in MEASURED:
        assert found["evaluation"] == pytest.approx([evaluation.loss, evaluation.accuracy], rel=1e-5)
    sums = {name: float(np.abs(x).sum()) for name, x in flatten(params).items() if not name.endswith("key.b")}
    assert found["sums"] == pytest.approx(sums, rel=1e-3)

    mesh, placed = RUNS[name][2].mesh, trained[name]["placed"]
    assert {"params", "optimizer"} <= placed.keys()
    for part, arrays in placed.items():
        for array, facts in arrays.items():
            parameter = array if part == "params" else array.partition(".")[2]
            check_shards(array, facts, mesh, parameter)


def check_shards(name, facts, mesh, parameter):
    axes = axes_for(parameter, facts["shape"], mesh) if parameter else (None,) * len(facts["shape"])
    parts = [1 if axis is None else getattr(mesh, axis) for axis in axes]
    assert facts["shard"] == [size // part for size, part in zip(facts["shape"], parts, strict=True)], name
    assert facts["shards"] == math.prod(parts), name


def test_a_checkpoint_continues_on_another_mesh(trained):
    found = trained["continued"]
    np.testing.assert_allclose(found["losses"], trained["fsdp=8"]["losses"][HALFWAY:], rtol=1e-6)
    for name, facts in found["placed"].items():
        check_shards(name, facts, OTHER, name)


SPREAD = {name: execution for name, execution in COMPILED.items() if execution.mesh.size > 1}
TYPES = {"bfloat16": "bf16", "float16": "f16"}


@pytest.fixture(scope="module")
def found():
    return answer(start(HERE / "step_on_devices.py", devices=8))


def messages(found, name, operation):
    return [sent for sent in found["compiled"][name]["messages"] if sent["operation"] == operation]


@pytest.mark.parametrize("name", SPREAD)
def test_weights_are_rounded_before_they_are_gathered_and_gradients_added_up_in_float32_as_planned(found, name):
    gathers = messages(found, name, "all-gather")
    assert {sent["type"] for sent in gathers} == {TYPES[COMPILED[name].precision]}
    assert all(len(sent["shape"]) == 2 for sent in gathers)

    execution = COMPILED[name]
    planned = plan(MODEL, execution.mesh, batch=BATCH, precision=execution.precision, remat=execution.remat)
    expected = sum(one.size * one.times for one in planned.messages if one.operation == "all-gather")
    gathered = sum(
        2 * math.prod(sent["shape"]) * (1 if sent["outside"] else MODEL.layers)
        for sent in messages(found, name, "all-gather")
    )
    assert gathered == expected

    sums = messages(found, name, "all-reduce")
    assert {sent["type"] for sent in sums if len(sent["shape"]) < 3} == {"f32"}
    tensor = COMPILED[name].mesh.tensor
    for matrix in ([32, 32 // tensor], [32, 48 // tensor], [48 // tensor, 32]):
        assert any(sent["shape"] == matrix and not sent["outside"] for sent in sums), matrix
    others = {operation: messages(found, name, operation) for operation in ("all-to-all", "collective-permute")}
    assert not any(others.values())


def test_as_many_bytes_of_gradients_and_activations_are_added_up_as_the_plan_counts(found):
    execution = COMPILED["fsdp"]
    planned = plan(MODEL, execution.mesh, batch=BATCH, precision=execution.precision).messages
    expected = sum(one.size * one.times for one in planned if one.operation != "all-gather")
    added = sum(
        4 * math.prod(sent["shape"]) * (1 if sent["outside"] else MODEL.layers)
        for sent in messages(found, "fsdp", "all-reduce")
        if sent["shape"]  # the loss and the norm of the gradients are single numbers
    )
    assert added == expected

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


@pytest.mark.parametrize("name", BEGUN)
def test_a_first_state_is_that_of_the_host_which_holds_one_parameter_at_a_time(found, name):
    begun = found["begun"][name]
    assert begun["different"] == []
    assert begun["names"] == [True, True]

    begun, shapes = found["begun"][name], list(flatten(build(BEGUN[name][0]).specs()).values())
    all_bytes, zeros = begun["otherwise"]  # on the host alone
    assert all_bytes == sum(4 * math.prod(spec.shape) for spec in shapes)
    assert zeros > 0
    assert begun["zeros"] == 0
    # JAX may let go of one only when it is given the next.
    assert begun["held"] <= 2 * max(4 * math.prod(spec.shape) for spec in shapes) < all_bytes
