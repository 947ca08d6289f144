"""Adapter folders of PEFT: what it writes is read, and what is written it reads, to the same logits."""

import json

import numpy as np
import pytest

import glassformer as gf
from family_models import quiet
from fine_tuning import published
from glassformer.core.errors import ConfigError, GlassformerError, WeightsError
from glassformer.training import LoRA
from glassformer.weights.tensors import write_tensors
from oracles import require

IDS = np.array([[3, 9, 4, 17, 30, 5, 5]])
CLASSES = {"llama": "AutoModelForCausalLM", "gpt2": "AutoModelForCausalLM", "bert": "AutoModelForMaskedLM"}
THEIRS = {
    "llama": {"r": 4, "lora_alpha": 7, "use_rslora": True, "target_modules": ["q_proj", "down_proj"]},
    "gpt2": {"r": 2, "lora_alpha": 5, "target_modules": ["c_attn", "c_proj"], "rank_pattern": {"c_proj": 3}},
    "bert": {
        "r": 4,
        "lora_alpha": 80,
        "target_modules": r".*attention\.self\.(query|value)",
        "alpha_pattern": {"query": 30},
    },
}


def reference(kind, folder):
    torch, transformers = require("torch"), require("transformers")
    with quiet():
        return getattr(transformers, CLASSES[kind]).from_pretrained(folder, dtype=torch.float32)


def with_peft(kind, base, folder):
    peft = require("peft")
    with quiet():
        return peft.PeftModel.from_pretrained(reference(kind, base), folder)


def their_logits(model):
    torch = require("torch")
    with torch.no_grad():
        return model.eval()(torch.tensor(IDS)).logits.numpy()


def our_logits(model):
    return model.model.forward(model.params, IDS)[0]


def written_by_peft(kind, base, folder, **settings):
    peft, torch = require("peft"), require("torch")
    torch.manual_seed(1)
    config = peft.LoraConfig(init_lora_weights=False, **(THEIRS[kind] | settings))
    with quiet():
        model = peft.get_peft_model(reference(kind, base), config)
        model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", THEIRS)
def test_adapters_of_peft_are_read_and_written_again(kind, tmp_path):
    base = published(kind, tmp_path / "base")
    expected = their_logits(written_by_peft(kind, base, tmp_path / "theirs"))
    model = gf.load(base, adapter=tmp_path / "theirs")
    np.testing.assert_allclose(our_logits(model), expected, atol=1e-5)
    assert np.abs(our_logits(gf.load(base)) - expected).max() > 1e-3
    assert model.source == f"{base}+{tmp_path / 'theirs'}"

    files = model.export(tmp_path / "ours", format="peft")
    assert sorted(file.name for file in files) == ["adapter_config.json", "adapter_model.safetensors"]
    again = with_peft(kind, base, tmp_path / "ours")
    np.testing.assert_allclose(their_logits(again), expected, atol=1e-5)
    np.testing.assert_array_equal(our_logits(gf.load(tmp_path / "ours")), our_logits(model))  # its base is named


def test_adapters_trained_here_are_read_by_peft(tmp_path):
    base = published("llama", tmp_path / "base")
    notes = tmp_path / "notes.txt"
    notes.write_text("to be or not to be, that is the question\n" * 40)
    model = gf.train(
        str(notes), gf.load(base), lora=LoRA(rank=2, targets=("*attention.*.w",)), steps=3, context=16, lr=0.02,
        out=tmp_path / "run", show=False,
    )  # fmt: skip
    (run,) = gf.load(tmp_path / "run").export(tmp_path / "run_adapter", format="peft")[:1]
    assert run.read_bytes() == model.export(tmp_path / "adapter", format="peft")[0].read_bytes()
    peft = with_peft("llama", base, tmp_path / "adapter")
    np.testing.assert_allclose(our_logits(model), their_logits(peft), atol=1e-5)


def test_channels_follow_the_rotary_pairs_of_a_gguf_file(tmp_path):
    base = published("llama", tmp_path / "base")
    gf.load(base).export(tmp_path / "base.gguf")
    expected = their_logits(written_by_peft("llama", base, tmp_path / "theirs", target_modules=["q_proj", "k_proj"]))
    model = gf.load(tmp_path / "base.gguf", adapter=tmp_path / "theirs")
    assert model.config.rotary_pairing == "interleaved"
    np.testing.assert_allclose(our_logits(model), expected, atol=1e-5)
    model.export(tmp_path / "ours", format="peft")
    np.testing.assert_allclose(our_logits(gf.load(base, adapter=tmp_path / "ours")), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "PROMPT_TUNING"}, "PROMPT_TUNING"),
        ({"init_lora_weights": "pissa"}, "pissa"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"base_model_name_or_path": "/nowhere"}, "/nowhere"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, words, tmp_path):
    base, folder = published("llama", tmp_path / "base"), tmp_path / "adapter"
    folder.mkdir()
    content = {"peft_type": "LORA", "bias": "none", "lora_alpha": 8, "base_model_name_or_path": str(base)}
    (folder / "adapter_config.json").write_text(json.dumps(content | change))
    a, b = np.zeros((2, 16), np.float32), np.zeros((16, 2), np.float32)
    halves = {f"base_model.model.model.layers.0.self_attn.q_proj.lora_{n}.weight": x for n, x in (("A", a), ("B", b))}
    write_tensors(folder / "adapter_model.safetensors", halves, {})
    with pytest.raises(WeightsError, match=words):
        gf.load(folder)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("model.layers.0.self_attn.q_proj.lora_A", (2, 16), "one half"),
        ("model.layers.7.self_attn.q_proj", (2, 16), "layers.7"),
        ("model.layers.0.self_attn.q_proj", (2, 15), "15 × 16"),
        ("model.embed_tokens.lora_embedding_A", (2, 512), "lora_embedding_A"),
    ],
)
def test_tensors_that_do_not_fit_are_named(name, shape, words, tmp_path):
    base, folder = published("llama", tmp_path / "base"), tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 8}))
    first = np.zeros(shape, np.float32)
    both = {"lora_A": first, "lora_B": np.zeros((16, 2), np.float32)}
    halves = {f"{name}.weight": first} if "lora" in name else {f"{name}.{half}.weight": x for half, x in both.items()}
    write_tensors(folder / "adapter_model.safetensors", halves, {})
    with pytest.raises(WeightsError, match=words):
        gf.load(base, adapter=folder)


def test_a_model_without_adapters_and_a_changed_one_are_refused(tmp_path):
    base = published("llama", tmp_path / "base")
    with pytest.raises(ConfigError, match="has no adapters"):
        gf.load(base).export(tmp_path / "out", format="peft")
    written_by_peft("llama", base, tmp_path / "theirs")
    model = gf.load(base, adapter=tmp_path / "theirs")
    model.params["blocks"][0]["attention"]["query"]["w"][:] = 0
    with pytest.raises(ConfigError, match="changed after"):
        model.export(tmp_path / "out", format="peft")
    for wrong in (tmp_path / "nothing", 3):
        with pytest.raises(GlassformerError, match="adapter"):
            gf.load(base, adapter=wrong)
