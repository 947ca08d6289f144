"""GGUF files: what is read out of them equals what their own library and `transformers` make of them."""

import warnings

import gguf
import numpy as np
import pytest

import gguf_files as files
from glassformer.config import RotaryScaling
from glassformer.core.errors import WeightsError
from glassformer.core.quantized import FORMS, Quantized
from glassformer.core.tree import check_same, flatten
from glassformer.weights.gguf import open_gguf
from glassformer.weights.gguf_file import TYPES, read_header
from glassformer.weights.tensors import BLOCKS, Tensors
from oracles import require

QUANTIZED_HERE = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
K_QUANTS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")


def tiny(tmp_path, rng, settings=None, tensors=None, tokenizer=None, architecture="llama", types=None):
    """Write a model of random weights with some settings and tensors changed; None leaves one out."""
    every = {**files.llama_settings(architecture), **files.byte_tokenizer(), **(settings or {}), **(tokenizer or {})}
    arrays = {**files.llama_tensors(rng), **(tensors or {})}
    kept = {name: array for name, array in arrays.items() if array is not None}
    return files.write(tmp_path / "tiny.gguf", architecture, every, kept, types)


def test_every_type_that_can_be_read_has_a_case_here():
    assert set(TYPES.values()) == {*QUANTIZED_HERE, *K_QUANTS}
    for number, name in TYPES.items():
        assert gguf.GGMLQuantizationType(number).name == name
        assert name not in BLOCKS or gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == BLOCKS[name]


@pytest.mark.parametrize("kind", QUANTIZED_HERE)
def test_values_equal_those_of_the_library(tmp_path, rng, kind):
    values = rng.standard_normal((6, 64)).astype(np.float32)
    path = files.write(tmp_path / "one.gguf", "llama", {}, {"x": values}, {"x": kind})
    [theirs] = gguf.GGUFReader(path).tensors
    ours = Tensors(read_header(path).tensors).read("x")
    assert ours.shape == (6, 64)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, gguf.dequantize(theirs.data, theirs.tensor_type))
    assert np.abs(ours - values).max() < 0.5


@pytest.mark.parametrize("kind", K_QUANTS)
def test_values_of_k_quants_equal_those_of_transformers(tmp_path, rng, kind):
    torch = require("torch")
    require("transformers")
    from transformers.integrations.gguf.dequant import dequantize

    number = gguf.GGMLQuantizationType[kind]
    _, size = gguf.GGML_QUANT_SIZES[number]
    blocks = rng.integers(0, 256, (3, 2, size), dtype=np.uint8)
    # The library cannot write these types, so any bytes will do, but the scales, two bytes each, must be finite.
    scales = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}[kind]
    for place in scales:
        blocks[..., place : place + 2] = rng.standard_normal((3, 2, 1)).astype("<f2").view(np.uint8)
    path = files.write(tmp_path / "k.gguf", "llama", {}, {"x": blocks.reshape(3, 2 * size)}, {"x": kind})
    ours = Tensors(read_header(path).tensors).read("x")
    theirs = dequantize(torch.from_numpy(blocks.reshape(3, 2 * size)), int(number), torch.float32).reshape(3, 512)
    assert ours.shape == (3, 512)
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6, atol=1e-5)


def test_float32_stays_in_the_file_and_others_take_the_type_asked_for(tmp_path, rng):
    path = tiny(tmp_path, rng, types={"blk.0.attn_v.weight": "F16", "blk.1.attn_v.weight": "BF16"})
    params = flatten(open_gguf(path).params)
    copied = {name for name, array in params.items() if not is_mapped(array)}
    assert copied == {"blocks.0.attention.value.w", "blocks.1.attention.value.w"}
    assert {str(array.dtype) for array in params.values()} == {"float32"}
    assert {str(array.dtype) for array in flatten(open_gguf(path, np.float64).params).values()} == {"float64"}


def is_mapped(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return isinstance(array, np.memmap) and not array.flags.writeable


@pytest.mark.parametrize("tied", [True, False])
def test_a_llama_gives_the_logits_of_transformers(tmp_path, tied):
    transformers = require("transformers")
    theirs = randomized(transformers.LlamaForCausalLM(llama_config(transformers.LlamaConfig, tied=tied)))
    loaded = exported(tmp_path, "llama", theirs)
    assert loaded.family == "llama"
    assert loaded.config.tied_head == tied
    assert loaded.config.rotary_pairing == "interleaved"
    assert loaded.config.norm_eps == 1e-5
    assert_same_logits(loaded, theirs)


def test_a_qwen2_with_its_biases_gives_the_logits_of_transformers(tmp_path):
    transformers = require("transformers")
    theirs = randomized(transformers.Qwen2ForCausalLM(llama_config(transformers.Qwen2Config, tied=True)))
    loaded = exported(tmp_path, "qwen2", theirs)
    assert loaded.config.attention_bias
    assert not loaded.config.has_output_bias
    assert loaded.config.rotary_pairing == "halves"
    assert_same_logits(loaded, theirs)


def test_rotations_stretched_as_llama_3_does_are_recognized(tmp_path):
    transformers = require("transformers")
    rope = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500000.0,
    }  # fmt: skip
    config = llama_config(transformers.LlamaConfig, tied=False, rope_parameters=rope, head_dim=64)
    theirs = randomized(transformers.LlamaForCausalLM(config))
    inverse = theirs.model.rotary_emb.inv_freq.double().numpy()
    factors = 500000.0 ** (-np.arange(0, 64, 2) / 64) / inverse
    assert factors.max() == pytest.approx(8)
    loaded = exported(tmp_path, "llama", theirs, extra={"rope_freqs.weight": factors}, base=500000.0, channels=64)
    assert loaded.config.rotary_scaling == RotaryScaling(factor=8.0, original_context=8192)
    assert_same_logits(loaded, theirs)
    for other in (factors**2, factors * np.nan):
        with pytest.raises(WeightsError, match="a rule other than Llama 3's"):
            exported(tmp_path, "llama", theirs, extra={"rope_freqs.weight": other}, base=500000.0, channels=64)


