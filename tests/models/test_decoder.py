"""The decoder language model."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.config import DecoderConfig
from glassformer.core.tree import flatten
from glassformer.models.decoder import Decoder
from glassformer.models.model import Batch
from glassformer.ops import IGNORE
from glassformer.proofs.case import scattered

SIZES = {"vocab": 9, "width": 12, "heads": 2, "layers": 2, "context": 8, "activation": "gelu_tanh"}
TOKENS = np.array([[1, 4, 1, 0, 7, 2], [1, 1, 8, 3, 3, 5]])


def decoder(**settings):
    model = Decoder(DecoderConfig(**SIZES, **settings))
    return model, scattered(model, np.random.default_rng(0))


@pytest.mark.parametrize(("tied", "parts"), [(True, {}), (False, {"w": (12, 9)})], ids=["tied", "free"])
def test_a_tied_head_has_no_matrix_of_its_own(tied, parts):
    model = Decoder(DecoderConfig(**SIZES, tied_head=tied))
    assert {name: spec.shape for name, spec in model.specs()["head"].items()} == parts


@pytest.mark.parametrize("batched", [False, True], ids=["one for all", "each its own"])
def test_given_positions_leave_the_same_gap_as_a_hidden_token(batched):
    model, params = decoder(positions="rotary")
    seen = np.arange(6) != 2
    whole, _ = model.forward(params, TOKENS, mask=np.broadcast_to(seen, TOKENS.shape))
    positions = np.flatnonzero(seen)
    positions = np.broadcast_to(positions, (2, 5)) if batched else positions
    without, _ = model.forward(params, TOKENS[:, seen], positions=positions)
    assert_close(without, whole[:, seen])


def test_a_batch_in_which_nothing_is_asked_costs_nothing():
    model, params = decoder()
    loss, grads = model.loss_and_grads(params, Batch(TOKENS, np.full_like(TOKENS, IGNORE)))
    assert loss == 0
    assert not any(grad.any() for grad in flatten(grads).values())
