"""Choosing tokens on the device gives what choosing on the host gives, for the same uniform numbers."""

import numpy as np
import pytest

from glassformer.engines.jax.programs import chosen, drawing_of
from glassformer.generation import Sampling, distribution
from glassformer.generation.sampling import choose

ROWS, VOCAB = 64, 37
SETTINGS = [
    {"temperature": 0},
    {},
    {"temperature": 0.3},
    {"top_k": 1},
    {"top_k": 5, "temperature": 2.0},
    {"top_k": 1000},
    {"top_p": 0.05},
    {"top_p": 0.9},
    {"top_p": 0.999999},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"top_k": 9, "top_p": 0.7, "min_p": 0.05, "temperature": 1.3},
    {"top_k": 9, "temperature": 5e-324},
]


class Told:
    """A generator that says the number it was told."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


@pytest.fixture(scope="module")
def on_device(jax):
    compiled = jax.jit(chosen, static_argnames="way")

    def choose_there(logits, uniforms, sampling):
        way, drawing = drawing_of(sampling, logits.shape[-1])
        return np.asarray(compiled(logits, uniforms, drawing, way=way))

    return choose_there


def logits_of(kind, rng):
    if kind == "equal":  # many of the same: the lower id counts as the likelier
        return rng.integers(0, 4, (ROWS, VOCAB)).astype(np.float64)
    return rng.standard_normal((ROWS, VOCAB)) * 3


@pytest.mark.parametrize("kind", ["spread", "equal"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_device_chooses_what_the_host_chooses(on_device, rng, settings, kind):
    sampling, logits = Sampling(**settings), logits_of(kind, rng)
    uniforms = rng.random(ROWS)
    uniforms[:2] = 0.0, np.nextafter(1.0, 0.0)
    expected = choose(logits, None, sampling, [Told(number) for number in uniforms])
    assert on_device(logits, uniforms, sampling).tolist() == expected.tolist()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_in_float32_nothing_is_drawn_that_is_left_out_and_hardly_anything_else(on_device, rng, settings):
    sampling, logits = Sampling(**settings), logits_of("spread", rng).astype(np.float32)
    uniforms = rng.random(ROWS).astype(np.float32)
    uniforms[:2] = 0.0, 1.0  # one may be rounded up to
    tokens = on_device(logits, uniforms, sampling)
    p = distribution(logits, None, sampling)
    assert (p[np.arange(ROWS), tokens] > 0).all()
    expected = choose(logits, None, sampling, [Told(number) for number in uniforms.astype(np.float64)])
    assert (tokens == expected).mean() > 0.95


def test_forbidden_tokens_are_never_drawn(on_device, rng):
    logits = rng.standard_normal((ROWS, VOCAB))
    logits[:, rng.permutation(VOCAB)[:20]] = -np.inf
    for sampling in (Sampling(temperature=5.0), Sampling(temperature=5.0, top_k=30, top_p=0.99)):
        tokens = on_device(logits, rng.random(ROWS), sampling)
        assert np.isfinite(logits[np.arange(ROWS), tokens]).all()


def test_settings_beyond_the_range_of_float32_mean_what_they_say(jax, on_device, rng):
    logits = rng.standard_normal((ROWS, VOCAB)).astype(np.float32)
    logits[:, -3:] = -np.inf
    uniforms = rng.random(ROWS).astype(np.float32)
    with jax.enable_x64(False):
        assert on_device(logits, uniforms, Sampling(top_p=1e-60)).tolist() == logits.argmax(axis=-1).tolist()
        drawn = on_device(logits, uniforms, Sampling(temperature=1e60))
    assert drawn.max() < VOCAB - 3
    assert len({*drawn.tolist()}) > VOCAB // 2
