"""The encoder and its heads."""

import numpy as np

from compare import assert_close
from glassformer.config import EncoderConfig
from glassformer.models.encoder import Encoder
from glassformer.proofs.case import scattered

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


def test_classes_are_read_off_the_mean_of_the_real_tokens_or_the_first():
    model, params = encoder(head="classes", classes=3, pooling="mean")
    x = vectors(model, params)
    pooled = np.stack([x[0].mean(axis=0), x[1, :3].mean(axis=0)])
    part = params["classifier"]
    assert_close(model.forward(params, TOKENS, mask=MASK)[0], pooled @ part["w"] + part["b"])

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
