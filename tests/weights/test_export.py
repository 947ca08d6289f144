"""Out again: `transformers` reads what we write, without a word, and reading it ourselves gives the same bits."""

import json
import logging
import os
import warnings
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from family_models import CASES, model_of, run, saved
from glassformer.api.loading import load, read_model
from glassformer.api.trained_model import TrainedModel
from glassformer.config import EncoderConfig
from glassformer.core.errors import ConfigError, WeightsError
from glassformer.core.tree import flatten
from glassformer.models import build, preset
from glassformer.models.model import Pooling
from glassformer.text import ByteTokenizer, CharTokenizer, PublishedTokenizer, WordTokenizer
from glassformer.weights.export import export_folder, family_for, published_form
from glassformer.weights.families import FAMILIES
from glassformer.weights.folder import open_folder
from glassformer.weights.tensors import SINGLE
from oracles import require
from runs import assert_same_bits, tiny_session
from tokenizer_files import PUBLISHED

TEXT = "The quick brown fox jumps over the lazy dog.\n"


@pytest.fixture
def said():
    """What `transformers` logs as a warning or worse."""

    class Kept(logging.Handler):
        def __init__(self):
            super().__init__(logging.WARNING)
            self.messages = []

        def emit(self, record):
            self.messages.append(record.getMessage())

    logger, kept = logging.getLogger("transformers"), Kept()
    require("transformers").utils.logging.set_verbosity_warning()
    require("transformers").utils.logging.disable_progress_bar()
    logger.addHandler(kept)
    yield kept.messages
    logger.removeHandler(kept)


def read_by_transformers(folder):
    """The model of the class that config.json names; a warning is an error."""
    transformers = require("transformers")
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return getattr(transformers, kind).from_pretrained(folder, dtype=require("torch").float32).eval()


@pytest.mark.parametrize("name", CASES)
def test_the_reference_reads_an_export_silently_and_computes_the_same(name, tmp_path, said):
    model = model_of(name)
    loaded = open_folder(saved(name, tmp_path / "theirs", model=model))
    said.clear()
    export_folder(loaded, tmp_path / "ours")
    again = read_by_transformers(tmp_path / "ours")
    if name == "t5 v1.1":  # its class says so about every model of this kind, its own files included
        said = [text for text in said if "but both are present in the checkpoints" not in text]
    assert said == []
    ids = np.random.default_rng(0).integers(2, 40, (2, 30))
    before, after = run(model, ids), run(again, ids)
    np.testing.assert_array_equal(after["output"], before["output"])


@pytest.mark.parametrize("name", CASES)
def test_an_export_read_again_has_the_same_bits(name, tmp_path):
    loaded = open_folder(saved(name, tmp_path / "theirs"))
    export_folder(loaded, tmp_path / "ours")
    again = open_folder(tmp_path / "ours")
    assert_same_bits(again.params, loaded.params)
    assert_same_bits(again.extras, loaded.extras)
    assert again.config == loaded.config
    assert (again.family, again.start_id, again.end_ids) == (loaded.family, loaded.start_id, loaded.end_ids)


def test_the_tokenizer_and_the_template_go_along(tmp_path, said):
    make, config = PUBLISHED["sentencepiece BPE"]
    loaded = open_folder(saved("llama", tmp_path / "theirs"))
    make().save(str(tmp_path / "theirs" / "tokenizer.json"))
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = replace(open_folder(tmp_path / "theirs"), chat_template="{{ messages[0]['content'] }}")
    export_folder(loaded, tmp_path / "ours")
    again = open_folder(tmp_path / "ours")
    assert again.tokenizer.encode(TEXT).tolist() == loaded.tokenizer.encode(TEXT).tolist()
    assert (again.start_id, again.end_ids, again.chat_template) == (1, (1,), loaded.chat_template)
    said.clear()
    theirs = require("transformers").AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert theirs(TEXT)["input_ids"] == loaded.tokenizer.encode(TEXT, specials=True).tolist()
    assert theirs.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi"
    assert said == []


@pytest.mark.parametrize("pooling", [Pooling(), Pooling("first", normalize=False)])
def test_the_pooling_of_a_sentence_encoder_goes_along(pooling, tmp_path):
    loaded = replace(open_folder(saved("bert", tmp_path / "theirs")), pooling=pooling)
    export_folder(loaded, tmp_path / "ours")
    assert open_folder(tmp_path / "ours").pooling == pooling