def test_a_gpt2_gives_the_logits_of_transformers(tmp_path):
    transformers = require("transformers")
    config = transformers.GPT2Config(vocab_size=files.VOCAB, n_embd=32, n_head=4, n_layer=2, n_positions=64)
    theirs = randomized(transformers.GPT2LMHeadModel(config))
    names = {"context_length": 64, "embedding_length": 32, "block_count": 2, "feed_forward_length": 128}
    names |= {"attention.head_count": 4, "attention.layer_norm_epsilon": 1e-5}
    settings = {f"gpt2.{key}": value for key, value in names.items()} | files.byte_tokenizer(pre="gpt-2")
    loaded = open_gguf(files.write(tmp_path / "gpt2.gguf", "gpt2", settings, files.from_gpt2(theirs)))
    assert_same_logits(loaded, theirs)


def llama_config(kind, *, tied, **changes):
    return kind(
        vocab_size=files.VOCAB, hidden_size=48, num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=3,
        intermediate_size=40, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=tied, **changes,
    )  # fmt: skip


def randomized(theirs):
    torch = require("torch")
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(torch.tensor(rng.normal(0.1, 0.3, tuple(weight.shape))))
    return theirs.float().eval()


def exported(tmp_path, architecture, theirs, *, extra=None, base=10000.0, channels=8):
    tensors = files.from_llama(theirs, permuted=architecture == "llama") | (extra or {})
    sizes = {"embedding_length": 48, "block_count": 3, "feed_forward_length": 40, "attention.head_count": 6}
    sizes |= {"rope.freq_base": base, "rope.dimension_count": channels}
    sizes |= {"attention.key_length": channels, "attention.value_length": channels, "vocab_size": files.VOCAB}
    settings = files.llama_settings(architecture, **sizes) | files.byte_tokenizer()
    return open_gguf(files.write(tmp_path / f"{architecture}.gguf", architecture, settings, tensors))


def assert_same_logits(loaded, theirs):
    torch = require("torch")
    check_same(loaded.params, loaded.model.specs())
    tokens = np.random.default_rng(1).integers(0, files.VOCAB, (2, 17))
    logits, _ = loaded.model.forward(loaded.params, tokens)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(tokens)).logits.numpy()
    assert logits.dtype == np.float32
    assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"llama.expert_count": 8}, "llama.expert_count = 8: only 0"),
        ({"llama.logit_scale": 0.5}, "the setting llama.logit_scale, here 0.5, is not supported"),
        ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.type = 'yarn'"),
        ({"llama.rope.dimension_count": 2}, "llama.rope.dimension_count = 2: only 4"),
        ({"llama.block_count": None}, "has no llama.block_count"),
        ({"llama.block_count": 4_000_000_000}, "llama.block_count = 4000000000"),
        ({"llama.block_count": 2_000_000_000}, "llama.block_count = 2000000000: at most 2,048 layers"),
        ({"llama.embedding_length": 0}, "llama.embedding_length = 0"),
        ({"llama.feed_forward_length": 20}, "has shape .* the config asks for"),
        ({"llama.attention.head_count": 3}, "llama.rope.dimension_count = 4: only 5"),
        ({"llama.attention.head_count": [4, 2]}, r"llama.attention.head_count = \[4, 2\]"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "epsilon = nan: a number is needed"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "has no llama.attention.layer_norm_rms_epsilon"),
        ({"llama.vocab_size": 99}, "llama.vocab_size = 99: only 403"),
        ({"split.count": 3}, "one part of a split model"),
        ({"split.count": [1, 2]}, "one part of a split model"),
        ({"llama.vocab_size": [1, 2]}, r"llama.vocab_size = \[1, 2\]"),
        ({"llama.rope.dimension_count": ["a", "b"]}, "rope.dimension_count = .*only 4"),
        ({"llama.attention.value_length": 0.5}, "value_length = 0.5: only 4"),
    ],
)
def test_settings_that_are_not_supported_are_named(tmp_path, rng, settings, message):
    with pytest.raises(WeightsError, match=message):
        open_gguf(tiny(tmp_path, rng, settings))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"blk.1.ffn_up.weight": None}, "missing blk.1.ffn_up.weight"),
        ({"blk.1.ffn_gate_inp.weight": np.ones((4, 16))}, "unexpected blk.1.ffn_gate_inp.weight"),
        ({"blk.0.attn_k.weight": np.ones((16, 16))}, r"blk.0.attn_k.weight has shape \(16, 16\), .* \(8, 16\)"),
        ({"token_embd.weight": None}, "no token_embd.weight"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path, rng, tensors, message):
    with pytest.raises(WeightsError, match=message):
        open_gguf(tiny(tmp_path, rng, tensors=tensors))


