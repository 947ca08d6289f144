"""Settings as they are typed, and as they are listed."""

import json

import pytest

from glassformer.cli.settings import parse_settings, parse_value
from glassformer.core.errors import ConfigError
from runs import command


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", -3),
        ("3e-4", 3e-4),
        ("True", True),
        ("no", False),
        ("none", None),
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


def lines_of(*args):
    result = command("settings", *args)
    assert result.code == 0, result.err
    return [line.split("\t") for line in result.out.splitlines()]


def test_a_pipe_gets_one_line_for_each_setting_or_the_groups():
    lines = lines_of("majority")
    assert all(len(line) == 5 for line in lines)
    assert ["task majority", "train", "1600", "whole number", "sequences to train on"] in lines
    assert ["model (encoder)", "width", "32", "whole number", "features per token"] in lines
    assert [line[2] for line in lines if line[1] == "lr"] == ["0.003"]
    assert [line[3] for line in lines if line[1] == "schedule"] == ["constant, cosine, linear, inverse_sqrt"]

    lines = lines_of()
    assert ["glassformer settings sampling", "how the next token is chosen when a model writes"] in lines
    assert "majority" in command("settings").out


@pytest.mark.parametrize(
    ("topic", "line"),
    [
        ("recipe", ["recipe", "lr", "0.001", "number", "the peak learning rate"]),
        ("sampling", ["sampling", "temperature", "0.8", "number"]),
        ("lora", ["adapters", "lora_rank", "8", "whole number"]),
        ("gpt2", ["model (gpt2, decoder)", "width", "768", "whole number", "features per token"]),
        ("model", ["model (all architectures)", "width", "must be given", "whole number", "features per token"]),
        ("encoder", ["model (encoder)", "pooling", "mean", "mean, cls, first"]),
        ("decoder", ["model (decoder)", "compute", "float32", "float32, bfloat16, float16"]),
    ],
)
def test_every_group_can_be_asked_for(topic, line):
    assert line in [found[: len(line)] for found in lines_of(topic)]


def test_json_gives_defaults_as_they_are_and_an_unknown_group_is_misuse():
    found = json.loads(command("settings", "gpt2", "--json").out)["model (gpt2, decoder)"]
    by_name = {one["name"]: one for one in found}
    assert by_name["width"]["default"] == 768
    assert by_name["kv_heads"]["default"] is None
    assert by_name["gated"]["default"] is False
    assert set(json.loads(command("settings", "--json").out)) == {"tasks", "groups", "presets"}

    result = command("settings", "recpe")
    assert result.code == 2
    assert "did you mean 'recipe'" in result.err
