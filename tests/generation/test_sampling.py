"""Which tokens may follow, with what probability: the settings one by one, in order, drawn as often as they claim."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import chdtri

from compare import assert_close
from glassformer.core.errors import ConfigError, GlassformerError
from glassformer.generation import Sampling, TokenHistory, distribution, draw
from glassformer.generation.sampling import likeliest, log_softmax, stages

LOGITS = np.log([0.4, 0.3, 0.15, 0.1, 0.05])


def after(sampling, history=None, logits=LOGITS):
    return distribution(logits, history, Sampling(**sampling))


def test_by_default_it_is_the_models_own():
    assert_close(after({}), np.exp(LOGITS))
    assert_close(np.exp(log_softmax(LOGITS + 7)), np.exp(LOGITS))


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"top_k": 2}, [0.4, 0.3, 0, 0, 0]),
        ({"top_k": 9}, [0.4, 0.3, 0.15, 0.1, 0.05]),
        ({"top_p": 0.7 - 1e-9}, [0.4, 0.3, 0, 0, 0]),
        ({"top_p": 0.71}, [0.4, 0.3, 0.15, 0, 0]),
        ({"top_p": 1e-9}, [0.4, 0, 0, 0, 0]),
        ({"min_p": 0.25 - 1e-9}, [0.4, 0.3, 0.15, 0.1, 0]),
        ({"min_p": 1}, [0.4, 0, 0, 0, 0]),
        ({"temperature": 0}, [1, 0, 0, 0, 0]),
        ({"temperature": 0.5}, [0.4**2, 0.3**2, 0.15**2, 0.1**2, 0.05**2]),
        # In this order: top-k leaves 0.4 and 0.3 of the whole, so that 0.4 alone makes up 0.57 of the rest.
        ({"top_k": 2, "top_p": 0.5}, [0.4, 0, 0, 0, 0]),
        ({"temperature": 0.5, "top_p": 0.5}, [0.4**2, 0, 0, 0, 0]),
    ],
)
def test_what_is_kept_is_scaled_to_one(settings, kept):
    assert_close(after(settings), np.array(kept) / np.sum(kept))


def test_penalties_lower_what_was_said():
    history = TokenHistory.of([[0, 4]], 5, written=[[1, 1, 2]])
    logits = np.array([[2.0, 1.0, -1.0, 0.5, -2.0]])
    assert_close(after({"repetition_penalty": 2.0}, history, logits), softmax([1.0, 0.5, -2.0, 0.5, -4.0]))
    assert_close(after({"frequency_penalty": 0.5}, history, logits), softmax([2.0, 0.0, -1.5, 0.5, -2.0]))
    assert_close(after({"presence_penalty": 0.5}, history, logits), softmax([2.0, 0.5, -1.5, 0.5, -2.0]))
    both = {"repetition_penalty": 2.0, "frequency_penalty": 0.5, "presence_penalty": 0.25}
    assert_close(after(both, history, logits), softmax([1.0, -0.75, -2.75, 0.5, -4.0]))


def softmax(x):
    return np.exp(np.array([x])) / np.exp(x).sum()


def test_of_equally_likely_tokens_the_first_are_kept_along_any_axes_in_any_type(rng):
    even = np.zeros(6)
    assert after({"temperature": 0}, logits=even).tolist() == [1, 0, 0, 0, 0, 0]
    assert after({"top_k": 2}, logits=even).tolist() == [0.5, 0.5, 0, 0, 0, 0]
    assert after({"top_p": 0.4}, logits=even).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0, 0, 0])
    assert likeliest(np.array([1.0, 3.0, 3.0, 2.0, 3.0]), 2).tolist() == [1, 2]
    assert likeliest(np.array([1.0, 3.0]), 5).tolist() == [1, 0]

    logits = rng.standard_normal((2, 3, 11))
    sampling = Sampling(temperature=0.7, top_k=6, top_p=0.9, min_p=0.02)
    p = distribution(logits, None, sampling)
    assert p.dtype == np.float64
    for index in np.ndindex(2, 3):
        assert_close(p[index], distribution(logits[index], None, sampling))
    assert_close(distribution(logits.astype(np.float32), None, sampling), p, 1e-6)


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=12),
    st.fixed_dictionaries(
        {
            "temperature": st.floats(0, 5),
            "top_k": st.none() | st.integers(1, 20),
            "top_p": st.floats(1e-6, 1),
            "min_p": st.floats(0, 1),
        }
    ),
)
def test_it_is_always_a_distribution_that_holds_the_likeliest_token(logits, settings):
    p = after(settings, logits=np.array(logits))
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1)
    assert p[np.argmax(logits)] == p.max()


def test_tiny_temperatures_and_forbidden_tokens_leave_no_nan():
    for temperature in (1e-300, 5e-324):
        assert after({"temperature": temperature}).tolist() == [1, 0, 0, 0, 0]
        assert after({"temperature": temperature}, logits=np.array([7.0, 0.0, 7.0])).tolist() == [0.5, 0, 0.5]
    p = after({"temperature": 2.0, "repetition_penalty": 1.5}, logits=np.array([0.0, -np.inf, 1.0]))
    assert p[1] == 0
    assert p.sum() == pytest.approx(1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_logits_of_a_broken_model_are_refused(bad):
    with pytest.raises(GlassformerError, match="logits are not finite"):
        after({}, logits=np.array([0.0, bad]))


DRAWS = 20_000
SETTINGS = {
    "plain": {},
    "temperature": {"temperature": 0.6},
    "hot": {"temperature": 1.8},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.75},
    "min_p": {"min_p": 0.2},
    "penalties": {"repetition_penalty": 1.4, "frequency_penalty": 0.3, "presence_penalty": 0.2},
    "all": {"temperature": 1.3, "top_k": 8, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 1.2},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_come_as_often_as_the_distribution_says(name):
    rng = np.random.default_rng(11)
    history = TokenHistory.of([[1, 2]], 12, written=[[3, 3, 4]])
    (p,) = distribution(1.5 * rng.standard_normal((1, 12)), history, Sampling(**SETTINGS[name]))
    counts = np.bincount([draw(p, rng) for _ in range(DRAWS)], minlength=12)
    possible = p > 0
    assert counts[~possible].sum() == 0
    expected = DRAWS * p[possible]
    statistic = np.sum((counts[possible] - expected) ** 2 / expected)
    # The seed is fixed: the limit is what one run in a thousand of a right sampler would exceed.
    assert statistic < chdtri(possible.sum() - 1, 0.001)


class Fixed:
    """A generator that always gives the same number."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


