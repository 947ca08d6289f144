import numpy as np
import pytest

from glassformer.core.errors import ShapeError
from glassformer.interpret.fourier import fourier, fourier_basis


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_the_basis_is_orthonormal(n):
    np.testing.assert_allclose(fourier_basis(n) @ fourier_basis(n).T, np.eye(n), atol=1e-14)


@pytest.mark.parametrize("n", [7, 8])
def test_shares_are_those_of_the_fast_transform(n):
    x = np.random.default_rng(0).standard_normal((n, 3))
    power = np.sum(np.abs(np.fft.rfft(x, axis=0)) ** 2, axis=1)
    power[1 : (n + 1) // 2] *= 2  # each of these stands for two complex frequencies
    found = fourier(x)
    np.testing.assert_allclose(found.share, power / power.sum(), rtol=1e-12)
    assert found.share.sum() == pytest.approx(1)


def test_one_wave_has_one_frequency_and_a_vector_is_refused():
    places = np.arange(11)[:, None]
    found = fourier(np.hstack([np.cos(2 * np.pi * 3 * places / 11), np.sin(2 * np.pi * 3 * places / 11)]))
    assert found.top(1)[0] == (3, pytest.approx(1))
    with pytest.raises(ShapeError, match="rows"):
        fourier(np.ones(4))
