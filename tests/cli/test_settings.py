"""Settings as they are typed."""

import pytest

from glassformer.cli.settings import parse_settings, parse_value
from glassformer.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("-3", -3),
        ("0.5", 0.5),
        ("3e-4", 3e-4),
        ("true", True),
        ("True", True),
        ("yes", True),
        ("false", False),
        ("no", False),
        ("none", None),
        ("None", None),
        ("null", None),
        ("adamw", "adamw"),
        ('"8"', "8"),
        ('["de", "en"]', ["de", "en"]),
        ('{"factor": 8}', {"factor": 8}),
        ("[1, 2", "[1, 2"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_values_become_what_they_look_like(text, value):
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_settings_are_read_in_order():
    assert parse_settings(["width=8", "norm=rms", "note=a=b"]) == {"width": 8, "norm": "rms", "note": "a=b"}
    assert parse_settings([]) == {}


@pytest.mark.parametrize("text", ["width", "=8", "", "width 8"])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(ConfigError, match="cannot read the setting") as caught:
        parse_settings([text])
    assert "KEY=VALUE" in str(caught.value)


def test_a_setting_given_twice_is_refused():
    with pytest.raises(ConfigError, match="'lr' is given twice"):
        parse_settings(["lr=1", "lr=1"])
