"""The encoder-decoder: a source is read, a target is written."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.config import EncoderDecoderConfig
from glassformer.errors import ConfigError
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.model import Batch
from glassformer.proofs.layer_cases import scattered
from glassformer.tree import flatten

SIZES = {"vocab": 9, "width": 8, "heads": 2, "layers": 2, "context": 6, "activation": "gelu_tanh"}
SOURCE = np.array([[3, 1, 4], [1, 5, 8]])
TOKENS = np.array([[1, 4, 1, 0, 7], [1, 1, 8, 3, 3]])


def encoder_decoder(**settings):
    model = EncoderDecoder(EncoderDecoderConfig(**SIZES, **settings))
    return model, scattered(model, np.random.default_rng(0))


def test_it_is_two_stacks_of_which_the_second_looks_at_the_first():
    model, params = encoder_decoder()
    memory, *_ = model.encode(params, SOURCE)
    x, _ = model.embedding.forward(params["embedding"], TOKENS)
    x, _ = model.decoder.forward(params["decoder"], x, memory)
    expected, _ = model.head.forward(params["head"], x, params["embedding"]["tokens"]["table"])
    logits, saved = model.forward(params, SOURCE, TOKENS)
    assert_close(logits, expected)
    assert saved.keys() == {"source_embedding", "encoder", "embedding", "decoder", "head"}


def test_the_stacks_may_differ_in_depth():
    _, params = encoder_decoder(encoder_layers=1)
    assert len(params["encoder"]["blocks"]) == 1
    assert len(params["decoder"]["blocks"]) == 2
    assert "cross_attention" not in params["encoder"]["blocks"][0]
    assert "cross_attention" in params["decoder"]["blocks"][0]


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


def test_a_batch_without_a_source_is_refused():
    model, params = encoder_decoder()
    with pytest.raises(ConfigError, match="the batch has no source") as caught:
        model.loss(params, Batch(TOKENS, TOKENS))
    assert "source=" in caught.value.hint
