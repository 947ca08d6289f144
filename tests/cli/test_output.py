"""How numbers read."""

import json

import pytest

from glassformer.cli.output import bytes_text, count_text, flops_text, print_json


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB"), (5000 * 2**40, "5,000.0 TiB")],
)
def test_sizes(size, text):
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("number", "text"), [(12, "12"), (1500, "1.5 k"), (124_439_808, "124.4 M"), (174.6e9, "174.6 B"), (2e12, "2.0 T")]
)
def test_counts(number, text):
    assert count_text(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(12, "12 FLOP"), (1500, "1.5 kFLOP"), (284.8e6, "284.8 MFLOP"), (358.8e9, "358.8 GFLOP"), (2e15, "2.0 PFLOP")],
)
def test_arithmetic_is_counted_in_units_of_its_own(number, text):
    assert flops_text(number) == text


def test_json_never_holds_what_is_no_json(capsys):
    print_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": ("é", None, True)})
    out = capsys.readouterr().out
    assert json.loads(out, parse_constant=pytest.fail) == {"a": None, "b": [None, 1.5], "c": ["é", None, True]}
    assert out.count("\n") == 1
