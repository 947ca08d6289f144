"""One tiny model of each architecture with a batch of two examples, the second one padded."""

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig, Encoder, EncoderConfig, EncoderDecoder, EncoderDecoderConfig
from glassformer.interpret import watch

ARCHITECTURES = ["encoder", "decoder", "encoder_decoder"]
SIZES = {"width": 8, "heads": 2, "layers": 2, "context": 12}
MASK = np.array([[True] * 5, [True] * 3 + [False] * 2])


@pytest.fixture(params=ARCHITECTURES)
def run(request):
    """A run of each architecture; of some, where a test names them as `run`, indirectly."""
    return watch(*request.getfixturevalue(request.param))


@pytest.fixture
def encoder(rng):
    model = Encoder(EncoderConfig(vocab=5, classes=3, pooling="cls", positions="sinusoidal", **SIZES))
    batch = Batch(rng.integers(0, 5, (2, 5)), np.array([1, 2]), mask=MASK)
    return model, model.init(0, np.float64), batch


@pytest.fixture
def decoder(rng):
    model = Decoder(DecoderConfig(vocab=7, **SIZES))
    tokens = rng.integers(0, 7, (2, 6))
    return model, model.init(0, np.float64), Batch(tokens[:, :-1], tokens[:, 1:], mask=MASK)


@pytest.fixture
def encoder_decoder(rng):
    model = EncoderDecoder(EncoderDecoderConfig(vocab=7, source_vocab=9, encoder_layers=1, **SIZES))
    tokens = rng.integers(0, 7, (2, 6))
    source_mask = np.array([[True] * 4, [True] * 2 + [False] * 2])
    batch = Batch(tokens[:, :-1], tokens[:, 1:], MASK, rng.integers(0, 9, (2, 4)), source_mask)
    return model, model.init(0, np.float64), batch
