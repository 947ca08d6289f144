"""GGUF files of our own: read back by our reader, by the format's library and by `transformers`, they say the same."""

import json
from dataclasses import replace

import numpy as np
import pytest

from family_models import saved
from glassformer.api.loading import load, read_model
from glassformer.api.trained_model import TrainedModel
from glassformer.config import RotaryScaling
from glassformer.core.errors import ConfigError, WeightsError
from glassformer.core.quantized import Quantized
from glassformer.models import build, preset
from glassformer.text import BPETokenizer, ByteTokenizer, CharTokenizer, PublishedTokenizer, WordTokenizer
from glassformer.weights.folder import open_folder
from glassformer.weights.gguf import architecture_for, export_gguf, open_gguf
from glassformer.weights.gguf_file import read_header
from oracles import require
from runs import tiny_session
from tokenizer_files import PUBLISHED

TEXT = "The quick brown fox jumps over the lazy dog. It's 10 past 3.\n"
IDS = np.array([[1, 5, 3, 8, 2, 7]])
CHARS = CharTokenizer(TEXT, specials=("<bos>", "<eos>"))
_SMALL = {"vocab": CHARS.size, "width": 32, "heads": 4, "layers": 2, "context": 32}
OWN = {
    "gpt2": preset("tiny-decoder", **_SMALL, activation="gelu_tanh", attention_bias=False),
    "gptneox": preset("tiny-decoder", **_SMALL, activation="gelu_tanh", positions="rotary", feed_forward_bias=False),
    "llama": preset("llama-2-7b", **{**_SMALL, "kv_heads": 2, "feed_forward": 48, "tied_head": True}),
}


def own(name, tokenizer=CHARS, **settings):
    """A model with a tokenizer, and weights that matter."""
    config = OWN[name].replace(vocab=tokenizer.size, **settings)
    rng = np.random.default_rng(0)
    params = build(config).init(0)
    for block in params["blocks"]:
        for part in block["attention"].values():
            part["w"] = rng.standard_normal(part["w"].shape).astype(np.float32) / 4
    ends = tuple(i for name, i in tokenizer.specials.items() if name == "<eos>")
    return TrainedModel(config, params, tokenizer, start_id=tokenizer.specials.get("<bos>"), end_ids=ends)


def logits_of(loaded, ids=IDS):
    return loaded.model.forward(loaded.params, ids)[0]


@pytest.mark.parametrize("name", OWN)
def test_a_file_read_again_computes_the_same(name, tmp_path):
    loaded = own(name)
    again = open_gguf(export_gguf(loaded, tmp_path / "model.gguf"))
    assert read_header(tmp_path / "model.gguf").settings["general.architecture"] == name
    np.testing.assert_allclose(logits_of(again), logits_of(loaded), rtol=0, atol=1e-5 * np.abs(logits_of(loaded)).max())
    assert (again.start_id, again.end_ids) == (loaded.start_id, loaded.end_ids)
    assert again.tokenizer.encode(TEXT).tolist() == loaded.tokenizer.encode(TEXT).tolist()


@pytest.mark.parametrize(("weights", "error"), [("f16", 2e-3), ("q8_0", 3e-2)])
@pytest.mark.parametrize("name", OWN)
def test_fewer_bits_round_and_no_more(name, weights, error, tmp_path):
    loaded = own(name)
    path = export_gguf(loaded, tmp_path / "model.gguf", weights=weights)
    expected = logits_of(loaded)
    assert np.abs(logits_of(open_gguf(path)) - expected).max() <= error * np.abs(expected).max()
    kinds = {name: entry.dtype for name, entry in read_header(path).tensors.items()}
    assert kinds["blk.0.ffn_up.weight"] == weights.upper()
    # Rows of 48 numbers are no multiple of 32: they stay in 16 bits.
    assert kinds["blk.0.ffn_down.weight"] == ("F16" if name == "llama" else weights.upper())
    assert kinds["blk.0.attn_norm.weight"] == "F32"
    kept = open_gguf(path, kept=("Q8_0", "F16")).params["blocks"][0]["feed_forward"]["up"]["w"]
    assert isinstance(kept, Quantized)


def test_the_file_is_one_that_the_library_reads(tmp_path):
    from gguf import GGUFReader

    reader = GGUFReader(export_gguf(own("gptneox"), tmp_path / "model.gguf"))
    names = {tensor.name for tensor in reader.tensors}
    assert {"token_embd.weight", "output.weight", "blk.1.attn_qkv.bias", "output_norm.bias"} <= names
    assert reader.fields["gptneox.use_parallel_residual"].contents() is False
    assert reader.fields["tokenizer.ggml.tokens"].contents()[:4] == ["<bos>", "<eos>", "\n", "▁"]


