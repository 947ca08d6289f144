"""Norms, clipping and accumulation against PyTorch, JAX and one large batch."""

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.core.tree import flatten, like, unflatten
from glassformer.ops import IGNORE, cross_entropy, cross_entropy_backward, linear, linear_backward
from glassformer.training import EMA, accumulate, all_finite, clip, global_norm
from glassformer.training.gradients import target_shares


@pytest.fixture
def grads(rng):
    return {"a": rng.normal(size=(3, 4)), "blocks": [{"w": rng.normal(size=5)}, {"w": np.zeros((0, 2))}]}


@pytest.mark.parametrize("max_norm", [0.1, 1.0, 100.0, float("inf")])
def test_clipping_equals_pytorch(torch, grads, max_norm):
    tensors = [torch.nn.Parameter(torch.tensor(g)) for g in flatten(grads).values()]
    for tensor in tensors:
        tensor.grad = tensor.detach().clone()
    want_norm = torch.nn.utils.clip_grad_norm_(tensors, max_norm)
    have, norm = clip(grads, max_norm)
    assert float(norm) == pytest.approx(float(want_norm), rel=1e-14)
    for g, tensor in zip(flatten(have).values(), tensors, strict=True):
        np.testing.assert_allclose(g, tensor.grad.numpy(), rtol=1e-14)


def test_clipping_leaves_small_gradients_and_the_norm_neither_overflows_nor_depends_on_order(grads, jax, rng):
    have, norm = clip(grads, 100.0)
    assert norm < 100
    np.testing.assert_array_equal(have["a"], grads["a"])
    want, want_norm = clip(grads, 0.5)
    have, norm = jax.jit(lambda g: clip(g, 0.5))(like(grads, jax.numpy))
    assert float(norm) == pytest.approx(float(want_norm), rel=1e-14)
    np.testing.assert_allclose(have["a"], want["a"], rtol=1e-14)
    mixed = {"a": grads["a"].astype(np.float32), "b": grads["a"], "c": grads["a"].astype(np.float16)}
    have, _ = clip(mixed, 0.5)
    assert {name: g.dtype for name, g in have.items()} == {name: g.dtype for name, g in mixed.items()}

    assert global_norm({"a": np.full(100, 1000, np.float16)}) == pytest.approx(10_000)
    assert global_norm({}) == 0
    grads = {str(i): rng.normal(size=i + 1).astype(np.float32) for i in range(40)}
    assert global_norm(grads) == global_norm(dict(reversed(grads.items())))


@pytest.mark.parametrize("max_norm", [0, -1, float("nan")])
def test_a_limit_that_is_not_positive_is_refused(grads, max_norm):
    with pytest.raises(ConfigError, match="max_norm is"):
        clip(grads, max_norm)


