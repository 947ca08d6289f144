"""How an error reads, and what it may be caught as."""

import inspect

import pytest

from glassformer import errors
from glassformer.errors import ConfigError, GlassformerError, did_you_mean, first_line, some


def test_an_error_gives_the_fact_and_then_the_remedy():
    error = GlassformerError("the prompt has 9 tokens", hint="shorten it")
    assert str(error) == "the prompt has 9 tokens\n\nhint: shorten it"
    assert (error.fact, error.hint) == ("the prompt has 9 tokens", "shorten it")


def test_an_error_without_a_remedy_is_the_fact_alone():
    assert str(ConfigError("no")) == "no"


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("ConfigError", ValueError),
        ("ShapeError", ValueError),
        ("DTypeError", TypeError),
        ("TokenError", IndexError),
        ("LengthError", ValueError),
    ],
)
def test_every_error_is_also_what_python_would_raise(name, builtin):
    kind = getattr(errors, name)
    assert issubclass(kind, GlassformerError)
    assert issubclass(kind, builtin)


def test_the_tree_in_the_docstring_names_every_error():
    kinds = [name for name, value in inspect.getmembers(errors, inspect.isclass) if value.__module__ == errors.__name__]
    assert len(kinds) >= 6
    for name in kinds:
        assert name in errors.__doc__
        assert name in errors.__all__


def test_close_words_are_suggested_and_otherwise_all_are_listed():
    known = ["layers", "heads", "width"]
    assert did_you_mean("head", known) == "did you mean 'heads'?"
    assert did_you_mean("colour", known) == "known: heads, layers, width"


def test_long_lists_of_names_are_cut():
    assert some([]) == "nothing"
    assert some(["a", "b"]) == "a, b"
    assert some([*"abcde", "f" * 100]) == "a, b, c, d and 2 more"
    assert some(["f" * 100]) == "f" * 80


def test_the_first_line_of_an_error_is_what_it_says_or_what_it_is():
    assert first_line(ValueError("no\nat line 3")) == "no"
    assert first_line(ValueError()) == "ValueError"