def test_parallel_blocks_come_back(tmp_path):
    loaded = own("gptneox", block="parallel")
    again = open_gguf(export_gguf(loaded, tmp_path / "model.gguf"))
    assert again.config.block == "parallel"
    np.testing.assert_allclose(logits_of(again), logits_of(loaded), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_transformers_reads_it_and_computes_the_same(name, tmp_path):
    torch, transformers = require("torch"), require("transformers")
    tokenizer = BPETokenizer.train(TEXT, size=270, specials=("<bos>", "<eos>"))
    loaded = own(name, tokenizer, context=1024)  # transformers 5.23 takes GPT-2's for granted
    export_gguf(loaded, tmp_path / "model.gguf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32)
    with torch.no_grad():
        expected = theirs.eval()(torch.tensor(IDS)).logits.numpy()
    assert np.abs(logits_of(loaded) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    "tokenizer",
    [
        CharTokenizer(TEXT),
        ByteTokenizer(specials=("<eos>",)),
        BPETokenizer.train(TEXT * 9, size=300, specials=("<bos>", "<eos>")),
    ],
    ids=["chars", "bytes", "bpe"],
)
def test_our_tokenizers_go_along(tokenizer, tmp_path):
    again = open_gguf(export_gguf(own("gptneox", tokenizer), tmp_path / "model.gguf")).tokenizer
    texts = [TEXT, " dog ", "fox  fox\n\n"] + (["naïve 日本"] if tokenizer.kind != "chars" else [])
    for text in texts:
        assert again.encode(text).tolist() == tokenizer.encode(text).tolist()
        assert again.decode(tokenizer.encode(text)) == text
    assert again.specials == tokenizer.specials
    assert again.size == tokenizer.size


@pytest.mark.parametrize("name", ["byte-level BPE", "sentencepiece BPE"])
def test_published_tokenizers_go_along(name, tmp_path):
    make, config = PUBLISHED[name]
    (tmp_path / "tokenizer.json").write_text(make().to_str())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = PublishedTokenizer.load(tmp_path)
    config = OWN["llama"].replace(vocab=tokenizer.size + 5)
    loaded = TrainedModel(config, build(config).init(0), tokenizer, family="llama", chat_template="{{ messages }}")
    again = open_gguf(export_gguf(loaded, tmp_path / "model.gguf"))
    for text in (TEXT, "  two  spaces", "a"):
        assert again.tokenizer.encode(text).tolist() == tokenizer.encode(text).tolist()
    assert again.chat_template == "{{ messages }}"
    assert again.tokenizer.size == config.vocab  # ids without a token are there, and unused


def test_a_model_without_one_or_with_another_kind_is_refused(tmp_path):
    with pytest.raises(WeightsError, match="has no tokenizer"):
        export_gguf(replace(own("llama"), tokenizer=None), tmp_path / "a.gguf")
    with pytest.raises(WeightsError, match="the words tokenizer has no form in a GGUF file"):
        export_gguf(own("llama", WordTokenizer(["a", "b"])), tmp_path / "b.gguf")
    with pytest.raises(WeightsError, match="stands for a space in GGUF files") as caught:
        export_gguf(own("llama", CharTokenizer("a▁b")), tmp_path / "c.gguf")
    assert "--set tokenizer=bytes" in caught.value.hint
    make, _ = PUBLISHED["WordPiece"]
    with pytest.raises(WeightsError, match="of the kind WordPiece"):
        export_gguf(own("llama", PublishedTokenizer(make().to_str())), tmp_path / "d.gguf")
    assert not list(tmp_path.iterdir())


def test_a_default_run_on_text_goes_to_llama_cpp(tmp_path):
    list(tiny_session("text", tmp_path / "run", steps=2, eval_every=2).steps())
    export_gguf(read_model(tmp_path / "run"), tmp_path / "model.gguf")
    ours, theirs = load(tmp_path / "run"), load(tmp_path / "model.gguf", weights="float32")
    assert isinstance(theirs, TrainedModel)
    settings = {"max_new_tokens": 40, "temperature": 0}
    assert theirs.generate("The ", **settings).text == ours.generate("The ", **settings).text


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox, tied, no biases of attention", "llama", "qwen2"])
def test_published_models_go_there(name, tmp_path):
    loaded = replace(open_folder(saved(name, tmp_path / "theirs")), tokenizer=CHARS)
    again = open_gguf(export_gguf(loaded, tmp_path / "model.gguf"))
    np.testing.assert_allclose(logits_of(again), logits_of(loaded), rtol=0, atol=1e-5 * np.abs(logits_of(loaded)).max())


def test_stretched_rotations_go_along(tmp_path):
    loaded = own("llama", rotary_scaling=RotaryScaling(factor=4.0), rotary_base=500000.0)
    again = open_gguf(export_gguf(loaded, tmp_path / "model.gguf"))
    assert again.config.rotary_scaling.factor == pytest.approx(4.0)
    np.testing.assert_allclose(logits_of(again), logits_of(loaded), atol=1e-4)


@pytest.mark.parametrize(
    ("config", "fact", "hint"),
    [
        (OWN["gpt2"].replace(positions="alibi"), "positions='alibi'", "train with --set positions=learned"),
        (OWN["gptneox"].replace(activation="relu"), "activation='relu'", "train with --set activation=gelu_tanh"),
        (OWN["llama"].replace(window=8), "window=8", "train with --set window=null"),
        (OWN["gptneox"].replace(kv_heads=2), "kv_heads=2", "train with --set kv_heads=4"),
        (preset("bert-base"), "this is an encoder", "--format hf"),
        (preset("majority"), "this is an encoder", "keep the run folder"),
    ],
)
def test_settings_that_no_architecture_has_are_named_with_those_to_train_with(config, fact, hint):
    with pytest.raises(WeightsError, match=fact) as caught:
        architecture_for(config)
    assert hint in caught.value.hint


def test_what_is_there_already_or_asked_for_wrongly_is_refused(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        export_gguf(own("llama"), path)
    with pytest.raises(ConfigError, match="there is no type of weights 'q9'"):
        export_gguf(own("llama"), tmp_path / "other.gguf", weights="q9")
    assert [file.name for file in tmp_path.iterdir()] == ["model.gguf"]