def test_the_pooler_of_bert_is_kept_and_one_that_never_was_is_zero(tmp_path, said):
    loaded = open_folder(saved("bert", tmp_path / "theirs"))
    assert sorted(loaded.extras) == ["pooler.dense.bias", "pooler.dense.weight"]
    said.clear()
    export_folder(replace(loaded, extras={}), tmp_path / "ours")
    assert not read_by_transformers(tmp_path / "ours").pooler.dense.weight.any()
    assert said == []


_BERT = {"vocab": 9, "width": 8, "heads": 2, "layers": 1, "context": 8, "norm_position": "post", "embedding_norm": True}
_EURO = {"vocab": 9, "width": 8, "heads": 2, "layers": 1, "context": 8, "norm": "rms", "positions": "rotary"}
_EURO |= {"activation": "silu", "gated": True, "attention_bias": False, "feed_forward_bias": False}
OWN = {
    "gpt2": preset("tiny-decoder"),
    "gpt_neox": preset("tiny-decoder", positions="rotary", attention_bias=False, rotary_base=500.0),
    "bert": EncoderConfig(**_BERT, head="tokens", head_bias=True, segments=2, tied_head=False),
    "distilbert": EncoderConfig(**_BERT, head="none", norm_eps=1e-12),
    "t5": preset("t5-small", vocab=9, width=8, heads=2, layers=1, feed_forward=6, head_width=4),
    "llama": preset("llama-3.1-8b", vocab=9, width=8, heads=4, kv_heads=2, layers=1, feed_forward=6, context=16384),
    "mistral": preset(
        "mistral-7b", vocab=9, width=8, heads=4, kv_heads=2, layers=1, feed_forward=6, context=64, window=5
    ),
    "eurobert": EncoderConfig(**_EURO, classes=3, pooled_activation="gelu"),
    "qwen2": preset("qwen2-0.5b", vocab=9, width=8, heads=4, kv_heads=2, layers=1, feed_forward=6, context=64),
}


@pytest.mark.parametrize("family", OWN)
def test_a_model_of_our_own_goes_to_the_family_that_computes_it(family, tmp_path, said):
    torch, config = require("torch"), OWN[family]
    params = build(config).init(0)
    assert family_for(config)[0].name == family
    export_folder(TrainedModel(config, params, family=""), tmp_path)
    theirs = read_by_transformers(tmp_path)
    assert said == []
    ids = np.array([[1, 5, 3, 8]])
    ours = build(config).forward(params, *([ids, ids] if family == "t5" else [ids]))[0]
    more = {"decoder_input_ids": torch.tensor(ids)} if family == "t5" else {}
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(ids), **more)[0].numpy()
    assert np.abs(ours - expected).max() <= 1e-5 * np.abs(expected).max()


def test_neighboring_rotary_pairs_are_reordered(tmp_path):
    torch = require("torch")
    config = OWN["llama"].replace(rotary_pairing="interleaved")
    params = build(config).init(0)
    export_folder(TrainedModel(config, params, family="llama"), tmp_path)
    ids = np.arange(9)[None]
    with torch.no_grad():
        expected = read_by_transformers(tmp_path)(torch.tensor(ids)).logits.numpy()
    assert np.abs(build(config).forward(params, ids)[0] - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("config", "fact", "hint"),
    [
        (preset("tiny-decoder", positions="alibi"), "positions='alibi'", "train with --set positions=learned"),
        (preset("tiny-decoder", positions="sinusoidal", attention_bias=False), None, "--set positions=learned"),
        (preset("counting"), "norm_position='post'", "train with --set norm_position=pre"),
        (preset("tiny-decoder", stride=3), "stride=3", "train with --set stride=null"),
        (preset("majority"), "the nearest, eurobert, cannot have gated=False", "keep the run folder"),
        (preset("tiny-seq2seq", source_vocab=40), None, "keep the run folder"),
    ],
)
def test_a_setting_that_no_family_has_is_named_with_those_to_train_with(config, fact, hint):
    with pytest.raises(WeightsError, match=fact) as caught:
        family_for(config)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "name",
    ["gpt2", "bert-large", "t5-v1.1-small", "llama-3.1-70b", "mistral-7b", "qwen2-0.5b", "smollm2-135m", "minilm"],
)
def test_the_presets_of_published_models_have_a_family(name):
    assert family_for(preset(name))[0].name in FAMILIES


