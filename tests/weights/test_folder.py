"""Folders as Hugging Face publishes them: every variant that is out there, and what cannot be right."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from family_models import CASES, opened, quiet, saved
from glassformer.core.errors import WeightsError
from glassformer.core.tree import flatten
from glassformer.weights.folder import open_folder, read_config
from glassformer.weights.tensors import SINGLE
from oracles import require
from runs import assert_same_bits
from tokenizer_files import PUBLISHED

GPT2, LLAMA, BERT = "gpt2", "llama", "bert, tokens"
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One saved model of some families; tests change copies."""
    return {
        name: saved(name, tmp_path_factory.mktemp("models")) for name in (GPT2, LLAMA, BERT, "t5", "roberta, tokens")
    }


@pytest.fixture
def copy_of(folders, tmp_path):
    def copied(name):
        return shutil.copytree(folders[name], tmp_path / "copy")

    return copied


def change_config(folder, remove=(), **fields):
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in values.items() if name not in remove}))


def change_tensors(folder, function):
    save_file(function(load_file(folder / SINGLE)), folder / SINGLE, metadata={"format": "pt"})


def renamed(function):
    return lambda tensors: {function(name): tensor for name, tensor in tensors.items()}


def test_nothing_is_copied_that_need_not_be(folders):
    for name in (GPT2, LLAMA):
        for ours, array in flatten(open_folder(folders[name]).params).items():
            assert not array.flags.owndata, ours
            assert not array.flags.writeable, ours


