"""How a model runs: settings of their own, taken beside a model's where they once stood among them."""

import json

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from glassformer.core.execution import PLAIN, Execution, MeshShape, joined, separated
from runs import command

OLD = {"architecture": "decoder", "vocab": 7, "width": 8, "heads": 2, "layers": 1, "context": 8}


def test_old_settings_of_a_model_still_load_and_go_back_to_where_they_came_from():
    config = gf.config_from_dict({**OLD, "attention_tile": 4, "compute": "float16", "remat": True})
    assert config == gf.config_from_dict(OLD)
    _, how = separated({**OLD, "attention_tile": 4, "compute": "float16", "remat": True})
    assert Execution(**how) == Execution(tile=4, precision="float16", remat=True)
    assert separated({"compute": None}) == ({}, {"precision": "float32"})

    how = Execution(tile=4, precision="float16", remat=True)
    assert Execution(**separated(joined(how))[1]) == how
    assert joined(PLAIN) == {}


def test_a_model_takes_them_when_it_is_built():
    config = gf.config_from_dict(OLD)
    model = gf.build(config, attention_tile=2, remat=True)
    assert model.execution == Execution(tile=2, remat=True) == gf.build(config, Execution(tile=2, remat=True)).execution
    assert (model.stack.block.attention.tile, model.stack.remat) == (2, True)


@pytest.mark.parametrize("how", [{"tile": 3}, {"remat": True}, {"tile": 2, "remat": True}])
def test_how_a_model_runs_does_not_change_what_it_computes(how):
    config = gf.config_from_dict(OLD)
    tokens = np.array([[1, 2, 3, 4, 5]])
    batch = gf.Batch(tokens, tokens)
    params = gf.build(config).init(0, np.float64)
    want = gf.tree.flatten(gf.build(config).loss_and_grads(params, batch))
    have = gf.tree.flatten(gf.build(config, Execution(**how)).loss_and_grads(params, batch))
    for name, expected in want.items():
        np.testing.assert_allclose(have[name], expected, rtol=1e-12, atol=1e-14, err_msg=name)


def test_a_config_that_is_given_them_says_where_they_belong():
    with pytest.raises(ConfigError, match=r"remat says how a model runs(.|\n)*hint: build\(config, Execution\(remat=…"):
        gf.DecoderConfig(**{name: value for name, value in OLD.items() if name != "architecture"}, remat=True)
    with pytest.raises(ConfigError, match="attention_tile says how a model runs"):
        gf.config_from_dict(OLD).replace(attention_tile=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "float8"}, "precision is 'float8'"),
        ({"tile": 0}, "tile is 0"),
        ({"remat": 1}, "remat takes: true, false"),
        ({"tiles": 3}, "execution has no setting 'tiles'"),
        ({"mesh": {"rows": 2}}, "a mesh has no axis 'rows'"),
    ],
)
def test_what_is_no_setting_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Execution.from_dict(settings)


def test_what_is_stored_is_what_is_read_and_commands_take_it_among_settings(tmp_path):
    how = Execution(precision="bfloat16", tile=64, mesh=MeshShape(data=2, tensor=4), scan=True)
    assert Execution.from_dict(json.loads(json.dumps(how.to_dict()))) == how
    assert Execution.from_dict({}) == Execution()

    small = ["--set", "steps=2", "--set", "batch=4", "--out", str(tmp_path / "run")]
    assert command("train", "majority", "--set", "attention_tile=4", *small).code == 0
    planned = command("plan", "tiny-decoder", "--mesh", "data=1", "--set", "attention_tile=16", "--set", "remat=true")
    assert planned.code == 0, planned.err
    assert "remat" in planned.out