def test_unknown_architectures_are_named_and_equal_numbers_and_damaged_scales_are_read(tmp_path, rng):
    with pytest.raises(WeightsError, match="the architecture 'mamba' is not supported"):
        open_gguf(tiny(tmp_path, rng, architecture="mamba"))

    loaded = open_gguf(tiny(tmp_path, rng, {"llama.attention.head_count_kv": [2, 2]}))
    assert loaded.config.kv_heads == 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        blocks = np.full((24, 34), 255, dtype=np.uint8)
        path = files.write(tmp_path / "x.gguf", "llama", {}, {"x": blocks}, {"x": "Q8_0"})
        assert np.isnan(Tensors(read_header(path).tensors).read("x")).all()


@pytest.mark.parametrize("form", FORMS)
def test_matrices_stay_in_their_blocks_on_request(tmp_path, rng, form):
    arrays = files.llama_tensors(rng, width=64, hidden=96)
    sizes = {"embedding_length": 64, "feed_forward_length": 96, "rope.dimension_count": 16}
    settings = {**files.llama_settings(**sizes), **files.byte_tokenizer()}
    types = {name: form for name, array in arrays.items() if array.ndim == 2}
    path = files.write(tmp_path / "blocks.gguf", "llama", settings, arrays, types)
    kept, full = (flatten(open_gguf(path, kept=forms).params) for forms in (FORMS, ()))
    check_same(kept, full)
    for name, leaf in kept.items():
        assert isinstance(leaf, Quantized) == (full[name].ndim == 2)
        if isinstance(leaf, Quantized):
            assert leaf.form == form
            np.testing.assert_array_equal(leaf.dequantize(), full[name])


def test_thirds_of_a_matrix_stay_in_blocks_too(tmp_path):
    transformers = require("transformers")
    config = transformers.GPT2Config(n_embd=64, n_layer=1, n_head=4, vocab_size=files.VOCAB, n_positions=32)
    arrays = files.from_gpt2(randomized(transformers.GPT2LMHeadModel(config)))
    names = {"context_length": 32, "embedding_length": 64, "block_count": 1, "feed_forward_length": 256}
    heads = {"attention.head_count": 4, "attention.layer_norm_epsilon": 1e-5}
    settings = {f"gpt2.{key}": value for key, value in {**names, **heads}.items()} | files.byte_tokenizer()
    types = {name: "Q8_0" for name, array in arrays.items() if array.ndim == 2 and "position" not in name}
    path = files.write(tmp_path / "gpt2.gguf", "gpt2", settings, arrays, types)
    kept, full = (flatten(open_gguf(path, kept=forms).params) for forms in (FORMS, ()))
    for part in ("query", "key", "value", "output"):
        name = f"blocks.0.attention.{part}.w"
        np.testing.assert_array_equal(kept[name].dequantize(), full[name])
    assert isinstance(kept["embedding.positions.table"], np.ndarray)


def test_types_that_are_not_kept_are_turned_into_numbers_that_show_damage(tmp_path, rng):
    width = {"embedding_length": 32, "rope.dimension_count": 8}
    arrays = files.llama_tensors(rng, width=32, hidden=24)
    settings = {**files.llama_settings(**width), **files.byte_tokenizer()}
    types = {"blk.0.attn_q.weight": "Q5_0", "blk.0.attn_k.weight": "BF16", "blk.0.attn_v.weight": "Q8_0"}
    params = flatten(open_gguf(files.write(tmp_path / "x.gguf", "llama", settings, arrays, types), kept=FORMS).params)
    forms = {name: leaf.form for name, leaf in params.items() if isinstance(leaf, Quantized)}
    assert forms == {"blocks.0.attention.value.w": "Q8_0"}

    arrays = files.llama_tensors(rng)
    arrays["blk.0.attn_q.weight"][3, 5] = np.inf
    types = {"blk.0.attn_q.weight": "F16", "blk.1.attn_q.weight": "F16"}
    settings = {**files.llama_settings(), **files.byte_tokenizer()}
    params = flatten(open_gguf(files.write(tmp_path / "x.gguf", "llama", settings, arrays, types), kept=FORMS).params)
    assert np.isinf(params["blocks.0.attention.query.w"][5, 3])
    assert params["blocks.1.attention.query.w"].form == "F16"
