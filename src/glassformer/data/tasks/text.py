"""Learn to write like a text: a language model over its characters."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from ...arrays import Array
from ...errors import ConfigError, DataError, did_you_mean
from ...models.batch import Batch
from ...text.bytes import ByteTokenizer
from ...text.chars import CharTokenizer
from ...text.tokenizer import Tokenizer
from ..corpus import pydoc_topics, read_text, stdlib_source
from ..examples import Windows
from ..task import Task, recipe
from ..tokens import is_token_file, open_tokens

SUMMARY = "continue a text: Python's own documentation, or your file or folder"
CARRIED = {"pydoc": pydoc_topics, "stdlib": stdlib_source}
TRAIN_SHARE = 0.9


def text(
    *,
    seed: int = 0,
    data: str | os.PathLike[str] | None = None,
    tokenizer: str = "chars",
    context: int = 64,
) -> Task:
    """Build the task from a text whose last tenth is held out.

    data        a file, a folder or a token file; "pydoc" (the default) is the prose about Python that `help()` shows,
                "stdlib" the source of the standard library
    tokenizer   "chars" or "bytes"; a token file brings its own
    """
    del seed  # nothing is drawn: the split is by position
    ids, known = _load("pydoc" if data is None else data, tokenizer)
    cut = int(len(ids) * TRAIN_SHARE)
    if cut < 2 or len(ids) - cut < 2:
        raise DataError(
            f"the text has {len(ids)} tokens, too few to train on and to hold out a tenth", hint="use a longer text"
        )
    return Task(
        name="text",
        summary=SUMMARY,
        architecture="decoder",
        tokenizer=known,
        train=Windows(ids[:cut], context),
        held_out=Windows(ids[cut:], context),
        settings={
            "vocab": known.size, "context": context, "width": 128, "heads": 4, "layers": 4, "positions": "learned",
        },
        recipe=recipe(steps=2000, batch=12, lr=1e-3, warmup=100, eval_every=250),
        metric="none",
        encode_input=lambda typed: Batch(_typed(typed, known)[None]),
        decode_answer=known.decode,
        prompts=(known.decode(np.asarray(ids[cut : cut + 12])),),
        notes=(f"{cut:,} tokens to train on, the last {len(ids) - cut:,} held out",),
    )  # fmt: skip


def _load(data: str | os.PathLike[str], kind: str) -> tuple[Array, Tokenizer]:
    if is_token_file(data):
        return open_tokens(data)
    kinds: dict[str, Callable[[str], Tokenizer]] = {"chars": CharTokenizer, "bytes": lambda _: ByteTokenizer()}
    if kind not in kinds:
        raise ConfigError(f"tokenizer is {kind!r}", hint=did_you_mean(str(kind), kinds))
    carried = CARRIED.get(str(data)) if not os.path.exists(data) else None
    content = carried() if carried else read_text(data)
    known = kinds[kind](content)
    return known.encode(content), known


def _typed(typed: str, known: Tokenizer) -> Array:
    if not typed:
        raise DataError("there is nothing to continue", hint="type at least one character")
    return known.encode(typed)
