"""Softmax, its logarithm, and cross-entropy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close, assert_equals_torch
from glassformer.ops import (
    IGNORE,
    cross_entropy,
    cross_entropy_backward,
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
)

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


def test_another_number_may_stand_for_ignored_and_one_row_is_enough(torch, rng):
    logits, targets = rng.standard_normal((4, 5)), np.array([1, 0, 2, 0])
    assert_equals_torch(
        PAIR,
        lambda x: torch.nn.functional.cross_entropy(x, torch.tensor(targets), ignore_index=0),
        [logits],
        extra=(targets,),
        backward={"ignore": 0},
        ignore=0,
    )

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


SOFT, LOG = (softmax, softmax_backward), (log_softmax, log_softmax_backward)
SHAPE = pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 1), (0, 4)])


@SHAPE
@pytest.mark.parametrize("size", [1.0, 100.0])
def test_softmax_and_its_logarithm_equal_pytorch(torch, rng, shape, size):
    x = size * rng.standard_normal(shape)
    assert_equals_torch(SOFT, lambda x: torch.softmax(x, -1), [x])
    assert_equals_torch(LOG, lambda x: torch.log_softmax(x, -1), [x])


def test_a_mask_equals_scores_of_minus_infinity(torch, rng):
    x, mask = rng.standard_normal((5, 6)), rng.random((5, 6)) < 0.6
    mask[:, 0] = True
    hidden = torch.tensor(~mask)
    assert_equals_torch(SOFT, lambda x: torch.softmax(x.masked_fill(hidden, -torch.inf), -1), [x], mask=mask)
    y, saved = log_softmax(x, mask=mask)
    assert_close(np.exp(y), softmax(x, mask=mask)[0])
    assert (y[~mask] == -np.inf).all()
    dx = log_softmax_backward(np.ones_like(x), saved)
    assert not dx[~mask].any()


@given(st.integers(1, 9), st.floats(-1e4, 1e4), st.floats(0.01, 1e3))
def test_rows_sum_to_one_and_do_not_notice_a_shift(width, shift, size):
    x = size * np.random.default_rng(width).standard_normal((3, width))
    y, _ = softmax(x)
    assert (y >= 0).all()
    assert_close(y.sum(-1), np.ones(3), 1e-14)
    assert_close(softmax(x + shift)[0], y, 1e-11)
    assert_close(log_softmax(x + shift)[0], log_softmax(x)[0], 1e-11)


@given(st.integers(1, 6), st.integers(0, 2**6 - 1))
def test_masked_rows_sum_to_one_or_to_nothing(width, bits):
    mask = np.array([(bits >> i) & 1 for i in range(width)], dtype=bool)
    x = np.random.default_rng(bits).standard_normal((2, width))
    y, saved = softmax(x, mask=mask)
    assert_close(y.sum(-1), np.full(2, float(mask.any())), 1e-14)
    assert not y[:, ~mask].any()
    assert_close(y[:, mask], softmax(x[:, mask])[0], 1e-14)
    assert not softmax_backward(x, saved)[:, ~mask].any()


def test_the_gradient_of_a_row_sums_to_zero(rng):
    x, dy = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
    assert_close(softmax_backward(dy, softmax(x)[1]).sum(-1), np.zeros(4))
    assert_close(log_softmax_backward(dy, log_softmax(x)[1]).sum(-1), np.zeros(4))
