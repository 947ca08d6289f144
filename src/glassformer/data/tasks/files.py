"""Tasks from files: continue a text, write one more line like those of a list, turn one text into another."""

import os
from dataclasses import replace
from typing import Literal

import numpy as np

from ... import registry
from ...arrays import Array
from ...errors import ConfigError, DataError
from ...models.model import Batch
from ...setting import check_known
from ...text.bpe import BPETokenizer
from ...text.symbols import ByteTokenizer, CharTokenizer
from ...text.tokenizer import Tokenizer
from ..corpus import CARRIED, is_token_file, open_tokens, read_text
from ..examples import Windows, random_split
from ..pair_files import Pair, read_pairs
from ..question_tasks import Count, Lexicon, Seed, Splits, question_task, require_text
from ..task import Task, recipe

TRAIN_SHARE = 0.9
FAMILIES = ("chars", "bytes", "bpe")
BPE_SIZE = 512
HELD_OUT_SHARE, MOST_HELD_OUT = 0.1, 1000  # of the lines, to choose settings by and to test on, each (as makemore)
WRITER = {"positions": "rotary", "activation": "gelu_tanh", "attention_bias": False, "feed_forward_bias": False}
"""Settings of the models that continue a text or write a line."""


def text(
    *,
    seed: Seed = 0,
    data: str | os.PathLike[str] | None = None,
    tokenizer: Literal["chars", "bytes", "bpe"] = "chars",
    bpe_size: int | None = None,
    context: int = 64,
    lexicon: Lexicon | None = None,
) -> Task:
    """Build the task from a text whose last tenth is held out.

    data        a file, a folder or a token file; "pydoc" (the default) is the prose about Python that `help()` shows,
                "stdlib" the source of the standard library, whatever files there are: "./pydoc" is one
    tokenizer   what the text is cut into, or a registered tokenizer with `from_text`; a token file brings its own
    bpe_size    how many tokens byte-pair encoding has (none: 512); it learns them from the training part alone
    context     tokens that the model reads at a time
    lexicon     of a model that exists already, instead of a tokenizer
    """
    del seed  # nothing is drawn: the split is by position
    data = "pydoc" if data is None else data
    ids, cut, known = _load(data, tokenizer, bpe_size, None if lexicon is None else lexicon.tokenizer)
    start = [] if lexicon is None or lexicon.start_id is None else [lexicon.start_id]
    if cut < 2 or len(ids) - cut < 2:
        raise DataError(
            f"the text has {len(ids)} tokens, too few to train on and to hold out a tenth", hint="use a longer text"
        )
    return Task(
        name="text",
        architecture="decoder",
        tokenizer=known,
        train=Windows(ids[:cut], context),
        held_out=Windows(ids[cut:], context),
        settings={"vocab": known.size, "context": context, "width": 128, "heads": 4, "layers": 4, **WRITER},
        recipe=recipe(steps=2000, batch=12, lr=3e-3, beta2=0.99, warmup=100, eval_every=250),
        metric="none",
        encode_input=lambda typed: Batch(np.array([*start, *known.encode(require_text(typed))], dtype=np.int64)[None]),
        decode_answer=known.decode,
        prompts=(known.decode(np.asarray(ids[cut : cut + 12])),),
        notes=(f"{cut:,} tokens to train on, the last {len(ids) - cut:,} held out",),
    )


def lines(
    *,
    seed: Seed = 0,
    data: str | os.PathLike[str] | None = None,
    longest: int = 100,
    lexicon: Lexicon | None = None,
) -> Task:
    """Build the task: each line of the file is an example, from <bos> to <eos>; blank lines do not count.

    longest   lines of more characters are left out, and counted in the notes

    A line that occurs twice may fall into two parts. It then stays in the training data and leaves the others, so that
    the test loss, over every character and the end of each line, is about lines never seen. A `lexicon` is that of a
    model that exists already; without one, the characters that occur are the vocabulary.
    """
    if data is None:
        raise DataError("the task 'lines' needs a file", hint="pass one with an example on each line: --data names.txt")
    every = [line.strip() for line in read_text(data).splitlines() if line.strip()]
    kept = [line for line in every if len(line) <= longest]
    if not kept:
        raise DataError(f"{data} has no line of at most {longest} characters", hint="raise `longest`")
    splits, repeats = _split_lines(kept, seed)
    if lexicon is None:
        tokenizer = CharTokenizer("".join(kept), specials=("<bos>", "<eos>"))
        lexicon = Lexicon(tokenizer, start_id=tokenizer.specials["<bos>"], end_id=tokenizer.specials["<eos>"])
    left_out = {
        f"lines of more than {longest} characters left out": len(every) - len(kept),
        "repeated lines left out of validation and test, because training holds them": repeats,
    }
    return question_task(
        "lines",
        "decoder",
        replace(lexicon, target_tokenizer=None, start_id=lexicon.borders[0]),
        Splits(*([("", line) for line in part] for part in splits)),
        str,
        settings={"width": 64, "heads": 4, "layers": 4, **WRITER},
        recipe=recipe(steps=8000, batch=128, lr=4e-3, beta2=0.99, warmup=100, dropout=0.1, eval_every=500),
        metric="none",
        prompts=("",),
        notes=_notes(left_out, "{:,} lines to train on, {:,} to validate, {:,} to test".format(*map(len, splits))),
    )


