"""TransformerLens' names: the values that ours stand for are made from each other as its documentation defines them."""

import re
from pathlib import Path

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig
from glassformer.core.errors import ConfigError
from glassformer.interpret import watch, zero
from glassformer.interpret.names import TRANSFORMER_LENS as NAMES

LLAMA = {"positions": "rotary", "norm": "rms", "gated": True, "activation": "silu", "attention_bias": False}
SIZES = {"vocab": 7, "width": 8, "heads": 2, "layers": 2, "context": 12}


def watched(more, rng):
    model = Decoder(DecoderConfig(**SIZES, **more))
    return watch(model, model.init(0, np.float64), Batch(rng.integers(0, 7, (2, 5))))


def by_their_name(run, name):
    """The value that the error about a name of TransformerLens points to."""
    with pytest.raises(ConfigError, match="there is no value") as error:
        run[name]
    return run[re.search(rf"TransformerLens' {re.escape(name)} is (\S+) here", error.value.hint)[1]]


@pytest.mark.parametrize("more", [{}, LLAMA])
def test_names_lead_to_values_that_fit_each_other(more, rng):
    run = watched(more, rng)
    for n in range(2):
        of = {one.rpartition("hook_")[2]: by_their_name(run, f"blocks.{n}.{one}") for one in (
            "hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_mlp_out", "hook_resid_post", "attn.hook_v",
            "attn.hook_rot_q", "attn.hook_rot_k", "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z",
            "mlp.hook_pre", "mlp.hook_post", "ln1.hook_scale", "ln1.hook_normalized", "attn.hook_result",
        )}  # fmt: skip
        pairs = {
            "the stream after attention": (of["resid_pre"] + of["attn_out"], of["resid_mid"]),
            "the stream after the block": (of["resid_mid"] + of["mlp_out"], of["resid_post"]),
            "scores": (of["rot_q"] @ of["rot_k"].swapaxes(-1, -2) / 2, of["attn_scores"]),
            "heads": ((of["pattern"] @ of["v"]).swapaxes(1, 2).reshape(of["z"].shape), of["z"]),
        }
        seen = np.exp(of["attn_scores"]) * np.tri(5)
        pairs["pattern"] = seen / seen.sum(axis=-1, keepdims=True), of["pattern"]
        own = run.params["blocks"][n]["attention"]["output"]
        by_head = of["result"].reshape(2, 5, 2, 4), own["w"].reshape(2, 4, 8)
        pairs["results"] = np.einsum("bthc,hcd->btd", *by_head) + own.get("b", 0), of["attn_out"]
        centered = of["resid_pre"] - (0 if more else of["resid_pre"].mean(axis=-1, keepdims=True))
        pairs["norm"] = centered * of["scale"], of["normalized"]  # gamma is 1, beta 0
        if more:
            up = by_their_name(run, f"blocks.{n}.mlp.hook_pre_linear")
            pairs["gate"] = of["pre"] / (1 + np.exp(-of["pre"])) * up, of["post"]
        for what, (made, value) in pairs.items():
            np.testing.assert_allclose(made, value, atol=1e-12, err_msg=what)


def test_norms_after_sublayers_have_names_of_their_own(rng):
    run = watched({"norm_position": "post"}, rng)
    of = {one: by_their_name(run, f"blocks.1.{one}") for one in (
        "hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_mlp_in", "hook_mlp_out", "hook_resid_post",
        "hook_q_input", "hook_normalized_resid_post", "ln1.hook_normalized", "ln2.hook_normalized",
    )}  # fmt: skip
    np.testing.assert_allclose(of["hook_resid_pre"] + of["hook_attn_out"], of["hook_resid_mid"])
    np.testing.assert_allclose(of["hook_mlp_in"] + of["hook_mlp_out"], of["hook_resid_post"])
    assert np.array_equal(of["hook_q_input"], of["hook_resid_pre"])
    assert np.array_equal(of["ln1.hook_normalized"], of["hook_mlp_in"])
    assert np.array_equal(of["ln2.hook_normalized"], of["hook_normalized_resid_post"])
    with pytest.raises(ConfigError, match=r"is blocks\.1\.attention_norm\.x here"):
        run.changed(zero("blocks.1.hook_resid_mid"))


def test_all_names_are_known_and_printed_and_wrong_ones_say_more(rng):
    runs = [watched(more, rng) for more in ({}, LLAMA)]
    for ours in NAMES.values():
        for name in ours.names:
            assert any(name.replace("N-1", "0").replace(".N", ".1") in run for run in runs), name
    page = (Path(__file__).parents[2] / "docs" / "guides" / "looking_inside.md").read_text(encoding="utf-8")
    for name, ours in NAMES.items():
        assert f"| `{name}` | {' or '.join(f'`{own}`' for own in ours.names)} | {ours.note} |\n" in page
    assert len(re.findall(r"^\| `.*hook_", page, flags=re.MULTILINE)) == len(NAMES)

    run = watched({}, rng)
    with pytest.raises(ConfigError, match=r"is blocks\.1\.attention\.output\.x here"):
        run.changed(zero("blocks.1.attn.hook_z", head=0))
    with pytest.raises(ConfigError, match="did you mean"):
        run["blocks.1.attention.attend.weight"]
