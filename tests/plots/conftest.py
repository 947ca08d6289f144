"""One tiny model of each architecture with one example, and the warnings that pictures must not cause."""

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig, Encoder, EncoderConfig, EncoderDecoder, EncoderDecoderConfig

SIZES = {"width": 8, "heads": 2, "layers": 1, "context": 8}


@pytest.fixture
def encoder(rng):
    model = Encoder(EncoderConfig(vocab=5, classes=3, positions="sinusoidal", **SIZES))
    return model, model.init(0), Batch(rng.integers(0, 5, (3, 5)), np.array([1, 2, 0]))


@pytest.fixture
def decoder(rng):
    model = Decoder(DecoderConfig(vocab=7, **SIZES))
    tokens = rng.integers(0, 7, (1, 6))
    return model, model.init(0), Batch(tokens[:, :-1], tokens[:, 1:])


@pytest.fixture
def encoder_decoder(rng):
    model = EncoderDecoder(EncoderDecoderConfig(vocab=7, source_vocab=9, **SIZES))
    tokens = rng.integers(0, 7, (1, 5))
    return model, model.init(0), Batch(tokens[:, :-1], tokens[:, 1:], source=rng.integers(0, 9, (1, 6)))
