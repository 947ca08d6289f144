"""Numbers and texts as people read them."""

import pytest

from glassformer.core.format import bytes_text, compact, digits, percent, shorten, signed, visible


@pytest.mark.parametrize(
    ("write", "number", "text"),
    [
        (percent, 0.1234, "12.3 %"),
        (percent, 0.0, "0 %"),
        (percent, 1e-5, "< 0.1 %"),
        (percent, 0.9997, "99.97 %"),
        (percent, 0.99999, "100 %"),
        (digits, -0.12345678, "−0.1235"),
        (digits, -0.0, "0"),
        (compact, 1.87021, "1.8702"),
        (compact, 0.000031, "3.1e-05"),
        (compact, 12.3456, "12.35"),
        (bytes_text, 1536, "1.5 KiB"),
    ],
)
def test_numbers(write, number, text):
    assert write(number) == text


def test_changes_that_round_to_zero_have_no_sign_and_texts_stay_on_one_line():
    assert [signed(x, 2) for x in (1.0, -0.5, -1e-9)] == ["+1.00", "-0.50", "0.00"]
    assert visible("a b\n") == "a␣b\\n"
    assert shorten("abcdef", 4) == "abc…"
