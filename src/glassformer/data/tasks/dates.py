"""Read a date written in any of many languages and write it as year-month-day."""

import datetime

import numpy as np

from ...errors import ConfigError, DataError
from ...models.model import Batch
from ...text.chars import CharTokenizer
from ..examples import check_seed, translation_examples
from ..lexicon import encode_each
from ..task import Task, recipe, until
from .date_formats import LOCALES, Writing, normalize, writings

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
HELD_OUT_SHARE = 0.1
SPECIALS = ("<pad>", "<bos>", "<eos>")


def dates(*, seed: int = 0, train: int = 40000, held_out_each: int = 50, locales: tuple[str, ...] = LOCALES) -> Task:
    """Build the task: one day in ten is held out, in every language and format.

    train           dates to train on, in all languages together
    held_out_each   held-out dates for each language
    locales         the languages, by their codes, such as ["de", "en"]

    A text stands for one day and no other, so no held-out text can occur in training: see `date_formats`.
    """
    check_seed(seed)
    if train < 1 or held_out_each < 1 or not locales:
        raise ConfigError(f"train={train}, held_out_each={held_out_each}, locales={locales}", hint="use at least 1")
    rng = np.random.default_rng(seed)
    days = rng.permutation((LAST - FIRST).days + 1)
    cut = int(len(days) * HELD_OUT_SHARE)
    known = writings(tuple(locales))
    seen = _draw(rng, days[cut:], known, -(-train // len(locales)))
    unseen = _draw(rng, days[:cut], known, held_out_each)
    # The order of a list of languages says nothing; mix it, so that any first part of the data holds all of them.
    pairs = [seen[i] for i in rng.permutation(len(seen))]
    return _task(pairs, unseen, CharTokenizer(_characters(known), specials=SPECIALS))


def _task(seen: list[tuple[str, str, str]], unseen: list[tuple[str, str, str]], reader: CharTokenizer) -> Task:
    writer = CharTokenizer("0123456789-", specials=SPECIALS)
    bos, eos = writer.specials["<bos>"], writer.specials["<eos>"]

    def examples(pairs: list[tuple[str, str, str]]):
        sources = encode_each(reader, [text for text, _, _ in pairs])
        answers = encode_each(writer, [iso for _, iso, _ in pairs])
        return translation_examples(sources, answers, bos=bos, eos=eos)

    def encode_input(typed: str) -> Batch:
        text = normalize(typed)
        if not text:
            raise DataError("there is no date to read", hint="type one with its year, such as: 3. März 2001")
        return Batch(np.array([[bos]]), source=reader.encode(text)[None])

    longest = max(len(text) for text, _, _ in seen + unseen)
    return Task(
        name="dates",
        architecture="encoder-decoder",
        tokenizer=reader,
        target_tokenizer=writer,
        train=examples(seen),
        held_out=examples(unseen),
        settings={
            "vocab": writer.size, "source_vocab": reader.size, "context": max(64, longest + 8), "width": 64, "heads": 4,
            "encoder_layers": 2, "layers": 2, "positions": "learned", "activation": "gelu_tanh",
        },
        recipe=recipe(steps=3000, batch=64, lr=2e-3, warmup=200, weight_decay=0.01, eval_every=500),
        metric="sequence",
        encode_input=encode_input,
        decode_answer=lambda ids: writer.decode(until(ids, eos)),
        prompts=_prompts(unseen),
        groups=tuple(locale for _, _, locale in unseen),
        notes=(f"{len(seen):,} dates to train on and {len(unseen):,} on other days, in "
               f"{len({locale for _, _, locale in unseen})} languages; every year has four digits",),
    )  # fmt: skip


def _draw(
    rng: np.random.Generator, days: np.ndarray, known: dict[str, list[Writing]], each: int
) -> list[tuple[str, str, str]]:
    """Return (text, ISO date, language), `each` of every language: random days in random formats, no text twice."""
    drawn: dict[str, tuple[str, str, str]] = {}
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


def _characters(known: dict[str, list[Writing]]) -> set[str]:
    """Return every character that any date in these languages can hold, and those of a date as a machine writes it."""
    return set("0123456789-/. ").union(*(writing.characters for formats in known.values() for writing in formats))


def _prompts(unseen: list[tuple[str, str, str]]) -> tuple[str, ...]:
    """Return a held-out date with its month spelled out in each of four languages, as far as they are there."""
    wanted = [locale for locale in ("en", "de", "fr", "ja", "es", "ru") if any(locale == row[2] for row in unseen)]
    longest = [max((text for text, _, row in unseen if row == locale), key=len) for locale in wanted[:4]]
    return tuple(longest or [text for text, _, _ in unseen[:4]])