@pytest.mark.parametrize(("u", "token"), [(0.0, 1), (0.49, 1), (0.5, 3), (np.nextafter(1, 0), 3)])
def test_a_token_without_probability_is_never_drawn(u, token):
    assert draw(np.array([0.0, 0.5, 0.0, 0.5, 0.0]), Fixed(u)) == token
    assert draw(np.full(3, 0.1), Fixed(1.0)) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_p": 0}, "top_p is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_k": 2.5}, "top_k is 2.5"),
        ({"min_p": 1.1}, "min_p is 1.1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"repetition_penalty": 1e308}, "repetition_penalty is 1e[+]308"),
        ({"presence_penalty": 1e7}, "presence_penalty is 10000000.0"),
    ],
)
def test_settings_without_meaning_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message) as error:
        Sampling(**settings)
    assert error.value.hint


def test_an_unknown_setting_is_refused_with_the_name_it_may_have_meant():
    with pytest.raises(ConfigError, match=r"no sampling setting 'temprature'\n\nhint: did you mean 'temperature'"):
        Sampling.of({"temprature": 1})


EVERY = Sampling(temperature=0.7, top_k=6, top_p=0.9, min_p=0.2)


@pytest.fixture
def logits(rng):
    return rng.normal(size=12) * 2


def test_the_stages_lead_to_the_distribution_that_is_drawn_from_and_cut_every_token_once(logits):
    found = stages(logits, EVERY)
    assert [stage.name for stage in found] == ["own", "temperature", "top_k", "top_p", "min_p"]
    assert found[0].probabilities.tolist() == distribution(logits, None, Sampling()).tolist()
    assert found[-1].probabilities.tolist() == distribution(logits, None, EVERY).tolist()
    assert all(abs(stage.probabilities.sum() - 1) < 1e-12 for stage in found)

    found = stages(logits, EVERY)
    cuts = np.sum([stage.cut for stage in found], axis=0)
    assert cuts.tolist() == (found[-1].probabilities == 0).astype(int).tolist()
    assert found[2].cut.sum() == 6
    assert not any(stage.cut.any() for stage in stages(logits, Sampling()))

    found = stages(logits, Sampling(temperature=0))
    assert found[1].cut.sum() == 11
    assert not found[1].cut[logits.argmax()]
    logits[3] = -np.inf
    found = stages(logits, EVERY)
    assert found[0].probabilities[3] == 0
    assert not any(stage.cut[3] for stage in found)