def test_an_export_that_fails_leaves_nothing_and_can_be_tried_again(tmp_path, monkeypatch):
    config = OWN["gpt2"]
    loaded = TrainedModel(config=config, params=build(config).init(0), family="gpt2")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("glassformer.weights.export._write", full)
        with pytest.raises(WeightsError, match="cannot be written: the disk is full"):
            export_folder(loaded, tmp_path / "deep" / "ours")
        patch.setattr("glassformer.weights.export.write_tensors", full)
        with pytest.raises(WeightsError, match="cannot be written: the disk is full"):
            export_folder(loaded, tmp_path / "deep" / "ours")
    assert list((tmp_path / "deep").iterdir()) == []
    (tmp_path / "deep" / "ours").mkdir()  # an empty one may be there
    monkeypatch.chdir(tmp_path / "deep")
    files = export_folder(loaded, "ours")
    assert [str(file) for file in files] == [f"ours/{n}" for n in ("config.json", "generation_config.json", SINGLE)]
    assert os.listdir(tmp_path / "deep") == ["ours"]
    os.mkdir("here")
    monkeypatch.chdir("here")
    export_folder(loaded, ".")
    assert (tmp_path / "deep" / "here" / SINGLE).is_file()


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        export_folder(TrainedModel(OWN["gpt2"], build(OWN["gpt2"]).init(0), family=""), tmp_path)


@pytest.mark.parametrize(
    "tokenizer",
    [CharTokenizer(TEXT, specials=("<bos>", "<eos>")), CharTokenizer(TEXT), ByteTokenizer(specials=("<eos>",))],
)
def test_our_plain_tokenizers_have_a_published_form(tokenizer):
    form = published_form(tokenizer)
    assert isinstance(form, PublishedTokenizer)
    assert form.size == tokenizer.size
    assert form.specials == tokenizer.specials
    texts = [TEXT, "dog", ""] + (["naïve 日本\n"] if isinstance(tokenizer, ByteTokenizer) else [])
    for text in texts:
        assert form.encode(text).tolist() == tokenizer.encode(text).tolist()
        assert form.decode(tokenizer.encode(text)) == text


def test_a_tokenizer_of_words_has_none():
    assert published_form(WordTokenizer(["a", "b"])) is None


def test_a_trained_run_is_exported_with_its_tokenizer(tmp_path):
    """It has no biases, as GPT-2 does: they are written as zeros."""
    list(tiny_session("text", tmp_path / "run", steps=1, eval_every=1, positions="learned").steps())
    loaded = read_model(tmp_path / "run")
    export_folder(loaded, tmp_path / "out")
    again = open_folder(tmp_path / "out")
    have, want = flatten(again.params), flatten(loaded.params)
    assert_same_bits({name: have[name] for name in want}, want)
    assert not any(have[name].any() for name in have.keys() - want.keys())
    ids = np.arange(9)[None]
    np.testing.assert_array_equal(*(m.model.forward(m.params, ids)[0] for m in (again, loaded)))
    assert again.tokenizer.encode("The quick").tolist() == loaded.tokenizer.encode("The quick").tolist()


@pytest.mark.parametrize("settings", [{}, {"tokenizer": "bytes", "norm_bias": False}], ids=str)
def test_a_default_run_on_text_says_the_same_in_transformers(settings, tmp_path, said):
    """Logits, and the text it writes."""
    torch, transformers = require("torch"), require("transformers")
    list(tiny_session("text", tmp_path / "run", steps=3, eval_every=3, **settings).steps())
    ours = load(tmp_path / "run")
    export_folder(read_model(tmp_path / "run"), tmp_path / "out")
    theirs = read_by_transformers(tmp_path / "out")
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (theirs.config.model_type, said) == ("gpt_neox", [])
    ids = torch.tensor([reader.encode("The ")])
    assert ids[0].tolist() == ours.tokenizer.encode("The ").tolist()
    with torch.no_grad():
        expected = theirs(ids).logits.numpy()
        settings = {"do_sample": False, "max_new_tokens": 12, "attention_mask": torch.ones_like(ids)}
        answer = theirs.generate(ids, **settings)[0, ids.shape[1] :]
    found, _ = ours.model.forward(ours.params, ids.numpy())
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    assert reader.decode(answer) == ours.generate("The ", temperature=0, max_new_tokens=12).text


