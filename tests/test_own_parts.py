"""Parts of one's own work everywhere: config, proofs, training, checkpoints, generation, on the engines of the host."""

import json

import numpy as np
import pytest

import glassformer as gf
from glassformer.core import registry
from glassformer.core.errors import ConfigError
from glassformer.generation import generate_steps
from glassformer.proofs import layer_cases, model_cases, op_cases, prove_case
from own_parts import BLOCKS, REFUSED, LearnedSlope, ScaleNorm, softplus, softplus_backward, square, square_backward
from runs import command

SIZES = {"vocab": 11, "width": 16, "heads": 2, "layers": 2, "context": 16}
OWN = {
    "activation": {"activation": "square"},
    "gated activation": {"activation": "square", "gated": True},
    "norm": {"norm": "scale"},
    "positions": {"positions": "slopes"},
    **{f"block {name}": {"block": name} for name in BLOCKS},
    "attention only, post-norm": {"block": "attention_only", "norm_position": "post"},
    "attention only, no norms, free head, own head width": {
        "block": "attention_only", "norm": "none", "tied_head": False, "head_bias": True, "head_width": 5,
    },
    "parallel, rotary": {"block": "parallel", "positions": "rotary"},
    "parallel, no norms": {"block": "parallel", "norm": "none"},
    "feed-forward only": {"block": "feed_forward_only"},
    "no residual, post-norm": {"block": "no_residual", "norm_position": "post"},
    "all": {"activation": "square", "norm": "scale", "positions": "slopes", "block": "shared_norm"},
}  # fmt: skip
"""Parts of one's own, and blocks of the library that are no `Block`."""


@pytest.fixture(autouse=True)
def _registered():
    gf.register_activation("square", square, square_backward)
    gf.register_norm("scale", ScaleNorm)
    gf.register_positions("slopes", lambda config, bidirectional: LearnedSlope(config.heads))
    gf.register_op("softplus", softplus, softplus_backward, np.linspace(-2, 2, 6).reshape(2, 3))
    for name, block in BLOCKS.items():
        gf.register_block(name, block)
    for name, (block, _) in REFUSED.items():
        gf.register_block(name, block)


@pytest.fixture(params=OWN, ids=list(OWN))
def model(request):
    return gf.build(gf.DecoderConfig(**SIZES, **OWN[request.param]))


def counting(rows=8):
    """Sequences that count up, from anywhere."""
    ids = (np.arange(9) + np.arange(rows)[:, None]) % SIZES["vocab"]
    return gf.Batch(ids[:, :-1], ids[:, 1:])


def written(model, params, *, cache):
    steps = generate_steps(model, params, [[1, 2, 3], [4]], max_new_tokens=6, cache=cache)
    return [step.ids.tolist() for step in steps]


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_a_model_with_ones_own_part_learns_and_writes_the_same_with_and_without_a_cache(model, engine):
    params = model.init(0)
    optimizer = gf.training.Adam()
    state = optimizer.init(params)
    losses = []
    with gf.use_engine(engine):
        for _ in range(60):
            loss, grads = model.loss_and_grads(params, counting())
            params, state = optimizer.update(params, grads, state, lr=0.01)
            losses.append(float(loss))
        assert losses[-1] < 0.5 * losses[0]
        assert written(model, params, cache=True) == written(model, params, cache=False)


def test_engines_agree_on_gradients(model, caplog):
    params = model.init(1)
    with gf.use_engine("numpy"):
        want = gf.tree.flatten(model.loss_and_grads(params, counting()))
    with gf.use_engine("cpu"):
        have = gf.tree.flatten(model.loss_and_grads(params, counting()))
    for name, expected in want.items():
        np.testing.assert_allclose(have[name], expected, rtol=1e-3, atol=1e-5, err_msg=name)
    assert not caplog.records or model.config.block not in registry.BUILT_IN["block"]  # blocks of the library


def test_everything_registered_is_proved():
    rows = {
        "softplus": op_cases,
        "square": op_cases,
        "scale": layer_cases,
        "decoder (positions slopes)": model_cases,
        **{f"decoder (block {name})": model_cases for name in BLOCKS},
        **dict.fromkeys(BLOCKS, layer_cases),
    }
    for name, cases in rows.items():
        (case,) = [case for case in cases() if case.name == name]
        assert prove_case(case).ok, name


def test_a_wrong_gradient_of_ones_own_is_found():
    gf.register_activation("square", square, lambda dy, x: x * dy)
    (case,) = [case for case in op_cases() if case.name == "square"]
    assert not prove_case(case).ok


@pytest.mark.parametrize(("name", "why"), [(name, why) for name, (_, why) in REFUSED.items()])
def test_a_block_that_cannot_read_on_is_refused_with_the_reason_and_writes_without_a_cache(name, why):
    model = gf.build(gf.DecoderConfig(**SIZES, block=name))
    params = model.init(0)
    with pytest.raises(ConfigError, match=rf"{why}(.|\n)*hint: .*cache=False"):
        written(model, params, cache=True)
    assert len(written(model, params, cache=False)) == 6


def test_a_run_with_parts_of_ones_own_is_saved_resumed_and_asked(tmp_path, unseen_figures):
    folder = tmp_path / "run"
    settings = ["--set", "activation=square", "--set", "norm=scale", "--set", "block=gated", "--set", "steps=4"]
    result = command("train", "sort", "--out", str(folder), *settings, "--set", "eval_every=2", "--json")
    assert result.code == 0, result.err
    stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model"]
    assert (stored["activation"], stored["norm"], stored["block"]) == ("square", "scale", "gated")
    assert command("eval", str(folder)).code == 0
    assert command("generate", str(folder), "21", "--max-new-tokens", "3").code == 0
    registry._own["block"].clear()
    refused = command("eval", str(folder))
    assert refused.code != 0
    assert "run has the block 'gated', which is not built in: Python code registered it, but not here" in refused.err
    assert 'gf.register_block("gated", block); commands know it if it is in a file and the run was' in refused.err