@pytest.mark.parametrize("name", [GPT2, LLAMA, BERT, "t5"])
def test_several_files_hold_the_same_model(name, folders, tmp_path):
    folder = saved(name, tmp_path / "sharded", max_shard_size="10KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    assert_same_bits(open_folder(folder).params, open_folder(folders[name]).params)


@pytest.mark.parametrize(("name", "prefix"), [(GPT2, "transformer."), (LLAMA, "model."), (BERT, "bert.")])
def test_names_without_their_prefix_are_known_too(name, prefix, folders, copy_of):
    folder = copy_of(name)
    change_tensors(folder, renamed(lambda tensor: tensor.removeprefix(prefix)))
    assert_same_bits(open_folder(folder).params, open_folder(folders[name]).params)


def test_the_names_of_the_first_bert_are_known(folders, copy_of):
    folder = copy_of(BERT)
    change_tensors(
        folder,
        renamed(lambda n: n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")),
    )
    assert_same_bits(open_folder(folder).params, open_folder(folders[BERT]).params)


def test_buffers_and_tied_copies_are_passed_over(folders, copy_of):
    folder = copy_of(GPT2)
    buffers = {
        "transformer.h.0.attn.bias": np.ones((1, 1, 4, 4), bool),
        "h.1.attn.masked_bias": np.zeros((), np.float32),
    }
    change_tensors(folder, lambda t: {**t, **buffers, "lm_head.weight": t["transformer.wte.weight"].copy()})
    loaded = open_folder(folder)
    assert loaded.config.tied_head
    assert_same_bits(loaded.params, open_folder(folders[GPT2]).params)


def test_a_head_that_differs_from_the_embedding_is_used_whatever_the_config_says(copy_of):
    folder = copy_of(GPT2)
    change_tensors(folder, lambda t: {**t, "lm_head.weight": 2 * t["transformer.wte.weight"]})
    loaded = open_folder(folder)
    theirs = opened(folder, "GPT2LMHeadModel")
    ids = np.arange(12)[None]
    found, _ = loaded.model.forward(loaded.params, ids)
    torch = require("torch")
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
    assert not loaded.config.tied_head
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: {k: v for k, v in t.items() if k != "model.norm.weight"},
            "missing model.norm.weight, unexpected nothing",
        ),
        (lambda t: {**t, "model.extra": np.zeros(3, np.float32)}, "missing nothing, unexpected model.extra"),
        (
            lambda t: {**t, "model.norm.weight": np.zeros(3, np.float32)},
            r"has shape \(3,\), but the config asks for \(30,\)",
        ),
        (lambda t: {**t, "norm.weight": t["model.norm.weight"].copy()}, "are the same tensor"),
        (lambda t: {**t, "model.norm.weight": np.zeros(30, np.int32)}, "holds I32"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, message, copy_of):
    folder = copy_of(LLAMA)
    change_tensors(folder, change)
    with pytest.raises(WeightsError, match=message):
        open_folder(folder)


def test_a_model_without_a_head_says_so(copy_of):
    folder = copy_of(LLAMA)
    change_config(folder, architectures=["LlamaModel"])
    change_tensors(folder, lambda t: {k.removeprefix("model."): v for k, v in t.items() if k != "lm_head.weight"})
    with pytest.raises(WeightsError, match=r"hold no lm_head\.weight.*a model without a head") as caught:
        open_folder(folder)
    assert "LlamaForCausalLM" in caught.value.hint
    change_config(folder, tie_word_embeddings=True)
    assert open_folder(folder).config.tied_head


@pytest.mark.parametrize("name", CASES)
def test_the_config_alone_says_what_the_weights_are(name, tmp_path):
    folder = saved(name, tmp_path)
    config = read_config(folder)
    # A config of this library cannot say that the head of a T5 is its own.
    tied = {} if name != "t5 v1.1" else {"tied_head": False}
    assert config.replace(**tied) == open_folder(folder).config


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        (GPT2, {"add_cross_attention": True}, "add_cross_attention"),
        (GPT2, {"activation_function": "quick_gelu"}, "activation_function = 'quick_gelu'"),
        (GPT2, {"model_type": "gpt3"}, "'gpt3', which is not supported"),
        (GPT2, {"architectures": [[]]}, r"a \[\], which is not supported"),
        (GPT2, {"architectures": {"a": []}}, "which is not supported"),
        (GPT2, {"model_type": None, "architectures": [{}]}, "of the kind '{}', which is not supported"),
        (GPT2, {"layer_norm_epsilon": 10**400}, "layer_norm_epsilon = 1000.*: a number is needed"),
        (GPT2, {"architectures": ["GPT2ForSequenceClassification"]}, "GPT2ForSequenceClassification, which is not"),
        (GPT2, {"quantization_config": {"bits": 4}}, "quantization_config"),
        (GPT2, {"n_layer": 10**9}, "at most 2,048 layers"),
        (GPT2, {"n_layer": 0}, "n_layer = 0"),
        (GPT2, {"n_embd": 10**30}, "n_embd"),
        (GPT2, {"n_embd": 31}, "31 is not divisible by 3 heads"),
        (GPT2, {"n_embd": "30"}, "n_embd = '30'"),
        (GPT2, {"n_embd": True}, "n_embd = True"),
        (GPT2, {"vocab_size": 10**9}, "the config asks for"),
        (GPT2, {"n_positions": 10**9}, "the config asks for"),
        (GPT2, {"layer_norm_epsilon": -1}, "norm_eps is -1"),
        (GPT2, {"layer_norm_epsilon": "small"}, "layer_norm_epsilon"),
        (BERT, {"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        (BERT, {"is_decoder": True}, "is_decoder"),
        (BERT, {"hidden_act": "mish"}, "hidden_act = 'mish'"),
        ("roberta, tokens", {"pad_token_id": 3}, "pad_token_id"),
        ("roberta, tokens", {"hidden_act": "relu"}, "hidden_act"),
        ("roberta, tokens", {"max_position_embeddings": 2}, "max_position_embeddings"),
        ("t5", {"feed_forward_proj": "gated-mish"}, "feed_forward_proj"),
        ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder"),
        (LLAMA, {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_parameters"),
        (LLAMA, {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
        (LLAMA, {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 2]}}, "rope_parameters"),
        (LLAMA, {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        (LLAMA, {"num_key_value_heads": 2}, "cannot share 2 key/value heads"),
        (LLAMA, {**QWEN2, "use_sliding_window": True, "max_window_layers": 1}, "max_window_layers"),
        (LLAMA, {**QWEN2, "layer_types": ["full_attention"] * 2 + ["sliding_attention"]}, "layer_types"),
    ],
)
def test_what_is_not_supported_is_named(name, fields, message, copy_of):
    folder = copy_of(name)
    change_config(folder, **fields)
    with pytest.raises(WeightsError, match=message):
        open_folder(folder)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"model_type": "gpt2", "model_type": "gpt2"}', b"{" + b" " * 5_000_000]
)
def test_a_damaged_config_is_refused(content, copy_of):
    folder = copy_of(GPT2)
    (folder / "config.json").write_bytes(content)
    with pytest.raises(WeightsError, match=r"config\.json"):
        open_folder(folder)


def test_a_missing_field_is_named(copy_of):
    folder = copy_of(GPT2)
    change_config(folder, remove=["n_head"])
    with pytest.raises(WeightsError, match="has no n_head"):
        open_folder(folder)


def test_older_configs_say_the_same(folders, copy_of):
    folder = copy_of(LLAMA)
    change_config(folder, remove=["rope_parameters", "head_dim", "attention_bias", "mlp_bias"], rope_theta=10000.0)
    assert open_folder(folder).config == open_folder(folders[LLAMA]).config
    change_config(
        folder,
        rope_scaling={
            "type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    )
    assert open_folder(folder).config.rotary_scaling.original_context == 32


@pytest.mark.parametrize(("name", "head"), [(BERT, "tokens"), ("bert", "none")])
def test_without_a_class_the_tensors_tell_the_head(name, head, tmp_path):
    folder = saved(name, tmp_path)
    change_config(folder, architectures=None)
    assert open_folder(folder).config.head == head


def test_the_tokens_that_begin_and_end_answers_are_found(copy_of):
    folder = copy_of(LLAMA)
    assert open_folder(folder).end_ids == (1,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 5, 1000, -1, "x"]}')
    make, config = PUBLISHED["sentencepiece BPE"]
    make().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": "{{ messages }}"}))
    loaded = open_folder(folder)
    assert loaded.end_ids == (3, 5)
    assert loaded.start_id == 1
    assert loaded.chat_template == "{{ messages }}"
    (folder / "chat_template.jinja").write_text("{{ 1 }}")
    assert open_folder(folder).chat_template == "{{ 1 }}"


@pytest.mark.parametrize("kind", ["nothing", "special_tokens_map.json", "another role"])
def test_the_start_token_is_that_which_the_tokenizer_puts_first(kind, copy_of):
    folder = copy_of(LLAMA)
    PUBLISHED["sentencepiece BPE"][0]().save(str(folder / "tokenizer.json"))
    if kind == "special_tokens_map.json":
        (folder / kind).write_text('{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}')
    if kind == "another role":
        (folder / "tokenizer_config.json").write_text('{"bos_token": "</s>", "cls_token": "<s>"}')
    loaded = open_folder(folder)
    assert loaded.start_id == 1
    assert ("eos" in loaded.tokenizer.roles) == (kind == "special_tokens_map.json")
    PUBLISHED["Unigram"][0]().save(str(folder / "tokenizer.json"))
    assert open_folder(folder).start_id is None, "a token that ends a text does not begin it"


def test_t5_starts_answers_with_padding(folders):
    assert (open_folder(folders["t5"]).start_id, open_folder(folders["t5"]).end_ids) == (0, (1,))


@pytest.mark.parametrize("name", [GPT2, BERT, "roberta, tokens"])
def test_older_vocabulary_files_make_the_same_tokenizer(name, copy_of):
    transformers = require("transformers")
    folder = copy_of(name)
    if name == BERT:
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sit", ".", "naive"]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    else:
        make, _ = PUBLISHED["byte-level BPE"]
        model = json.loads(make().to_str())["model"]
        vocabulary = dict(model["vocab"])
        for special in ("<s>", "<pad>", "</s>", "<unk>", "<mask>"):
            vocabulary.setdefault(special, len(vocabulary))
        (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
        (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    kind = {GPT2: "GPT2Tokenizer", BERT: "BertTokenizer"}.get(name, "RobertaTokenizer")
    with quiet():
        theirs = getattr(transformers, kind).from_pretrained(folder)
    tokenizer = open_folder(folder).tokenizer
    for text in ("The cats sit.", "  naïve café, it's 42!\n日本", ""):
        assert tokenizer.encode(text, specials=True).tolist() == theirs(text)["input_ids"], text
        assert tokenizer.encode(text).tolist() == theirs(text, add_special_tokens=False)["input_ids"], text


def test_a_folder_without_a_tokenizer_still_has_its_weights(folders):
    assert open_folder(folders["t5"]).tokenizer is None
