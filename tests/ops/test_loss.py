"""Cross-entropy."""

import numpy as np
import pytest

from compare import assert_close, assert_equals_torch
from glassformer.ops import IGNORE, cross_entropy, cross_entropy_backward

PAIR = (cross_entropy, cross_entropy_backward)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("ignored", [0.0, 0.4])
@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("shape", [(7,), (2, 6), (2, 2, 3)])
def test_cross_entropy_equals_pytorch(torch, rng, shape, weighted, ignored, smoothing):
    logits = rng.standard_normal((*shape, 5)) * 3
    targets = np.where(rng.random(shape) < ignored, IGNORE, rng.integers(0, 5, shape))
    targets.flat[0] = 1
    weights = rng.uniform(0.1, 3, 5) if weighted else None

    def by_torch(x):
        weight = None if weights is None else torch.tensor(weights)
        flat = x.reshape(-1, 5), torch.tensor(targets.reshape(-1))
        return torch.nn.functional.cross_entropy(*flat, weight=weight, label_smoothing=smoothing)

    settings = {"smoothing": smoothing}
    assert_equals_torch(
        PAIR, by_torch, [logits], extra=(targets,), backward=settings, class_weights=weights, **settings
    )


def test_another_number_may_stand_for_ignored(torch, rng):
    logits, targets = rng.standard_normal((4, 5)), np.array([1, 0, 2, 0])
    assert_equals_torch(
        PAIR,
        lambda x: torch.nn.functional.cross_entropy(x, torch.tensor(targets), ignore_index=0),
        [logits],
        extra=(targets,),
        backward={"ignore": 0},
        ignore=0,
    )


def test_one_row_is_enough(rng):
    logits = rng.standard_normal(5)
    loss, saved = cross_entropy(logits, np.array(3))
    assert_close(loss, np.log(np.exp(logits).sum()) - logits[3])
    assert cross_entropy_backward(np.ones(()), saved).shape == (5,)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_if_nothing_counts_the_loss_and_its_gradient_are_zero(rng, smoothing):
    logits, targets = rng.standard_normal((2, 3, 5)), np.full((2, 3), IGNORE)
    loss, saved = cross_entropy(logits, targets, smoothing=smoothing)
    assert loss == 0
    assert not cross_entropy_backward(np.ones(()), saved, smoothing=smoothing).any()


def test_losses_of_positions_average_to_the_loss_without_those_that_are_ignored(rng):
    logits, targets = rng.standard_normal((4, 5)), np.array([0, 3, IGNORE, IGNORE])
    loss, saved = cross_entropy(logits, targets, smoothing=0.1)
    assert_close(loss, cross_entropy(logits[:2], targets[:2], smoothing=0.1)[0])
    assert not saved.losses[2:].any()
    assert not cross_entropy_backward(np.ones(()), saved, smoothing=0.1)[2:].any()

    assert_close(cross_entropy(np.zeros((3, 8)), np.array([0, 3, 7]))[0], np.log(8))

    logits, targets = rng.standard_normal((3, 5)), np.array([0, IGNORE, 4])
    loss, saved = cross_entropy(logits, targets)
    assert saved.losses.shape == (3,)
    assert_close(loss, saved.losses.sum() / 2)
