"""Write one more line like those of a list, such as a list of names, as makemore does."""

import os

import numpy as np

from ...errors import DataError
from ...models.model import Batch
from ...text.chars import CharTokenizer
from ..corpus import read_text
from ..examples import Examples, decoder_examples, random_split
from ..lexicon import Lexicon, encode_each
from ..task import Task, recipe, until

HELD_OUT_SHARE, MOST_HELD_OUT = 0.1, 1000  # of the lines, to choose settings by and to test on, each (as makemore)


def lines(
    *, seed: int = 0, data: str | os.PathLike[str] | None = None, longest: int = 100, lexicon: Lexicon | None = None
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
    notes = [f"{len(every) - len(kept):,} lines of more than {longest} characters left out"]
    if not kept:
        raise DataError(f"{data} has no line of at most {longest} characters", hint="raise `longest`")
    train, validation, held_out = _split(kept, seed, notes)
    if lexicon is None:
        tokenizer = CharTokenizer("".join(kept), specials=("<bos>", "<eos>"))
        lexicon = Lexicon(tokenizer, start_id=tokenizer.specials["<bos>"], end_id=tokenizer.specials["<eos>"])
    return _task(lexicon, (train, validation, held_out), notes)


def _task(lexicon: Lexicon, parts: tuple[list[str], list[str], list[str]], notes: list[str]) -> Task:
    tokenizer, (bos, eos) = lexicon.tokenizer, lexicon.borders

    def examples(chosen: list[str]) -> Examples:
        rows = [np.concatenate([[bos], ids, [eos]]) for ids in encode_each(tokenizer, chosen)]
        return decoder_examples(rows, [1] * len(rows), pad=eos)

    train, validation, held_out = map(examples, parts)
    longest = max(part.longest for part in (train, validation, held_out))
    return Task(
        name="lines",
        architecture="decoder",
        tokenizer=tokenizer,
        train=train,
        validation=validation,
        held_out=held_out,
        settings={
            "vocab": tokenizer.size, "context": longest, "width": 64, "heads": 4, "layers": 4,
            "positions": "rotary", "activation": "gelu_tanh", "attention_bias": False, "feed_forward_bias": False,
        },
        recipe=recipe(
            steps=8000, batch=128, lr=4e-3, beta2=0.99, warmup=100, weight_decay=0.1, dropout=0.1, eval_every=500
        ),
        metric="none",
        encode_input=lambda typed: Batch(np.concatenate([[bos], tokenizer.encode(typed)])[None]),
        decode_answer=lambda ids: tokenizer.decode(until(ids, eos)),
        prompts=("",),
        notes=tuple(note for note in notes if not note.startswith("0 ")),
    )  # fmt: skip


def _split(kept: list[str], seed: int, notes: list[str]) -> tuple[list[str], list[str], list[str]]:
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
    repeats = len(validation) + len(held_out) - len(fresh_validation) - len(fresh_held_out)
    notes.append(f"{repeats:,} repeated lines left out of validation and test, because training holds them")
    split = train, fresh_validation, fresh_held_out
    notes.append("{:,} lines to train on, {:,} to validate, {:,} to test".format(*map(len, split)))
    return split
