"""Read a date written in any of many languages and write it as year-month-day.

How dates are written comes from the Unicode locale data that Babel carries, so that each text stands for one day. Two
things make written dates ambiguous, and both are ruled out here for all days at once:

- years of two digits: they are written with four;
- texts that are different days in different places, such as 01/02/2003 (2 January in the United States, 1 February
  nearly everywhere else): such a text goes to the day that most languages mean, and to none if equally many differ."""

import datetime
import functools
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from ...core.errors import ConfigError, DataError, did_you_mean
from ...text.symbols import CharTokenizer
from ..splits import Splits
from ..task import Count, Lexicon, Seed, Task, question_task, recipe

LOCALES = (
    "en", "en_GB", "de", "fr", "es", "pt", "it", "nl", "sv", "da", "nb", "fi", "is", "pl", "cs", "sk", "hu", "ro", "tr",
    "ru", "uk", "el", "bg", "hr", "sl", "et", "lv", "lt", "ca", "id", "vi", "ja", "zh", "ko", "hi", "he", "ar", "th",
)  # fmt: skip
"""The languages of the task, in ten scripts."""

STYLES = ("short", "medium", "long", "full")
SKELETONS = ("yMd", "yMEd", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd")

# Days of a leap year that begins on a Monday: every day of the year, and every month and weekday, to ask Babel about.
_YEAR = 2024
_DAYS = [datetime.date(_YEAR, 1, 1) + datetime.timedelta(days=i) for i in range(366)]
_PARTS = {"y": "year", "M": "month", "L": "month", "d": "day", "E": "weekday", "c": "weekday", "G": "era"}

Day = tuple[int, int]  # month and day
Piece = str | tuple[str, tuple[str, ...]]  # a fixed text, or what to write by one part of the date


@dataclass(frozen=True)
class Writing:
    """One way to write a date: pieces of text with places for the year, the month, the day and the weekday.

    lost   days whose text most languages read as another day
    """

    pieces: tuple[Piece, ...]
    lost: frozenset[Day] = frozenset()

    def write(self, date: datetime.date) -> str | None:
        """Return the text of a date; None if it would be taken for another one."""
        if (date.month, date.day) in self.lost:
            return None
        parts = {"month": date.month - 1, "day": date.day - 1, "weekday": date.weekday()}
        texts = []
        for piece in self.pieces:
            if isinstance(piece, str):
                texts.append(piece)
            else:
                texts.append(str(date.year) if piece[0] == "year" else piece[1][parts[piece[0]]])
        return "".join(texts)

    @property
    def characters(self) -> set[str]:
        """All characters that its texts may hold, besides the digits of the year."""
        return set("".join(piece if isinstance(piece, str) else "".join(piece[1]) for piece in self.pieces))


def normalize(text: str) -> str:
    """Return a date as the model reads it: lower case, one kind of space, no invisible marks.

    So it matters neither how a keyboard composes letters nor which of Unicode's many spaces it types.
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    visible = "".join(character for character in text if unicodedata.category(character) != "Cf")
    return " ".join(visible.split())


@functools.lru_cache(maxsize=4)
def writings(locales: tuple[str, ...] = LOCALES) -> dict[str, list[Writing]]:
    """Return the ways to write a date in each language; no text of any of them stands for two days."""
    every = {locale: _writings_of(locale) for locale in locales}
    texts = {writing: _texts(writing) for ways in every.values() for writing in ways}
    meant = _meanings([[texts[writing] for writing in ways] for ways in every.values()])

    def settled(writing: Writing) -> Writing:
        return Writing(writing.pieces, frozenset(day for text, day in texts[writing] if meant[text] != day))

    return {locale: [settled(writing) for writing in ways] for locale, ways in every.items()}


def _texts(writing: Writing) -> list[tuple[str, Day]]:
    """Return what a writing makes of each (month, day).

    One year stands for all: a year of four digits cannot be taken for a day or a month, so two readings of a text
    agree on it. Weekdays are left out, which can only find more texts alike, never fewer.
    """
    pieces = tuple("\0" if not isinstance(piece, str) and piece[0] == "weekday" else piece for piece in writing.pieces)
    plain = Writing(pieces)
    return [(str(plain.write(date)), (date.month, date.day)) for date in _DAYS]


def _meanings(languages: list[list[list[tuple[str, Day]]]]) -> dict[str, Day | None]:
    """Return the day that most languages mean by each text; None where they are divided."""
    votes: dict[str, Counter[Day]] = defaultdict(Counter)
    for ways in languages:
        for text, day in {reading for way in ways for reading in way}:
            votes[text][day] += 1
    meant: dict[str, Day | None] = {}
    for text, days in votes.items():
        (day, most), *others = days.most_common(2)
        meant[text] = None if others and others[0][1] == most else day
    return meant


def _writings_of(locale: str) -> list[Writing]:
    """Return the different ways in which one language writes a date with its year."""
    from babel.core import Locale, UnknownLocaleError

    try:
        known = Locale.parse(locale)
    except (UnknownLocaleError, ValueError):
        raise ConfigError(f"Babel knows no language {locale!r}", hint=did_you_mean(str(locale), LOCALES)) from None
    patterns = [str(known.date_formats[style].pattern) for style in STYLES]
    skeletons = known.datetime_skeletons
    patterns += [str(skeletons[name].pattern) for name in SKELETONS if name in skeletons]
    ways = [_writing(pattern, locale) for pattern in dict.fromkeys(patterns)]
    return list(dict.fromkeys(writing for writing in ways if writing is not None))


def _writing(pattern: str, locale: str) -> Writing | None:
    """Read a pattern such as "EEEE, d. MMMM y"; None where it leaves out the year, the month or the day."""
    from babel.dates import tokenize_pattern

    pieces: list[Piece] = []
    parts = set()
    for token, value in tokenize_pattern(pattern):
        if token == "chars":
            pieces.append(str(value))
            continue
        letter, width = str(value[0]), int(value[1])
        part = _PARTS.get(letter)
        if part is None:
            return None
        parts.add(part)
        pieces.append(_field(letter * width, part, locale))
    return Writing(_tidy(pieces)) if {"year", "month", "day"} <= parts else None


@functools.cache
def _field(letters: str, part: str, locale: str) -> Piece:
    """Ask Babel how a language writes every month, day or weekday in one field of a pattern."""
    from babel.dates import DateTimeFormat

    if part == "year":
        return ("year", ())
    asked = {
        "month": [datetime.date(_YEAR, month, 1) for month in range(1, 13)],
        "day": _DAYS[:31],
        "weekday": _DAYS[:7],
        "era": _DAYS[:1],
    }[part]
    texts = tuple(str(DateTimeFormat(date, locale)[letters]) for date in asked)
    return texts[0] if part == "era" else (part, texts)


def _tidy(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Normalize every piece as `normalize` would the whole text: join neighbors and keep the spaces between pieces."""
    tidy: list[Piece] = []
    for piece in pieces:
        if not isinstance(piece, str):
            tidy.append((piece[0], tuple(normalize(text) for text in piece[1])))
        elif tidy and isinstance(tidy[-1], str):
            tidy[-1] += piece
        else:
            tidy.append(piece)
    if isinstance(tidy[0], str):
        tidy[0] = tidy[0].lstrip()
    if isinstance(tidy[-1], str):
        tidy[-1] = tidy[-1].rstrip()
    # The bars keep the spaces at the ends of a fixed text, which stand beside another piece.
    return tuple(normalize(f"|{piece}|")[1:-1] if isinstance(piece, str) else piece for piece in tidy)


FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
HELD_OUT_SHARE = 0.1
SPECIALS = ("<pad>", "<bos>", "<eos>")

Row = tuple[str, str, str]  # text, ISO date, language


def dates(
    *, seed: Seed = 0, train: Count = 40000, held_out_each: Count = 50, locales: tuple[str, ...] = LOCALES
) -> Task:
    """Build the task: one day in ten is held out, in every language and format.

    train           dates to train on, in all languages together
    held_out_each   held-out dates for each language
    locales         the languages, by their codes, such as ["de", "en"]

    A text stands for one day and no other, so no held-out text can occur in training.
    """
    if not locales:
        raise ConfigError("locales is empty", hint="name at least one language")
    rng = np.random.default_rng(seed)
    days = rng.permutation((LAST - FIRST).days + 1)
    cut = int(len(days) * HELD_OUT_SHARE)
    known = writings(tuple(locales))
    seen = _draw(rng, days[cut:], known, -(-train // len(locales)))
    unseen = _draw(rng, days[:cut], known, held_out_each)
    # The order of a list of languages says nothing; mix it, so that any first part of the data holds all of them.
    mixed = [seen[i] for i in rng.permutation(len(seen))]
    # Every character that a date in these languages can hold, and those of a date as a machine writes it.
    characters = set("0123456789-/. ").union(*(way.characters for formats in known.values() for way in formats))
    writer = CharTokenizer("0123456789-", specials=SPECIALS)
    lexicon = Lexicon(
        CharTokenizer(characters, specials=SPECIALS), writer, writer.specials["<bos>"], writer.specials["<eos>"]
    )
    groups = tuple(locale for _, _, locale in unseen)
    return question_task(
        "dates",
        "encoder-decoder",
        lexicon,
        Splits(*([row[:2] for row in part] for part in (mixed, [], unseen))),
        _read,
        settings={
            "context": max(64, max(len(text) for text, _, _ in seen + unseen) + 8), "width": 64, "heads": 4,
            "encoder_layers": 2, "layers": 2,
        },
        recipe=recipe(steps=3000, batch=64, lr=2e-3, warmup=200, weight_decay=0.01, eval_every=500),
        prompts=_prompts(unseen),
        groups=groups,
        notes=(f"{len(seen):,} dates to train on and {len(unseen):,} on other days, in {len(set(groups))} languages; "
               "every year has four digits",),
    )  # fmt: skip


def _read(typed: str) -> str:
    text = normalize(typed)
    if not text:
        raise DataError("there is no date to read", hint="type one with its year, such as: 3. März 2001")
    return text


def _draw(rng: np.random.Generator, days: np.ndarray, known: dict[str, list[Writing]], each: int) -> list[Row]:
    """Return `each` rows of every language: random days in random formats, no text twice."""
    drawn: dict[str, Row] = {}
    for locale, formats in known.items():
        wanted = len(drawn) + each
        # Texts that mean another day elsewhere, or that another language writes alike, leave gaps: draw again.
        for _ in range(100):
            missing = wanted - len(drawn)
            chosen = days[rng.integers(len(days), size=missing)].tolist()
            which = rng.integers(len(formats), size=missing).tolist()
            for day, number in zip(chosen, which, strict=True):
                date = FIRST + datetime.timedelta(days=day)
                text = formats[number].write(date)
                if text is not None and text not in drawn:
                    drawn[text] = (text, date.isoformat(), locale)
            if len(drawn) == wanted:
                break
    return list(drawn.values())


def _prompts(unseen: list[Row]) -> tuple[str, ...]:
    """Return a held-out date with its month spelled out in each of four languages, as far as they are there."""
    wanted = [locale for locale in ("en", "de", "fr", "ja", "es", "ru") if any(locale == row[2] for row in unseen)]
    longest = [max((text for text, _, row in unseen if row == locale), key=len) for locale in wanted[:4]]
    return tuple(longest or [text for text, _, _ in unseen[:4]])