REVIEWS = [
    {"text": f"{subject} was {rest} {word}", "label": label}
    for label, words in (("bad", ("dull", "weak", "poor")), ("good", ("fine", "bright", "lovely")))
    for word in words
    for subject in ("The film", "a STORY", "its plot", "Naïve 日本 music", "the end")
    for rest in ("so", "at times rather", "in every one of its very many long scenes just as")
]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tokenizer": "bpe", "init_std": None, "layers": 2},
        {"tokenizer": "chars", "pooling": "first", "attention_bias": True, "feed_forward_bias": True},
        {"pooled_activation": "gelu"},
    ],
    ids=str,
)
def test_a_classifier_of_ones_own_texts_says_the_same_in_transformers_and_read_again(settings, tmp_path, said, capsys):
    """Ids, cut to the context and padded, labels and probabilities."""
    torch, transformers = require("torch"), require("transformers")
    ours = gf.train(REVIEWS, steps=20, longest=12, **settings)
    assert "\nexports to transformers as EuroBertForSequenceClassification\n" in capsys.readouterr().err
    ours.export(tmp_path / "out")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = [*(row["text"] for row in REVIEWS), "dull"]
    read = reader(texts, truncation=True, padding=True, return_tensors="pt")
    ids = [row[real.bool()].tolist() for row, real in zip(read["input_ids"], read["attention_mask"], strict=True)]
    assert ids == [ours.tokenizer.encode(text)[:12].tolist() for text in texts]
    assert len({len(row) for row in ids}) > 1, "nothing was padded"
    with torch.no_grad():
        expected = theirs(**read).logits.softmax(-1).numpy()
    answers = ours.classify(ids)
    found = np.array([[answer.probabilities[name] for name in theirs.config.label2id] for answer in answers])
    assert np.abs(found - expected).max() <= 1e-5
    assert theirs.config.id2label == {0: "bad", 1: "good"}
    assert said == []
    again = load(tmp_path / "out")
    assert (again.labels, again.model.config.pooled_activation) == (("bad", "good"), "gelu")
    if ours.config.pooled_activation is not None:
        assert_same_bits(again.params, ours.params)
    same = np.array([list(answer.probabilities.values()) for answer in again.classify(ids)])
    assert np.abs(same - found).max() <= 1e-5


def test_a_layer_that_is_added_before_the_classes_changes_nothing_however_large_the_gains_are(tmp_path, rng):
    torch, config = require("torch"), EncoderConfig(**_EURO, classes=3)
    params = build(config).init(0)
    params["final_norm"]["gamma"] = (20 * rng.standard_normal(8)).astype(np.float32)
    export_folder(TrainedModel(config, params, family=""), tmp_path)
    ids = rng.integers(0, 9, (50, 3))
    with torch.no_grad():
        expected = read_by_transformers(tmp_path)(torch.tensor(ids)).logits.numpy()
    ours = build(config).forward(params, ids)[0]
    assert np.abs(ours - expected).max() <= 1e-5 * np.abs(ours).max()


def test_what_no_family_computes_says_so_before_it_is_trained():
    lines = gf.Loop(REVIEWS, steps=1, positions="learned").session.opening
    assert lines[-1] == (
        "cannot be exported to transformers: no published family computes this encoder; the nearest, eurobert, cannot "
        "have positions='learned'; train with --set positions=rotary"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"classifier_pooling": "late"}, "classifier_pooling = 'late': supported: mean, bos"),
        ({"problem_type": "multi_label_classification"}, "only None or 'single_label_classification' is supported"),
        ({"id2label": {"0": "a", "2": "b"}}, "a name for each of the numbers"),
        ({"id2label": {"0": "a", "1": 3, "2": "c"}}, "names are needed"),
    ],
)
def test_what_a_classifier_of_eurobert_computes_otherwise_is_refused(fields, message, tmp_path):
    folder = saved("eurobert, classes", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert open_folder(folder).labels == ("no", "maybe", "yes")
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    with pytest.raises(WeightsError, match=message):
        open_folder(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rope_parameters": {"partial_rotary_factor": 0.6}}, "of which 3 turn"),
        ({"rope_parameters": {"rope_type": "linear"}}, "only 'default' is supported"),
        ({"rope_parameters": {"factor": 2.0}}, "settings that are not supported"),
    ],
)
def test_what_blocks_of_gpt_neox_compute_otherwise_is_refused(fields, message, tmp_path):
    folder = saved("gpt_neox", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    with pytest.raises(WeightsError, match=message):
        open_folder(folder)
