"""Settings by name."""

from dataclasses import dataclass

import pytest

from glassformer.errors import ConfigError
from glassformer.settings import check_known, check_settings, from_settings, setting_names


@dataclass(frozen=True)
class Lamp:
    color: str = "white"
    watts: int = 40


def test_what_is_known_passes():
    check_known("there is no engine", "cpu", {"cpu": 1, "jax": 2})
    check_settings("a lamp has no setting", ["color"], Lamp)
    check_settings("a lamp has no setting", [], Lamp)


def test_an_unknown_word_is_refused_with_the_closest_ones():
    with pytest.raises(ConfigError) as caught:
        check_known("there is no engine", "cpuu", ("cpu", "jax"))
    assert str(caught.value) == "there is no engine 'cpuu'\n\nhint: did you mean 'cpu'?"


@pytest.mark.parametrize("word", [None, 3, ["tpu?"], {}])
def test_what_is_no_word_at_all_is_refused_in_the_same_way(word):
    with pytest.raises(ConfigError) as caught:
        check_known("there is no engine", word, {"cpu": 1, "jax": 2})
    assert str(caught.value) == f"there is no engine {word!r}\n\nhint: known: cpu, jax"


def test_the_known_words_may_come_one_at_a_time():
    with pytest.raises(ConfigError, match="did you mean 'jax'"):
        check_known("there is no engine", "jx", (name for name in ("cpu", "jax")))


def test_a_dataclass_is_built_from_its_settings_by_name():
    assert from_settings("a lamp has no setting", {"watts": 5}, Lamp) == Lamp(watts=5)
    assert setting_names(Lamp) == ["color", "watts"]


def test_a_setting_that_a_dataclass_does_not_have_is_refused():
    with pytest.raises(ConfigError, match=r"a lamp has no setting 'colour'(?s:.*)did you mean 'color'\?"):
        from_settings("a lamp has no setting", {"watts": 5, "colour": "red"}, Lamp)
