"""The encoder-decoder: a source is read, a target is written."""

import numpy as np
import pytest

from glassformer.config import EncoderDecoderConfig
from glassformer.core.tree import flatten
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.model import Batch
from glassformer.proofs.case import scattered

SIZES = {"vocab": 9, "width": 8, "heads": 2, "layers": 2, "context": 6, "activation": "gelu_tanh"}
SOURCE = np.array([[3, 1, 4], [1, 5, 8]])
TOKENS = np.array([[1, 4, 1, 0, 7], [1, 1, 8, 3, 3]])


def encoder_decoder(**settings):
    model = EncoderDecoder(EncoderDecoderConfig(**SIZES, **settings))
    return model, scattered(model, np.random.default_rng(0))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "apart"])
def test_a_shared_table_is_a_parameter_once(shared):
    model, params = encoder_decoder(shared_embedding=shared)
    assert ("source_embedding.tokens.table" in flatten(params)) == (not shared)
    _, grads = model.loss_and_grads(params, Batch(TOKENS, TOKENS, source=SOURCE))
    assert list(flatten(grads)) == list(flatten(params))


def test_the_whole_source_is_seen_by_every_target_token():
    model, params = encoder_decoder()
    before, _ = model.forward(params, SOURCE, TOKENS)
    changed = SOURCE.copy()
    changed[0, -1] = 0
    after, _ = model.forward(params, changed, TOKENS)
    assert (np.abs(after[0] - before[0]).max(axis=-1) > 1e-9).all()
    np.testing.assert_array_equal(after[1], before[1])
