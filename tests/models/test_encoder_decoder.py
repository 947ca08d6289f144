"""The three architectures: what each looks at, and what it is read off."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from glassformer.core.tree import flatten
from glassformer.models.decoder import Decoder
from glassformer.models.encoder import Encoder
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.model import Batch
from glassformer.ops import IGNORE
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


MASK = np.array([[True] * 5, [True, True, True, False, False]])


def encoder(**settings):
    model = Encoder(EncoderConfig(**SIZES, **settings))
    return model, scattered(model, np.random.default_rng(0))


def vectors(model, params):
    """What the same blocks make of the tokens when nothing is pooled."""
    plain = Encoder(EncoderConfig(**SIZES, head="none"))
    return plain.forward({name: params[name] for name in plain.specs()}, TOKENS, mask=MASK)[0]


def test_classes_are_read_off_the_mean_of_the_real_tokens_the_first_or_a_learned_vector():
    model, params = encoder(head="classes", classes=3, pooling="mean")
    x = vectors(model, params)
    pooled = np.stack([x[0].mean(axis=0), x[1, :3].mean(axis=0)])
    part = params["classifier"]
    assert_close(model.forward(params, TOKENS, mask=MASK)[0], pooled @ part["w"] + part["b"])

    model, params = encoder(head="classes", classes=3, pooling="first")
    part = params["classifier"]
    expected = vectors(model, params)[:, 0] @ part["w"] + part["b"]
    assert_close(model.forward(params, TOKENS, mask=MASK)[0], expected)

    model, params = encoder(head="classes", classes=3, pooling="cls")
    assert params["cls"].shape == (8,)
    logits, saved = model.forward(params, TOKENS, mask=MASK)
    assert logits.shape == (2, 3)
    weights = saved["blocks"][0]["attention"].weights
    assert weights.shape == (2, 2, 6, 6)
    assert weights[1, :, :, 0].all()
    assert not weights[1, :, :, 4:].any()


DECODER = {"vocab": 9, "width": 12, "heads": 2, "layers": 2, "context": 8, "activation": "gelu_tanh"}
WRITTEN = np.array([[1, 4, 1, 0, 7, 2], [1, 1, 8, 3, 3, 5]])


def decoder(**settings):
    model = Decoder(DecoderConfig(**DECODER, **settings))
    return model, scattered(model, np.random.default_rng(0))


@pytest.mark.parametrize(("tied", "parts"), [(True, {}), (False, {"w": (12, 9)})], ids=["tied", "free"])
def test_a_tied_head_has_no_matrix_of_its_own(tied, parts):
    model = Decoder(DecoderConfig(**DECODER, tied_head=tied))
    assert {name: spec.shape for name, spec in model.specs()["head"].items()} == parts


@pytest.mark.parametrize("batched", [False, True], ids=["one for all", "each its own"])
def test_given_positions_leave_the_same_gap_as_a_hidden_token(batched):
    model, params = decoder(positions="rotary")
    seen = np.arange(6) != 2
    whole, _ = model.forward(params, WRITTEN, mask=np.broadcast_to(seen, WRITTEN.shape))
    positions = np.flatnonzero(seen)
    positions = np.broadcast_to(positions, (2, 5)) if batched else positions
    without, _ = model.forward(params, WRITTEN[:, seen], positions=positions)
    assert_close(without, whole[:, seen])


def test_a_batch_in_which_nothing_is_asked_costs_nothing():
    model, params = decoder()
    loss, grads = model.loss_and_grads(params, Batch(WRITTEN, np.full_like(WRITTEN, IGNORE)))
    assert loss == 0
    assert not any(grad.any() for grad in flatten(grads).values())
