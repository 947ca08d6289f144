"""The loss in pieces is the loss at once."""

import numpy as np
import pytest

from glassformer import ops
from glassformer.interpret import losses

pytestmark = pytest.mark.usefixtures("numpy_engine")


@pytest.mark.parametrize("ignored", [0, 3, 12])
def test_a_loss_in_pieces_and_its_gradient_are_those_at_once(ignored, rng, monkeypatch):
    logits, targets = rng.standard_normal((2, 6, 5)), rng.integers(0, 5, (2, 6))
    targets.reshape(-1)[:ignored] = ops.IGNORE
    loss, saved = ops.cross_entropy(logits, targets)
    assert losses.mean_loss(logits, targets) == loss
    monkeypatch.setattr(losses, "PIECE", 20)
    np.testing.assert_allclose(losses.mean_loss(logits, targets), loss, rtol=1e-14)
    np.testing.assert_allclose(
        losses.loss_gradient(logits, targets), ops.cross_entropy_backward(1.0, saved), rtol=1e-14, atol=1e-16
    )