def pairs(
    *,
    seed: Seed = 0,
    data: str | os.PathLike[str] | None = None,
    longest: Count = 80,
    lexicon: Lexicon | None = None,
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
    found = read_pairs(data)
    first: dict[str, Pair] = {}
    for pair in found:
        first.setdefault(pair.source, pair)
    kept = [pair for pair in first.values() if max(map(len, pair)) <= longest]
    if len(kept) < 2:
        raise DataError(
            f"{data} leaves {len(kept)} different pairs of at most {longest} characters, too few to hold any out",
            hint="raise `longest`, or use more data",
        )
    left_out = {
        "repeated sources left out, the first target of each stays": len(found) - len(first),
        f"pairs of more than {longest} characters left out": len(first) - len(kept),
    }
    train, held_out = ([kept[i] for i in part] for part in random_split(len(kept), (TRAIN_SHARE,), seed))
    context = {"context": longest + 1} if lexicon is None else {}
    return question_task(
        "pairs",
        "encoder-decoder",
        lexicon or _characters(kept),
        Splits(train, [], held_out),
        require_text,
        settings={"width": 128, "heads": 4, "encoder_layers": 3, "layers": 3, **context},
        recipe=recipe(steps=5000, batch=32, lr=1e-3, warmup=200, dropout=0.1, label_smoothing=0.1, eval_every=500),
        notes=_notes(left_out, f"{len(train):,} pairs to train on, {len(held_out):,} with other sources held out"),
    )


def _load(
    data: str | os.PathLike[str], family: str, bpe_size: int | None, known: Tokenizer | None
) -> tuple[Array, int, Tokenizer]:
    """Return the ids of the text, where its held-out part begins, and the tokenizer: the known one if there is one."""
    encoded = data not in CARRIED and is_token_file(data)
    if known is None and bpe_size is not None and (family != "bpe" or encoded):
        raise ConfigError(
            "bpe_size is set, but nothing is trained with it", hint='set tokenizer to "bpe", or leave it out'
        )
    if encoded:
        ids, own = open_tokens(data)
        if known is not None and own.to_dict() != known.to_dict():
            raise DataError(
                f"{data} was encoded with another tokenizer than that of the model",
                hint="pass the text itself, or encode it with the model's tokenizer",
            )
        return ids, int(len(ids) * TRAIN_SHARE), own
    if known is None:
        check_known("tokenizer is", family, (*FAMILIES, *registry.own("tokenizer")))
    content = CARRIED[data]() if isinstance(data, str) and data in CARRIED else read_text(data)
    if known is None and family == "bpe":
        # Cut the text first, so that nothing of its held-out part shapes the vocabulary.
        place = int(len(content) * TRAIN_SHARE)
        known = BPETokenizer.train(content[:place], size=BPE_SIZE if bpe_size is None else bpe_size)
        train = known.encode(content[:place])
        return np.concatenate([train, known.encode(content[place:])]), len(train), known
    known = known or _tokenizer_of(family, content)
    ids = known.encode(content)
    return ids, int(len(ids) * TRAIN_SHARE), known


def _tokenizer_of(family: str, content: str) -> Tokenizer:
    """Return a tokenizer that knows a whole text."""
    if family in FAMILIES:
        return CharTokenizer(content) if family == "chars" else ByteTokenizer()
    cls = registry.find("tokenizer", family)
    if not hasattr(cls, "from_text"):
        raise ConfigError(
            f"the tokenizer {family!r} cannot be made from a text", hint="give it a class method from_text(text)"
        )
    return cls.from_text(content)


def _split_lines(kept: list[str], seed: int) -> tuple[Splits, int]:
    """Return three splits, and how many lines left the last two because they occur in another one."""
    share = min(HELD_OUT_SHARE, MOST_HELD_OUT / len(kept))
    parts = random_split(len(kept), (1 - 2 * share, share), seed)
    train, validation, held_out = ([kept[i] for i in part] for part in parts)
    seen = set(train)
    fresh_validation = [line for line in validation if line not in seen]
    seen |= set(validation)
    fresh_held_out = [line for line in held_out if line not in seen]
    if not fresh_validation or not fresh_held_out:
        raise DataError(
            f"{len(kept):,} lines, of which {len(set(kept)):,} differ, leave nothing to hold out", hint="use more lines"
        )
    splits = Splits(train, fresh_validation, fresh_held_out)
    return splits, len(kept) - sum(map(len, splits))


def _characters(kept: list[Pair]) -> Lexicon:
    specials = ("<pad>", "<bos>", "<eos>")
    reader = CharTokenizer("".join(pair.source for pair in kept), specials=specials)
    writer = CharTokenizer("".join(pair.target for pair in kept), specials=specials)
    return Lexicon(reader, writer, writer.specials["<bos>"], writer.specials["<eos>"])


def _notes(left_out: dict[str, int], sizes: str) -> tuple[str, ...]:
    return (*(f"{count:,} {what}" for what, count in left_out.items() if count), sizes)
