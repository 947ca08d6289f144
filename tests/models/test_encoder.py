"""The encoder and its heads."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.config import EncoderConfig
from glassformer.errors import ConfigError
from glassformer.models.encoder import Encoder
from glassformer.models.model import Batch
from glassformer.proofs.layer_cases import scattered
from glassformer.tree import flatten

SIZES = {"vocab": 9, "width": 8, "heads": 2, "layers": 2, "context": 6, "activation": "gelu_tanh"}
TOKENS = np.array([[1, 4, 1, 0, 7], [1, 1, 8, 3, 3]])
MASK = np.array([[True] * 5, [True, True, True, False, False]])


def encoder(**settings):
    model = Encoder(EncoderConfig(**SIZES, **settings))
    return model, scattered(model, np.random.default_rng(0))


def vectors(model, params):
    """What the same blocks make of the tokens when nothing is pooled."""
    plain = Encoder(EncoderConfig(**SIZES, head="none"))
    return plain.forward({name: params[name] for name in plain.specs()}, TOKENS, mask=MASK)[0]


def test_classes_are_read_off_the_mean_of_the_real_tokens():
    model, params = encoder(head="classes", classes=3, pooling="mean")
    x = vectors(model, params)
    pooled = np.stack([x[0].mean(axis=0), x[1, :3].mean(axis=0)])
    part = params["classifier"]
    assert_close(model.forward(params, TOKENS, mask=MASK)[0], pooled @ part["w"] + part["b"])


def test_classes_are_read_off_the_first_token():
    model, params = encoder(head="classes", classes=3, pooling="first")
    part = params["classifier"]
    expected = vectors(model, params)[:, 0] @ part["w"] + part["b"]
    assert_close(model.forward(params, TOKENS, mask=MASK)[0], expected)


def test_a_learned_vector_stands_before_the_tokens_and_is_never_padding():
    model, params = encoder(head="classes", classes=3, pooling="cls")
    assert params["cls"].shape == (8,)
    logits, saved = model.forward(params, TOKENS, mask=MASK)
    assert logits.shape == (2, 3)
    weights = saved["blocks"][0]["attention"].weights
    assert weights.shape == (2, 2, 6, 6)
    assert weights[1, :, :, 0].all()
    assert not weights[1, :, :, 4:].any()


def test_a_head_for_tokens_says_something_at_every_place():
    model, params = encoder(head="tokens")
    assert model.forward(params, TOKENS, mask=MASK)[0].shape == (2, 5, 9)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"head": "none"}, []),
        ({"head": "tokens"}, ["head"]),
        ({"head": "classes", "classes": 3, "pooling": "mean"}, ["classifier"]),
        ({"head": "classes", "classes": 3, "pooling": "cls"}, ["classifier", "cls"]),
    ],
    ids=str,
)
def test_each_head_has_its_own_parameters(settings, parts):
    model, params = encoder(**settings)
    assert model.specs().keys() - {"embedding", "blocks", "final_norm"} == set(parts)
    if settings["head"] != "none":
        targets = TOKENS if settings["head"] == "tokens" else np.array([0, 2])
        _, grads = model.loss_and_grads(params, Batch(TOKENS, targets, MASK))
        assert list(flatten(grads)) == list(flatten(params))


def test_an_encoder_without_a_head_predicts_nothing():
    model, params = encoder(head="none")
    with pytest.raises(ConfigError, match="no head to predict with") as caught:
        model.predict(params, Batch(TOKENS))
    assert "forward" in caught.value.hint
