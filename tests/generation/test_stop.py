"""Stop strings end a text wherever the cuts between its pieces fall."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import ConfigError
from glassformer.generation import StopStrings


def through(pieces, stops):
    """What comes out piece by piece, and all of it with what is left at the end."""
    watch = StopStrings(stops)
    shown = [watch.push(piece) for piece in pieces]
    return shown, "".join(shown) + watch.finish(), watch.stopped


def test_a_stop_string_may_span_pieces_and_nothing_of_it_is_shown():
    assert through(["one", " E", "N", "D two"], ["END"]) == (["one", " ", "", ""], "one ", True)


def test_what_only_looked_like_a_stop_string_is_shown_late():
    assert through(["a E", "N", "ough"], ["END"]) == (["a ", "", "ENough"], "a ENough", False)
    assert through(["a EN"], ["END"]) == (["a "], "a EN", False)


@pytest.mark.parametrize(
    ("text", "stop", "kept"),
    [
        ("Привет, мир. Конец. Ещё", "Конец", "Привет, мир. "),
        ("これは終わりです", "終わり", "これは"),
        ("مرحبا قف هنا", "قف", "مرحبا "),
        ("so 👩‍👩‍👧 long", "👩‍👩‍👧", "so "),
    ],
)
def test_any_script(text, stop, kept):
    assert through(list(text), [stop])[1:] == (kept, True)


def test_a_text_that_begins_like_its_own_end():
    assert through(list("aabaabaaac"), ["aabaaa"])[1:] == ("aab", True)


def test_the_stop_string_that_is_complete_first_counts_and_the_longer_of_two():
    assert through(["abcX"], ["abcX", "bc"])[1] == "a"
    assert through(["xabc"], ["bc", "abc"])[1] == "x"


@given(st.text("ab ", max_size=30), st.lists(st.text("ab ", min_size=1, max_size=4), max_size=3), st.data())
def test_the_cuts_make_no_difference(text, stops, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    bounds = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(bounds)]
    shown, whole, stopped = through(pieces, stops)
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    expected = text
    if ends:
        expected = min((text[: min(ends) - len(s)] for s in stops if text[: min(ends)].endswith(s)), key=len)
    assert (whole, stopped) == (expected, bool(ends))
    assert expected.startswith("".join(shown))


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ConfigError, match="a stop string is empty"):
        StopStrings(["a", ""])
