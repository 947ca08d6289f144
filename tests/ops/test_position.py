"""Positions: sinusoids, rotations, ALiBi and T5's buckets, each against its publication."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close, assert_equals_torch
from glassformer.config import RotaryScaling
from glassformer.ops import (
    alibi_bias,
    alibi_slopes,
    positions,
    relative_bias,
    relative_bias_backward,
    relative_buckets,
    rotary,
    rotary_angles,
    rotary_backward,
    sinusoidal,
    unpadded_positions,
)

PAIRINGS = pytest.mark.parametrize("pairing", ["halves", "interleaved"])


def test_positions_count_the_entries_along_an_axis_and_padding_stands_at_zero():
    x = np.zeros((2, 3, 4))
    assert positions(x, axis=-2).tolist() == [0, 1, 2]
    assert positions(x[:, :0], axis=1).tolist() == []
    ids = np.array([[7, 5, 0, 0], [0, 0, 3, 4], [0, 2, 0, 2]])
    assert unpadded_positions(ids, padding=0).tolist() == [[1, 2, 0, 0], [0, 0, 1, 2], [0, 1, 0, 2]]
    assert unpadded_positions(ids[1], padding=4).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("width", [1, 2, 5, 8])
@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_sinusoids_follow_the_formula(width, base):
    table = sinusoidal(np.arange(7), width, base=base)
    assert table.shape == (7, width)
    for p in range(7):
        for i in range(width):
            angle = p / base ** (2 * (i // 2) / width)
            assert abs(table[p, i] - (math.cos(angle) if i % 2 else math.sin(angle))) < 1e-15


def test_sinusoids_of_any_positions():
    assert sinusoidal(np.array([[3, 1], [0, 9]]), 4).shape == (2, 2, 4)
    assert_close(sinusoidal(np.array(3), 4), sinusoidal(np.arange(5), 4)[3])
    np.testing.assert_array_equal(sinusoidal(np.array([0]), 5), [[0, 1, 0, 1, 0]])


@PAIRINGS
@given(st.integers(1, 4), st.integers(0, 5000), st.integers(0, 2**16))
def test_rotations_keep_norms_and_their_products_see_distance_only(pairing, pairs, shift, seed):
    q, k = np.random.default_rng(seed).standard_normal((2, 2, 2 * pairs))
    near, far = (rotary_angles(np.array([7, 3]) + offset, 2 * pairs) for offset in (0, shift))

    def product(angles):
        a, b = (rotary(x, *angles, pairing=pairing)[0] for x in (q, k))
        return a[0] @ b[1]

    turned, _ = rotary(q, *far, pairing=pairing)
    assert_close(np.linalg.norm(turned, axis=-1), np.linalg.norm(q, axis=-1), 1e-13)
    assert_close(product(far), product(near), 1e-10)


@PAIRINGS
def test_the_backward_of_a_rotation_is_its_inverse(rng, pairing):
    x = rng.standard_normal((2, 3, 5, 6))
    y, saved = rotary(x, *rotary_angles(np.arange(5), 6), pairing=pairing)
    assert_close(rotary_backward(y, saved, pairing=pairing), x, 1e-14)


def test_interleaved_pairs_turn_like_complex_numbers(torch, rng):
    x = rng.standard_normal((2, 5, 6))
    angle = np.arange(5)[:, None] * 10000.0 ** (-np.arange(3) / 3)
    turn = torch.polar(torch.ones(5, 3), torch.tensor(angle))

    def by_torch(x):
        pairs = torch.view_as_complex(x.reshape(2, 5, 3, 2))
        return torch.view_as_real(pairs * turn).reshape(2, 5, 6)

    pair = (rotary, rotary_backward)
    settings = {"pairing": "interleaved"}
    extra = rotary_angles(np.arange(5), 6)
    assert_equals_torch(pair, by_torch, [x], extra=extra, backward=settings, **settings)


def test_halves_follow_hugging_face_and_angles_the_formula(torch, rng):
    x = rng.standard_normal((2, 5, 6))
    cos, sin = (torch.tensor(np.concatenate((t, t), -1)) for t in rotary_angles(np.arange(5), 6))

    def by_torch(x):
        return x * cos + torch.cat((-x[..., 3:], x[..., :3]), -1) * sin

    assert_equals_torch((rotary, rotary_backward), by_torch, [x], extra=rotary_angles(np.arange(5), 6))

    cos, sin = rotary_angles(np.array([0, 3]), 8, base=500.0)
    assert cos.shape == sin.shape == (2, 4)
    for i in range(4):
        angle = 3 * 500.0 ** (-2 * i / 8)
        assert abs(cos[1, i] - math.cos(angle)) < 1e-14
        assert abs(sin[1, i] - math.sin(angle)) < 1e-14


def llama3_frequency(frequency, scaling):
    """Meta's rule, one frequency at a time, written from its description by wavelengths."""
    wavelength = 2 * math.pi / frequency
    if wavelength < scaling.original_context / scaling.high_factor:
        return frequency
    if wavelength > scaling.original_context / scaling.low_factor:
        return frequency / scaling.factor
    smooth = (scaling.original_context / wavelength - scaling.low_factor) / (scaling.high_factor - scaling.low_factor)
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency


