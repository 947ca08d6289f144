"""Turn one text into another, from pairs of them: a translation, character by character."""

import os

import numpy as np

from ...errors import ConfigError, DataError
from ...models.model import Batch
from ...text.chars import CharTokenizer
from ..examples import Examples, random_split, translation_examples
from ..lexicon import Lexicon, encode_each
from ..pair_files import Pair, read_pairs
from ..task import Task, recipe, until

SPECIALS = ("<pad>", "<bos>", "<eos>")
TRAIN_SHARE = 0.9


def pairs(
    *, seed: int = 0, data: str | os.PathLike[str] | None = None, longest: int = 80, lexicon: Lexicon | None = None
) -> Task:
    """Build the task: a tenth of the different sources is held out.

    longest   pairs with a longer source or target are left out, and counted in the notes
    lexicon   of a model that exists already; without one, the characters that occur are the vocabulary
    """
    if data is None:
        raise DataError(
            "the task 'pairs' needs a file or folder",
            hint="pass a .tsv file, or gettext catalogs such as share/locale/de/LC_MESSAGES: --data PATH",
        )
    if longest < 1:
        raise ConfigError(f"longest is {longest}", hint="use at least 1")
    kept, notes = _select(read_pairs(data), longest)
    if len(kept) < 2:
        raise DataError(
            f"{data} leaves {len(kept)} different pairs of at most {longest} characters, too few to hold any out",
            hint="raise `longest`, or use more data",
        )
    train, held_out = ([kept[i] for i in part] for part in random_split(len(kept), (TRAIN_SHARE,), seed))
    notes.append(f"{len(train):,} pairs to train on, {len(held_out):,} with other sources held out")
    context = longest + 1 if lexicon is None else None
    return _task(lexicon or _characters(kept), train, held_out, context, tuple(notes))


def _select(found: list[Pair], longest: int) -> tuple[list[Pair], list[str]]:
    """Return each source once, with its first target, if neither is too long; and notes on what was left out."""
    first: dict[str, Pair] = {}
    for pair in found:
        first.setdefault(pair.source, pair)
    kept = [pair for pair in first.values() if max(map(len, pair)) <= longest]
    left_out = {
        "repeated sources left out, the first target of each stays": len(found) - len(first),
        f"pairs of more than {longest} characters left out": len(first) - len(kept),
    }
    return kept, [f"{count:,} {what}" for what, count in left_out.items() if count]


def _characters(kept: list[Pair]) -> Lexicon:
    reader = CharTokenizer("".join(pair.source for pair in kept), specials=SPECIALS)
    writer = CharTokenizer("".join(pair.target for pair in kept), specials=SPECIALS)
    return Lexicon(reader, writer, writer.specials["<bos>"], writer.specials["<eos>"])


def _task(
    lexicon: Lexicon, train: list[Pair], held_out: list[Pair], context: int | None, notes: tuple[str, ...]
) -> Task:
    """Build the task; without a context, the longest sequence says what is needed."""
    writer, (bos, eos) = lexicon.writer, lexicon.borders

    def examples(chosen: list[Pair]) -> Examples:
        sources = lexicon.encode_sources([pair.source for pair in chosen])
        targets = encode_each(writer, [pair.target for pair in chosen])
        return translation_examples(sources, targets, bos=bos, eos=eos)

    def encode_input(text: str) -> Batch:
        if not text:
            raise DataError("there is nothing to translate", hint="type at least one character")
        return Batch(np.array([[bos]]), source=lexicon.encode_sources([text])[0][None])

    seen, unseen = examples(train), examples(held_out)
    if context is None:
        context = max(seen.longest, unseen.longest)
    return Task(
        name="pairs",
        architecture="encoder-decoder",
        tokenizer=lexicon.tokenizer,
        target_tokenizer=lexicon.target_tokenizer,
        train=seen,
        held_out=unseen,
        settings={
            "vocab": writer.size, "source_vocab": lexicon.tokenizer.size, "context": context, "width": 128, "heads": 4,
            "encoder_layers": 3, "layers": 3, "positions": "learned", "activation": "gelu_tanh",
        },
        recipe=recipe(steps=5000, batch=32, lr=1e-3, warmup=200, dropout=0.1, label_smoothing=0.1, eval_every=500),
        metric="sequence",
        encode_input=encode_input,
        decode_answer=lambda ids: writer.decode(until(ids, eos)),
        prompts=tuple(pair.source for pair in held_out[:3]),
        notes=notes,
    )  # fmt: skip
