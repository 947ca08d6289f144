"""Read a date written in any of many languages and write it as year-month-day."""

import datetime

import numpy as np

from ...errors import ConfigError, DataError
from ...text.chars import CharTokenizer
from ..question_tasks import Lexicon, question_task
from ..splits import Count, Seed, Splits
from ..task import Task, recipe
from .date_formats import LOCALES, Writing, normalize, writings

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

    A text stands for one day and no other, so no held-out text can occur in training: see `date_formats`.
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