def loss_and_grads(w, x, targets):
    logits, linear_saved = linear(x, w)
    loss, saved = cross_entropy(logits, targets)
    _, dw, _ = linear_backward(cross_entropy_backward(np.ones_like(loss), saved), linear_saved)
    return loss, {"w": dw}, int((targets != IGNORE).sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_accumulated_equals_one_large_batch_when_microbatches_count_differently(rng, dtype):
    w, x = rng.normal(size=(5, 7)).astype(dtype), rng.normal(size=(12, 6, 5)).astype(dtype)
    targets = rng.integers(0, 7, size=(12, 6))
    targets[rng.random(targets.shape) < np.linspace(0, 0.9, 12)[:, None]] = IGNORE
    targets[4:8] = IGNORE
    want_loss, want, want_count = loss_and_grads(w, x, targets)
    parts = (loss_and_grads(w, x[i : i + 4], targets[i : i + 4]) for i in range(0, 12, 4))
    loss, grads, count = accumulate(parts)
    tolerance = 1e-6 if dtype == np.float32 else 1e-14
    assert count == want_count
    assert loss.dtype == grads["w"].dtype == dtype
    np.testing.assert_allclose(loss, want_loss, rtol=tolerance)
    np.testing.assert_allclose(grads["w"], want["w"], rtol=tolerance, atol=tolerance)


def test_accumulation_is_the_same_under_jit_and_parts_are_worth_their_share_of_the_targets(jax, rng):
    parts = [(rng.normal(size=()), {"w": rng.normal(size=3)}, n) for n in (3, 0, 5)]
    parts = [(np.asarray(loss), grads, np.asarray(n)) for loss, grads, n in parts]
    loss, grads, count = accumulate(parts)
    traced = jax.jit(accumulate)(like(parts, jax.numpy))
    assert count == traced[2] == 8
    np.testing.assert_allclose(traced[0], loss, rtol=1e-14)
    np.testing.assert_allclose(traced[1]["w"], grads["w"], rtol=1e-14)

    loss, grads, count = accumulate([(np.float32(0), {"w": np.zeros(2, np.float32)}, 0)] * 2)
    assert (loss, count) == (0, 0)
    np.testing.assert_array_equal(grads["w"], [0, 0])
    with pytest.raises(ConfigError, match="no microbatch"):
        accumulate([])

    counts = np.array([1, 0, 3])
    assert target_shares(counts).tolist() == [0.25, 0.0, 0.75]
    assert jax.jit(target_shares)(jax.numpy.asarray(counts)).tolist() == [0.25, 0.0, 0.75]
    assert target_shares(np.array([0, 0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_bad_number_is_found(jax, grads, value):
    assert all_finite(grads)
    assert all_finite({"step": np.asarray(3), "empty": {}})
    assert all_finite({})
    grads["blocks"][0]["w"][2] = value
    assert not all_finite(grads)
    assert not jax.jit(all_finite)(like(grads, jax.numpy))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_finite_numbers_whose_sum_is_not_are_finite(kind):
    # Without a warning, too: those are errors here.
    largest = np.finfo(kind).max
    assert all_finite({"w": np.full(3, largest)})
    assert not all_finite({"w": np.array([largest, np.inf, -np.inf], kind)})


STEPS = 7


@pytest.fixture
def steps(rng):
    return [{"blocks": [{"w": rng.normal(size=(2, 3))}], "b": rng.normal(size=2)} for _ in range(STEPS + 1)]


def run(ema, steps):
    state = ema.init(steps[0])
    for params in steps[1:]:
        state = ema.update(state, params)
    return state


def test_the_average_is_a_mean_with_geometric_weights_on_numpy_and_jax(steps, jax):
    weights = 0.9 ** np.arange(STEPS)[::-1]
    want = sum(weight * params["b"] for weight, params in zip(weights, steps[1:], strict=True)) / weights.sum()
    np.testing.assert_allclose(run(EMA(0.9), steps)["average"]["b"], want, rtol=1e-13)

    ema = EMA(0.9)
    want = run(ema, steps)
    update = jax.jit(ema.update)
    state = ema.init(like(steps[0], jax.numpy))
    for params in steps[1:]:
        state = update(state, like(params, jax.numpy))
    for name, array in flatten(want).items():
        np.testing.assert_allclose(flatten(state)[name], array, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_average_is_held_in_float32_and_read_in_the_type_of_the_parameters(steps, dtype):
    steps = [{"b": params["b"].astype(dtype)} for params in steps]
    state = run(EMA(0.9), steps)
    assert state["average"]["b"].dtype == np.float32
    assert EMA(0.9).read(state, steps[0])["b"].dtype == dtype


def test_averaging_changes_nothing_it_was_given_and_a_decay_of_one_is_refused(steps):
    before = steps[0]["b"].copy()
    state = run(EMA(0.9), steps)
    np.testing.assert_array_equal(steps[0]["b"], before)
    again = EMA(0.9).update(unflatten(flatten(state)), steps[0])
    np.testing.assert_array_equal(again["average"]["b"], EMA(0.9).update(state, steps[0])["average"]["b"])

    with pytest.raises(ConfigError, match="decay is 1"):
        EMA(1.0)
