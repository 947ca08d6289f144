"""Training on eight devices: the losses of one, the arrays where the rules say, checkpoints that fit other meshes."""

import math
from pathlib import Path

import numpy as np
import pytest

from devices import answer, start
from engines.jax.train_on_devices import HALFWAY, MEASURED, OTHER, RUNS, STEPS
from glassformer.config import config_from_dict
from glassformer.core.dispatch import use_engine
from glassformer.core.tree import flatten
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
def test_eight_devices_train_as_one(trained, alone, name):
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


@pytest.mark.parametrize("name", RUNS)
def test_after_training_every_array_lies_where_the_rules_say(trained, name):
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