@pytest.mark.parametrize("factor", [8.0, 32.0])
@pytest.mark.parametrize("channels", [64, 128])
def test_llama_3_stretches_the_slow_rotations(channels, factor):
    scaling = RotaryScaling(factor=factor)
    plain = [500000.0 ** (-2 * i / channels) for i in range(channels // 2)]
    stretched = [llama3_frequency(f, scaling) for f in plain]
    cos, sin = rotary_angles(np.array([1]), channels, base=500000.0, scaling=scaling)
    assert_close(np.arctan2(sin[0], cos[0]), np.array(stretched), 1e-14)
    changes = {round(a / b, 6) for a, b in zip(plain, stretched, strict=True)}
    assert {1.0, factor} < changes  # both ends, and something between


def test_alibi_slopes_are_the_published_ones():
    np.testing.assert_allclose(alibi_slopes(8), [1 / 2**i for i in range(1, 9)], rtol=1e-15)
    twelve = [1 / 2**i for i in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    np.testing.assert_allclose(alibi_slopes(12), twelve, rtol=1e-15)
    np.testing.assert_allclose(alibi_slopes(1), [2**-8.0])
    np.testing.assert_allclose(alibi_slopes(16)[:2], [2**-0.5, 2**-1.0])


@pytest.mark.parametrize("heads", range(1, 40))
def test_there_is_one_slope_per_head_and_none_twice(heads):
    assert len(set(alibi_slopes(heads))) == heads


def test_alibi_lowers_scores_with_the_distance():
    bias = alibi_bias(2, np.array([2, 3]), np.arange(4))
    assert bias.shape == (2, 2, 4)
    np.testing.assert_array_equal(bias[0], -(2.0**-4) * np.array([[2, 1, 0, 1], [3, 2, 1, 0]]))


def t5_bucket(query, key, *, bidirectional, buckets, max_distance):
    """The bucket of one pair, from the description in the T5 paper, in ordinary double precision."""
    after, first = key - query, 0
    if bidirectional:
        buckets //= 2
        first = buckets if after > 0 else 0
        distance = abs(after)
    else:
        distance = max(0, -after)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    grown = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    return first + min(buckets - 1, exact + int(grown + 1e-6))  # a border belongs to the farther bucket


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (64, 256)])
def test_buckets_equal_an_independent_derivation(bidirectional, buckets, max_distance):
    settings = {"bidirectional": bidirectional, "buckets": buckets, "max_distance": max_distance}
    rows, columns = np.arange(0, 400, 37), np.arange(400)
    found = relative_buckets(rows, columns, **settings)
    expected = [[t5_bucket(int(t), int(s), **settings) for s in columns] for t in rows]
    np.testing.assert_array_equal(found, expected)
    assert found.min() == 0
    assert found.max() == buckets - 1


def test_buckets_and_relative_bias_equal_the_published_code(torch, rng):
    # The rule as the published PyTorch models compute it, for keys before the query.
    distance = torch.arange(1000)
    far = 16 + (torch.log(distance.float() / 16) / math.log(128 / 16) * 16).to(torch.long)
    expected = torch.where(distance < 16, distance, torch.clamp(far, max=31)).numpy()
    found = relative_buckets(np.array([999]), np.arange(1000), bidirectional=False)
    np.testing.assert_array_equal(found[0, ::-1], expected)

    buckets = relative_buckets(np.arange(5), np.arange(6), bidirectional=True, buckets=8, max_distance=6)
    index = torch.tensor(buckets)
    pair = (relative_bias, relative_bias_backward)
    table = rng.standard_normal((8, 3))
    assert_equals_torch(pair, lambda t: t[index].permute(2, 0, 1), [table], extra=(buckets,))
