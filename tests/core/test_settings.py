"""Settings by name."""

from dataclasses import MISSING, dataclass, field
from typing import Literal

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.core.settings import (
    Setting,
    check_count,
    check_known,
    check_range,
    check_types,
    described,
    from_settings,
    setting_names,
)


@dataclass(frozen=True)
class Lamp:
    color: str = "white"
    watts: int = 40


def test_an_unknown_word_is_refused_with_the_closest_ones():
    with pytest.raises(ConfigError) as caught:
        check_known("there is no engine", "cpuu", ("cpu", "jax"))
    assert str(caught.value) == "there is no engine 'cpuu'\n\nhint: did you mean 'cpu'?"


@pytest.mark.parametrize("word", [None, 3, ["tpu?"], {}])
def test_what_is_no_word_at_all_is_refused_in_the_same_way(word):
    with pytest.raises(ConfigError) as caught:
        check_known("there is no engine", word, {"cpu": 1, "jax": 2})
    assert str(caught.value) == f"there is no engine {word!r}\n\nhint: known: cpu, jax"


@pytest.mark.parametrize("value", [0, -3, 1.5, True, "7", None])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(ConfigError) as caught:
        check_count("n", value, least=1)
    assert str(caught.value) == f"n is {value!r}\n\nhint: use a whole number of at least 1"


@dataclass(frozen=True)
class Slit:
    width: int = 1
    share: float | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self):
        check_types(self, " of the slit")
        check_range(self, "width", least=1, most=9)
        check_range(self, "share", above=0, below=1, of=" of the slit")


def test_values_are_taken_as_python_has_them():
    slit = Slit(np.int64(2), np.float32(0.5), ["a"])
    assert slit == Slit(2, 0.5, ("a",))
    assert (type(slit.width), type(slit.share)) == (int, float)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 2.0}, "width of the slit is 2.0\n\nhint: width takes: whole number"),
        ({"width": True}, "width of the slit is True\n\nhint: width takes: whole number"),
        ({"share": "half"}, "share of the slit is 'half'\n\nhint: share takes: number or none"),
        ({"names": [3]}, "names of the slit is (3,)\n\nhint: names takes: list of texts"),
        ({"width": 10}, "width is 10\n\nhint: use a number of at least 1 and at most 9"),
        ({"share": 1}, "share of the slit is 1\n\nhint: use a number above 0 and below 1"),
        ({"share": float("nan")}, "share of the slit is nan\n\nhint: use a number above 0 and below 1"),
    ],
)
def test_values_of_another_type_or_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError) as caught:
        Slit(**settings)
    assert str(caught.value) == message


def test_a_dataclass_is_built_from_its_settings_by_name():
    assert from_settings("a lamp has no setting", {"watts": 5}, Lamp) == Lamp(watts=5)
    assert setting_names(Lamp) == ["color", "watts"]


def test_a_setting_that_a_dataclass_does_not_have_is_refused():
    with pytest.raises(ConfigError, match=r"a lamp has no setting 'colour'(?s:.*)did you mean 'color'\?"):
        from_settings("a lamp has no setting", {"watts": 5, "colour": "red"}, Lamp)


@dataclass(frozen=True, kw_only=True)
class Lantern(Lamp):
    """A lamp that one carries.

    color     of its light
    handle    what one holds it by; of wood
              or of metal

    watts never stand in a sentence like this one.
    candles   inside
    """

    handle: Literal["wood", "metal"] | None = None
    candles: int
    parts: list[str] = field(default_factory=list)
    lit: bool = False


def test_settings_are_described_by_the_docstring_of_who_takes_them():
    assert described(Lantern) == [
        Setting("color", "white", "text", "of its light"),
        Setting("watts", 40, "whole number", ""),
        Setting("handle", None, "wood, metal, none", "what one holds it by; of wood or of metal"),
        Setting("candles", MISSING, "whole number", "inside"),
        Setting("parts", [], "value", ""),
        Setting("lit", False, "true, false", ""),
    ]


def test_choices_that_no_type_knows_can_be_given():
    assert described(Lamp, {"color": ("red", "blue")})[0].takes == "red, blue"


def test_a_function_is_described_by_its_keyword_arguments():
    def draw(canvas, *, width: float | None = None, tags: tuple[str, ...] = ("a",)):
        """Draw.

        width, tags   of the line
                      and of others
        canvas, tags   not these
        """

    assert described(draw) == [
        Setting("width", None, "number or none", "of the line and of others"),
        Setting("tags", ("a",), "list of texts", "of the line and of others"),
    ]
