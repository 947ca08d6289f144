"""Learn to write like a text: a language model over its characters, bytes or pieces of words."""

import os
from typing import Literal

import numpy as np

from ... import registry
from ...arrays import Array
from ...errors import ConfigError, DataError
from ...models.model import Batch
from ...settings import check_known
from ...text.bpe import BPETokenizer
from ...text.bytes import ByteTokenizer
from ...text.chars import CharTokenizer
from ...text.tokenizer import Tokenizer
from ..corpus import CARRIED, read_text
from ..examples import Windows
from ..lexicon import Lexicon
from ..task import Task, recipe
from ..tokens import is_token_file, open_tokens

TRAIN_SHARE = 0.9
FAMILIES = ("chars", "bytes", "bpe")
BPE_SIZE = 512


def text(
    *,
    seed: int = 0,
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
        settings={
            "vocab": known.size, "context": context, "width": 128, "heads": 4, "layers": 4, "positions": "rotary",
            "activation": "gelu_tanh", "attention_bias": False, "feed_forward_bias": False,
        },
        recipe=recipe(steps=2000, batch=12, lr=3e-3, beta2=0.99, warmup=100, eval_every=250),
        metric="none",
        encode_input=lambda typed: Batch(_typed(typed, known, start)[None]),
        decode_answer=known.decode,
        prompts=(known.decode(np.asarray(ids[cut : cut + 12])),),
        notes=(f"{cut:,} tokens to train on, the last {len(ids) - cut:,} held out",),
    )  # fmt: skip


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
    content = _content(data)
    if known is None and family == "bpe":
        return _with_bpe(content, BPE_SIZE if bpe_size is None else bpe_size)
    known = known or _made(family, content)
    ids = known.encode(content)
    return ids, int(len(ids) * TRAIN_SHARE), known


def _made(family: str, content: str) -> Tokenizer:
    """Return a tokenizer that knows a whole text."""
    if family in FAMILIES:
        return CharTokenizer(content) if family == "chars" else ByteTokenizer()
    cls = registry.find("tokenizer", family)
    if not hasattr(cls, "from_text"):
        raise ConfigError(
            f"the tokenizer {family!r} cannot be made from a text", hint="give it a class method from_text(text)"
        )
    return cls.from_text(content)


def _content(data: str | os.PathLike[str]) -> str:
    return CARRIED[data]() if isinstance(data, str) and data in CARRIED else read_text(data)


def _with_bpe(content: str, size: int) -> tuple[Array, int, Tokenizer]:
    """Cut the text first, so that nothing of its held-out part shapes the vocabulary."""
    place = int(len(content) * TRAIN_SHARE)
    known = BPETokenizer.train(content[:place], size=size)
    train, held_out = known.encode(content[:place]), known.encode(content[place:])
    return np.concatenate([train, held_out]), len(train), known


def _typed(typed: str, known: Tokenizer, start: list[int]) -> Array:
    if not typed:
        raise DataError("there is nothing to continue", hint="type at least one character")
    return np.concatenate([np.array(start, dtype=np.int64), known.encode(typed)])
