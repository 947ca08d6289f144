"""How an error reads, what it may be caught as, and how numbers and texts stand in it."""

import traceback
from types import SimpleNamespace

import numpy as np
import pytest

import glassformer as gf
from glassformer.core import errors
from glassformer.core.errors import DEBUG, GlassformerError, did_you_mean, nearest, some, typed
from glassformer.core.format import bytes_text, compact, digits, percent, shorten, signed, visible


def test_an_error_gives_the_fact_and_then_the_remedy():
    error = GlassformerError("the prompt has 9 tokens", hint="shorten it")
    assert str(error) == "the prompt has 9 tokens\n\nhint: shorten it"
    assert (error.fact, error.hint) == ("the prompt has 9 tokens", "shorten it")


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


def test_close_words_are_suggested_and_otherwise_all_are_listed():
    known = ["layers", "heads", "width"]
    assert did_you_mean("head", known) == "did you mean 'heads'?"
    assert did_you_mean("colour", known) == "known: heads, layers, width"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("widht", ["width"]),
        ("feed-forward", ["feed_forward"]),
        ("eps", ["norm_eps"]),
        ("dropout_rate", ["dropout"]),
        ("num_heads", ["heads"]),
        ("act", ["activation"]),
        ("half", ["halves"]),
        ("norm_size", ["bpe_size", "norm_eps"]),
        ("digits", []),
        ("gpu", []),
        ("", []),
    ],
)
def test_only_words_that_may_have_been_meant_are_near(word, meant):
    known = "width feed_forward bpe_size norm_eps dropout heads activation halves floor cpu"
    assert nearest(word, known.split()) == meant


def test_many_names_are_never_listed_in_full():
    many = [f"{letter}{number}xyz" for letter in "abcdef" for number in range(10)]
    hint = did_you_mean("foo", many)
    assert hint.startswith("known: ")
    assert hint.endswith(" and 48 more")
    assert hint.count(",") == 11
    assert did_you_mean("foo", many, listed="`list` names them") == "`list` names them"
    assert did_you_mean("a1xyzz", many, listed="`list` names them") == "did you mean 'a1xyz'?"

    assert some([]) == "nothing"
    assert some(["a", "b"]) == "a, b"
    assert some([*"abcde", "f" * 100]) == "a, b, c, d and 2 more"
    assert some(["f" * 100]) == "f" * 80


def test_a_word_longer_than_any_is_not_compared_with_all():
    known = [f"name{i}" for i in range(50)]
    assert nearest("n" * 1_000_000, known) == []
    assert did_you_mean("n" * 1_000_000, known).startswith("known: name")


@pytest.mark.parametrize(
    ("system", "word", "quoted"),
    [
        ("posix", "runs/text", "runs/text"),
        ("posix", "my runs/$x", "'my runs/$x'"),
        ("nt", "runs\\text", "runs\\text"),
        ("nt", "C:\\my runs\\text", '"C:\\my runs\\text"'),
    ],
)
def test_words_are_quoted_as_the_shell_of_the_system_wants_them(system, word, quoted, monkeypatch):
    monkeypatch.setattr(errors, "os", SimpleNamespace(name=system))
    assert typed(word) == quoted


def test_refused_input_has_a_short_traceback(monkeypatch):
    model = gf.build("tiny-decoder")
    trained = gf.TrainedModel(model, model.init(0))
    run = gf.interpret.watch(model, trained.params, gf.Batch(np.arange(4)[None]))
    name = "blocks.0.attention.output.x"
    refused = [
        lambda: run.changed(gf.interpret.zero(name, head=99)),
        lambda: run.changed(gf.interpret.put(name, np.zeros(3))),
        lambda: run["blocks.0.x"],
        lambda: trained.generate("a"),
        lambda: gf.train("majority", widht=8),
        lambda: gf.DecoderConfig(vocab=3, width=5, heads=2, layers=1, context=3),
    ]

    for call in refused:
        assert len(lines_of(call)) <= 10
    monkeypatch.setenv(DEBUG, "1")
    assert len(lines_of(refused[1])) > 50


def lines_of(call):
    """The traceback of a call that is refused, as its caller sees it: without this function."""
    with pytest.raises(gf.GlassformerError) as caught:
        call()
    error = caught.value
    return "".join(traceback.format_exception(error.with_traceback(error.__traceback__.tb_next))).splitlines()


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
