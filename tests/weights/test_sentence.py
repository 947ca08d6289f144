"""Vectors of texts: those of the reference, on a published encoder of sentences."""

import json

import numpy as np
import pytest

from family_models import quiet, saved
from glassformer.core.errors import ConfigError, LengthError, WeightsError
from glassformer.models.model import Pooling
from glassformer.weights.folder import open_folder
from glassformer.weights.sentence import embed, similarities
from oracles import require
from published_models import pulled
from tokenizer_files import PUBLISHED

SUBJECTS = (
    "A cat",
    "The dog",
    "My neighbor",
    "An old teacher",
    "Nobody",
    "The committee",
    "A small robot",
    "She",
    "Every child in the village",
    "The 3rd engineer",
)
ENDINGS = (
    "sleeps.",
    "is reading a book about the history of naval warfare!",
    "bought 12 apples — and one pear.",
    "wonders: what does “naïve” mean?",
    "runs faster than the train from Zürich to Genève on a rainy day.",
)
SENTENCES = [f"{subject} {ending}" for subject in SUBJECTS for ending in ENDINGS]


@pytest.fixture(scope="module")
def minilm():
    """The folder of all-MiniLM-L6-v2."""
    return pulled("minilm")


def reference(folder, texts):
    """Mean of the last layer's vectors over real tokens, normalized: as its model card says."""
    torch, transformers = require("torch"), require("transformers")
    with quiet():
        model = transformers.BertModel.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        vectors = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None].to(vectors.dtype)
    return torch.nn.functional.normalize((vectors * mask).sum(1) / mask.sum(1)).numpy()


def test_fifty_sentences_have_the_vectors_of_the_reference_alone_and_among_others(minilm):
    loaded = open_folder(minilm)
    assert loaded.pooling == Pooling("mean", normalize=True)
    found, expected = embed(loaded, SENTENCES), reference(minilm, SENTENCES)
    assert found.shape == (50, 384)
    assert found.dtype == np.float32
    assert np.sum(found * expected, axis=-1).min() >= 0.999999
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, atol=1e-5)
    ours, theirs = similarities(found), similarities(expected)
    np.testing.assert_array_equal(np.argsort(-ours, axis=-1), np.argsort(-theirs, axis=-1))

    loaded = open_folder(minilm)
    together = embed(loaded, SENTENCES[:7])
    alone = np.concatenate([embed(loaded, [text]) for text in SENTENCES[:7]])
    assert np.abs(together - alone).max() < 1e-6


@pytest.fixture
def small(tmp_path):
    """A small BERT with a tokenizer, ready to be turned into an encoder of sentences."""
    folder = saved("bert, tokens", tmp_path)
    make, config = PUBLISHED["WordPiece"]
    make().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def make_sentence_encoder(folder, pooling, *kinds):
    steps = [
        {"idx": i, "path": "1_Pooling" if kind == "Pooling" else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(steps))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.mark.parametrize(
    ("pooling", "kinds", "expected"),
    [
        ({"pooling_mode_mean_tokens": True}, ("Transformer", "Pooling", "Normalize"), Pooling("mean", normalize=True)),
        ({"pooling_mode_cls_token": True}, ("Transformer", "Pooling"), Pooling("first", normalize=False)),
        ({"pooling_mode": "mean"}, ("Transformer", "Pooling"), Pooling("mean", normalize=False)),
    ],
)
def test_the_pooling_is_that_of_the_files(pooling, kinds, expected, small):
    make_sentence_encoder(small, pooling, *kinds)
    assert open_folder(small).pooling == expected


@pytest.mark.parametrize(
    ("pooling", "kinds", "message"),
    [
        ({"pooling_mode_max_tokens": True}, ("Transformer", "Pooling"), "pools by pooling_mode_max_tokens"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ("Transformer", "Pooling"), "pools by"),
        ({}, ("Transformer", "Pooling"), "pools by nothing"),
        ({"pooling_mode_mean_tokens": True}, ("Transformer", "Pooling", "Dense"), "has a step 'Dense'"),
    ],
)
def test_steps_that_are_not_supported_are_named(pooling, kinds, message, small):
    make_sentence_encoder(small, pooling, *kinds)
    with pytest.raises(WeightsError, match=message):
        open_folder(small)


@pytest.mark.parametrize("path", ["../secret", "/etc", "", None, ".."])
def test_the_steps_cannot_point_outside_the_folder(path, small):
    make_sentence_encoder(small, {}, "Pooling")
    (small / "modules.json").write_text(json.dumps([{"type": "a.Pooling", "path": path}]))
    with pytest.raises(WeightsError, match="points outside its folder"):
        open_folder(small)


@pytest.mark.parametrize("content", ["", "{}", "[5]", '[{"a": 1, "a": 2}]', "[" * 100_000])
def test_damaged_steps_are_refused(content, small):
    (small / "modules.json").write_text(content)
    with pytest.raises(WeightsError, match=r"modules\.json is damaged"):
        open_folder(small)


def test_an_empty_list_has_no_vectors_and_a_text_that_is_too_long_is_refused(small):
    assert embed(open_folder(small), []).shape == (0, 30)
    with pytest.raises(LengthError, match="tokens but this model reads 1 to 96"):
        embed(open_folder(small), ["fox " * 200])


def test_only_encoders_with_a_tokenizer_give_vectors(tmp_path):
    with pytest.raises(ConfigError, match="only encoders give vectors"):
        embed(open_folder(saved("gpt2", tmp_path)), ["a"])
    with pytest.raises(WeightsError, match="has no tokenizer"):
        embed(open_folder(saved("bert", tmp_path)), ["a"])
