"""Dates: written as Babel writes them, each text for one day only, held-out days in no language."""

import datetime
from collections import defaultdict

import numpy as np
import pytest

from glassformer.core.errors import ConfigError, DataError
from glassformer.data import build_task
from glassformer.data.tasks.dates import LOCALES, SKELETONS, STYLES, Writing, normalize, writings


@pytest.fixture(scope="module")
def task():
    return build_task("dates", train=8000, held_out_each=10)


def sources(task, data) -> list[str]:
    return [task.tokenizer.decode(row[real]) for row, real in zip(data.rows.source, data.rows.source_mask, strict=True)]


def answers(task, data) -> list[str]:
    return [task.decode_answer(row) for row in data.rows.targets]


@pytest.fixture(scope="module")
def texts(task):
    """The texts of the training data, and those that are held out."""
    return sources(task, task.train), sources(task, task.held_out)


def test_there_are_at_least_thirty_languages():
    assert len(set(LOCALES)) == len(LOCALES) >= 30


@pytest.mark.parametrize("locale", LOCALES)
def test_texts_are_what_babel_writes(locale):
    from babel.core import Locale
    from babel.dates import DateTimeFormat, parse_pattern

    known = Locale.parse(locale)
    patterns = [known.date_formats[style].pattern for style in STYLES]
    patterns += [known.datetime_skeletons[name].pattern for name in SKELETONS if name in known.datetime_skeletons]
    for date in [datetime.date(1907, 12, 31), datetime.date(2024, 2, 29), datetime.date(2051, 5, 3)]:
        ours = {Writing(writing.pieces).write(date) for writing in writings()[locale]}
        full_years = [pattern.replace("yyyy", "y").replace("yy", "y") for pattern in patterns]
        theirs = {normalize(parse_pattern(p).format % DateTimeFormat(date, known)) for p in full_years}
        assert ours == theirs
        assert all(text == normalize(text) for text in ours)


def test_a_text_stands_for_one_day_in_all_languages():
    # Three whole years, one of them a leap year, begin on different weekdays.
    for year in (1900, 2024, 2099):
        readings = defaultdict(set)
        date = datetime.date(year, 1, 1)
        while date.year == year:
            for ways in writings().values():
                for writing in ways:
                    if (text := writing.write(date)) is not None:
                        readings[text].add(date)
            date += datetime.timedelta(days=1)
        assert [text for text, meant in readings.items() if len(meant) > 1] == []


def test_ambiguous_texts_mean_what_most_languages_say_and_held_out_days_occur_in_none(task, texts):
    second_of_january = {way.write(datetime.date(2003, 1, 2)) for way in writings()["en"]}
    assert "1/2/2003" not in second_of_january
    assert "january 2, 2003" in second_of_january
    assert "12/25/2003" in {way.write(datetime.date(2003, 12, 25)) for way in writings()["en"]}
    assert "01/02/2003" in {way.write(datetime.date(2003, 2, 1)) for way in writings()["en_GB"]}

    assert not set(answers(task, task.train)) & set(answers(task, task.held_out))
    assert not set(texts[0]) & set(texts[1])
    assert len({*texts[0], *texts[1]}) == len(texts[0]) + len(texts[1])
    for iso in answers(task, task.train)[:500]:
        assert 1900 <= datetime.date.fromisoformat(iso).year <= 2099
    assert len(task.groups) == len(task.held_out)
    assert {locale: task.groups.count(locale) for locale in LOCALES} == dict.fromkeys(LOCALES, 10)


def test_typed_dates_are_read_however_they_are_typed_in_every_language(task):
    typed = ["3. März 2001", "3.  MÄRZ\u00a02001 ", "3. Ma\u0308rz 2001\u200f"]
    read = [task.encode_input(text) for text in typed]
    assert all(np.array_equal(batch.source, read[0].source) for batch in read)
    assert read[0].tokens.tolist() == [[task.target_tokenizer.specials["<bos>"]]]
    with pytest.raises(DataError, match="no date to read"):
        task.encode_input(" \u200f ")

    for date in (datetime.date(1999, 9, 30), datetime.date(2000, 2, 29)):
        for ways in writings().values():
            for writing in ways:
                if (text := writing.write(date)) is not None:
                    assert task.tokenizer.decode(task.tokenizer.encode(text)) == text


def test_there_are_many_examples_in_languages_that_can_be_chosen():
    assert len(build_task("dates").train) >= 40_000

    task = build_task("dates", train=100, held_out_each=5, locales=("de", "fr"))
    assert set(task.groups) == {"de", "fr"}
    with pytest.raises(ConfigError, match="no language 'xx_YY'"):
        build_task("dates", locales=("xx_YY",))
    with pytest.raises(ConfigError, match="train is 0"):
        build_task("dates", train=0)
