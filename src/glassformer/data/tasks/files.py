"""Tasks from files: continue a text, write one more line like those of a list, turn one text into another."""

import os
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.arrays import Array
from ...core.errors import ConfigError, DataError
from ...models.model import Batch
from ...text import PublishedTokenizer
from ...text.chat import encode_chat
from ...text.tokenizer import Family, Tokenizer, fit_tokenizer
from ..corpus import CARRIED, encode_long, is_token_file, left_out_files, open_tokens, read_text, shown_path, text_files
from ..examples import Windows
from ..pairs import Pair, conversations, exchange, message, read_pairs
from ..splits import Splits, normalized, split
from ..tables import is_rows, is_table, read_table
from ..task import (
    Count,
    Lexicon,
    Seed,
    Task,
    example_lines,
    left_out,
    length_line,
    question_task,
    recipe,
    require_text,
    split_line,
    tokens_line,
)

TRAIN_SHARE = 0.9
SHORT_PAIR, SHORT_LINE, LONGEST = 80, 100, 1000
"""Characters of a pair and of a line that are always kept, and of those that are kept unless the user asks for more."""
HELD_OUT_SHARE, MOST_HELD_OUT = 0.1, 1000  # of the lines, to choose settings by and to test on, each (as makemore)
WRITER = {"positions": "rotary", "activation": "gelu_tanh", "attention_bias": False, "feed_forward_bias": False}
"""Settings of the models that continue a text or write a line."""


def text(
    *,
    seed: Seed = 0,
    data: Any = None,
    text: str | None = None,
    header: bool | None = None,
    keep_missing: bool = False,
    tokenizer: Family = "auto",
    tokenizer_size: int | None = None,
    context: int = 64,
    lexicon: Lexicon | None = None,
) -> Task:
    """Build the task from a text whose last tenth is held out.

    text             column of a table that holds texts (none: found by its name, such as text or content)
    header           whether the first row of a CSV or TSV file names its columns (none: by what stands below it)
    keep_missing     keep cells that read NaN, NULL, N/A and the like as text, instead of leaving them out
    tokenizer        what the text is cut into: auto is chars for less than two million characters, bpe from there on;
                     a registered one needs `from_text`; a token file brings its own
    tokenizer_size   tokens that bpe or wordpiece learns from the training part (none: 512, and 4,096 from two million
                     characters on)
    context          tokens that the model reads at a time

    The data is a file, a folder, a table or a token file; "pydoc" (the default) is the prose about Python that `help()`
    shows, "stdlib" the source of the standard library, whatever files there are: "./pydoc" is one. A `lexicon` is that
    of a model that exists already, instead of a tokenizer; conversations are written as its chat template says.
    """
    del seed  # nothing is drawn: the split is by position
    data = "pydoc" if data is None else data
    table: dict[str, Any] = {"column": text, "header": header, "keep_missing": keep_missing}
    of_model = None if lexicon is None else lexicon.tokenizer
    if isinstance(data, str | os.PathLike) and data not in CARRIED and is_token_file(data):
        ids = _token_file(data, tokenizer, tokenizer_size, of_model)
    else:
        ids = _templated(data, of_model, **table) or _encoded_text(data, tokenizer, tokenizer_size, of_model, **table)
    known = ids.tokenizer
    start = [] if lexicon is None or lexicon.start_id is None else [lexicon.start_id]
    if len(ids.held_out) < 2:
        raise DataError("the text is too short: its held-out tenth has fewer than two tokens", hint="use a longer text")
    split_of = f"split: {ids.sizes[0]:,} {ids.unit} to train on, {context:,} tokens at a time"
    about = tokens_line(known, learned=lexicon is None), f"{split_of}; the last {ids.sizes[1]:,} held out"
    return Task(
        name="text",
        architecture="decoder",
        tokenizer=known,
        train=Windows(ids.train, context),
        held_out=Windows(ids.held_out, context),
        settings={"vocab": known.size, "context": context, "width": 128, "heads": 4, "layers": 4, **WRITER},
        recipe=recipe(steps=2000, batch=12, lr=3e-3, beta2=0.99, warmup=100, eval_every=250),
        metric="none",
        encode_input=lambda typed: Batch(np.array([*start, *known.encode(require_text(typed))], dtype=np.int64)[None]),
        decode_answer=known.decode,
        prompts=(known.decode(np.asarray(ids.held_out[:12])),),
        notes=(*ids.notes, *about, *example_lines(ids.examples)),
    )


def lines(
    *,
    seed: Seed = 0,
    data: Any = None,
    text: str | None = None,
    header: bool | None = None,
    keep_missing: bool = False,
    longest: Count | None = None,
    tokenizer: Family = "auto",
    tokenizer_size: int | None = None,
    lexicon: Lexicon | None = None,
) -> Task:
    """Build the task: each line of a text, or row of a table, is an example; blank ones do not count.

    text             column of a table that holds texts (none: found by its name, such as text or title)
    header           whether the first row of a CSV or TSV file names its columns (none: by what stands below it)
    keep_missing     keep cells that read NaN, NULL, N/A and the like as text, instead of leaving them out
    longest          lines of more characters are left out, and counted (none: what 98 % keep within, from 100 to 1,000)
    tokenizer        what lines are cut into: auto is chars for less than two million characters, bpe from there on
    tokenizer_size   tokens that bpe or wordpiece learns (none: 512, and 4,096 from two million characters on)

    A line that occurs twice may fall into two parts. It then stays in the training data and leaves the others, so that
    the test loss, over every character and the end of each line, is about lines never seen. A `lexicon` is that of a
    model that exists already.
    """
    if data is None:
        raise DataError("the task 'lines' needs a file", hint="pass one with an example on each line: --data names.txt")
    kept, said = _lines_of(data, longest, column=text, header=header, keep_missing=keep_missing)
    share = min(HELD_OUT_SHARE, MOST_HELD_OUT / len(kept))
    splits = _without_repeats(split(kept, (1 - 2 * share, share), seed=seed))
    learned = lexicon is None
    if lexicon is None:
        specials, others = ("<bos>", "<eos>"), [*splits.validation, *splits.held_out]
        lexicon = _lexicon(fit_tokenizer(tokenizer, splits.train, others, size=tokenizer_size, specials=specials))
    repeated = len(kept) - sum(map(len, splits))
    notes = (*said, *left_out({"repeated lines of validation and test, because training holds them": repeated}))
    return _noted(notes, [(line,) for line in kept], lexicon, splits, learned, question_task(
        "lines",
        "decoder",
        replace(lexicon, target_tokenizer=None, start_id=lexicon.borders[0]),
        splits.map(lambda line: ("", line)),
        str,
        settings={"width": 64, "heads": 4, "layers": 4, **WRITER},
        recipe=recipe(steps=8000, batch=128, lr=4e-3, beta2=0.99, warmup=100, dropout=0.1, eval_every=500),
        metric="none",
        prompts=("",),
    ))  # fmt: skip


def pairs(
    *,
    seed: Seed = 0,
    data: Any = None,
    source: str | None = None,
    target: str | None = None,
    header: bool | None = None,
    keep_missing: bool = False,
    longest: Count | None = None,
    tokenizer: Family = "auto",
    tokenizer_size: int | None = None,
    lexicon: Lexicon | None = None,
) -> Task:
    """Build the task: a tenth of the different sources is held out, spellings of the same one together.

    source           column of what is read (none: found by its name, such as source, prompt or question)
    target           column of what is written (none: found by its name, such as target or answer)
    header           whether the first row of a CSV or TSV file names its columns (none: by what stands below it)
    keep_missing     keep cells that read NaN, NULL, N/A and the like as text, instead of leaving their rows out
    longest          pairs with a source or target of more characters are left out, and counted (none: what 98 % of the
                     pairs keep within, from 80 to 1,000)
    tokenizer        what texts are cut into: auto is chars for less than two million characters, bpe from there on
    tokenizer_size   tokens that bpe or wordpiece learns (none: 512, and 4,096 from two million characters on)

    The data is a table, gettext catalogs, a folder of either, a DataFrame or a list of dicts. Conversations (a column
    `messages`) give one pair each: what comes before the last answer, and this answer. A `lexicon` is that of a model
    that exists already.
    """
    columns = {"source": source, "target": target}
    kept, notes, longest = _pairs_of(data, columns, longest, header=header, keep_missing=keep_missing)
    # Pairs whose sources differ in case or white space alone stay together.
    splits = split(kept, (TRAIN_SHARE,), seed=seed, key=lambda pair: normalized(pair.source))
    learned, specials = lexicon is None, ("<pad>", "<bos>", "<eos>")
    if lexicon is None:
        sides = zip(zip(*splits.train, strict=True), zip(*splits.held_out, strict=True), strict=True)
        lexicon = _lexicon(*(fit_tokenizer(tokenizer, *side, size=tokenizer_size, specials=specials) for side in sides))
    context = {"context": longest + 1} if learned and lexicon.tokenizer.kind == lexicon.writer.kind == "chars" else {}
    return _noted(notes, kept, lexicon, splits, learned, question_task(
        "pairs",
        "encoder-decoder",
        lexicon,
        splits,
        require_text,
        settings={"width": 128, "heads": 4, "encoder_layers": 3, "layers": 3, **context},
        recipe=recipe(steps=5000, batch=32, lr=1e-3, warmup=200, dropout=0.1, label_smoothing=0.1, eval_every=500),
    ))  # fmt: skip


def _lexicon(reader: Tokenizer, writer: Tokenizer | None = None) -> Lexicon:
    specials = (writer or reader).specials
    return Lexicon(reader, writer, specials["<bos>"], specials["<eos>"])


def _noted(
    notes: Sequence[str], kept: Sequence[Sequence[str]], lexicon: Lexicon, splits: Splits, learned: bool, task: Task
) -> Task:
    """Return a task with the lines that say what was understood of its data."""
    rows = getattr(task.train, "rows", None)
    masks = [mask for mask in (rows.source_mask, rows.mask) if mask is not None] if rows else []
    names = ("sources", "targets") if len(masks) == 2 else ("lines",)
    lengths = [length_line(name, mask.sum(axis=1).tolist()) for name, mask in zip(names, masks, strict=False)]
    about = tokens_line(lexicon.tokenizer, learned=learned), *lengths, split_line(splits)
    return replace(task, notes=(*notes, *about, *example_lines(kept[:3])))


# --- a text ----------------------------------------------------------------------------------------------------------


def _text_of(data: Any, **table: Any) -> tuple[str, tuple[str, ...]]:
    """Return the text of a carried text, a file, a folder or a table, whose texts follow each other, and its notes."""
    if rows := _rows_of(data, **table):
        name, texts, said = rows
        full = [text for text in texts if text]
        note = f"{name}: {len(texts):,} rows, {sum(map(len, full)):,} characters"
        return "\n\n".join(full) + "\n", (note, *said, *left_out({"rows without a text": len(texts) - len(full)}))
    if data in CARRIED:
        content = CARRIED[data]()
        return content, (f"{data}: {len(content):,} characters",)
    files, others = text_files(data), left_out_files(data)
    content = read_text(data)
    count = f"{len(files):,} files, " if files != [Path(data)] else ""
    named = ", ".join(file.name for file in others[:3]) + (", …" if len(others) > 3 else "")
    reasons = {f"files without text ({named})": len(others)}
    return content, (f"{shown_path(data)}: {count}{len(content):,} characters", *left_out(reasons))


def _rows_of(data: Any, *, column: str | None, **reading: Any) -> tuple[str, list[str], tuple[str, ...]] | None:
    """Return the name and the texts of a table, or of its conversations, and its notes; None for other data."""
    is_file = not is_rows(data) and not Path(data).is_dir() and data not in CARRIED and is_table(data)
    if not (is_file or is_rows(data) or column is not None or reading["header"] is not None):
        return None
    table = read_table(data, {"text": column}, **reading)
    chats = [] if table.find("text") else conversations(table)
    texts = ["\n".join(f"{role}: {said}" for role, said in turns) for turns in chats]
    return table.name, texts or table.texts(*table.chosen()), table.notes


class _Ids(NamedTuple):
    """The ids of a text, those to train on or what encodes them, and what is to be said of it.

    sizes   of the two parts, in units
    """

    train: Array | Callable[[], Array]
    held_out: Array
    tokenizer: Tokenizer
    notes: tuple[str, ...]
    sizes: tuple[int, int]
    unit: str
    examples: Iterable[Sequence[str]]


def _templated(data: Any, known: Tokenizer | None, *, column: str | None, **reading: Any) -> _Ids | None:
    """Return conversations as the chat template of a model writes them; None for other data, or without a template."""
    if not isinstance(known, PublishedTokenizer) or known.chat_template is None or column is not None:
        return None
    if not (is_rows(data) or (data not in CARRIED and is_table(data))):
        return None
    table = read_table(data, {"text": None}, **reading)
    chats = [] if table.find("text") else conversations(table)
    if not chats:
        return None
    every = [encode_chat(known, [*map(message, turns)], add_generation_prompt=False) for turns in chats]
    cut, sizes = _cut(every)
    if not cut:
        raise DataError(f"{table.name} has a single conversation, so none can be held out", hint="use more of them")
    notes = (f"{table.name}: {len(every):,} conversations, in the chat template of the model",)
    examples = [exchange(chats[start]) for start in (0, cut // 2, cut)]
    train, held_out = np.concatenate(every[:cut]), np.concatenate(every[cut:])
    return _Ids(train, held_out, known, notes, sizes, "conversations", examples)


def _token_file(data: str | os.PathLike[str], family: str, size: int | None, known: Tokenizer | None) -> _Ids:
    """Return what a token file holds."""
    if size is not None or family != "auto":
        what = "tokenizer" if size is None else "tokenizer_size"
        raise ConfigError(f"{what} is set, but {data} is encoded already", hint=f"leave {what} out, or pass the text")
    ids, tokenizer = open_tokens(data)
    if known is not None and tokenizer.to_dict() != known.to_dict():
        raise DataError(
            f"{data} was encoded with another tokenizer than that of the model",
            hint="pass the text itself, or encode it with the model's tokenizer",
        )
    cut, sizes = _cut(ids)
    examples = [[tokenizer.decode(np.asarray(ids[start : start + 40]))] for start in (0, cut // 2, cut)]
    return _Ids(
        ids[:cut], ids[cut:], tokenizer, (f"{shown_path(data)}: {len(ids):,} tokens",), sizes, "tokens", examples
    )


def _encoded_text(data: Any, family: str, size: int | None, known: Tokenizer | None, **table: Any) -> _Ids:
    """Return the ids of a text; those to train on are encoded when they are asked for, which evaluations never do."""
    text, notes = _text_of(data, **table)
    # Cut the text first, so that nothing of its held-out part shapes the vocabulary that is learned.
    cut, sizes = _cut(text)
    if known is None:
        known = fit_tokenizer(family, [text[:cut]], [text[cut:]], size=size)
    examples = [[text[start : start + 40]] for start in (0, cut // 2, cut)]
    train, held_out = partial(encode_long, known, text[:cut]), encode_long(known, text[cut:])
    return _Ids(train, held_out, known, notes, sizes, "characters", examples)


def _cut(text: Sized) -> tuple[int, tuple[int, int]]:
    """Return where the last tenth begins, and the sizes of both parts."""
    cut = int(len(text) * TRAIN_SHARE)
    return cut, (cut, len(text) - cut)


# --- lines and pairs -------------------------------------------------------------------------------------------------


def _lines_of(data: Any, longest: int | None, **table: Any) -> tuple[list[str], tuple[str, ...]]:
    """Return the lines of a text, or the texts of a table, that are not too long, and notes about them."""
    rows = _rows_of(data, **table)
    name, texts, said = rows or (shown_path(data), read_text(data).splitlines(), ())
    every = [line.strip() for line in texts if line.strip()]
    lengths = [*map(len, every)]
    limit = _length_limit(lengths, SHORT_LINE) if longest is None else longest
    kept = [line for line, length in zip(every, lengths, strict=True) if length <= limit]
    if not kept:
        raise DataError(f"{name} has no line of at most {limit} characters", hint="raise `longest`")
    reasons = {f"lines of more than {limit:,} characters": len(every) - len(kept)}
    reasons["rows without a text"] = len(texts) - len(every) if rows else 0
    return kept, (f"{name}: {len(every):,} lines", *said, *left_out(reasons), *_too_long("lines", lengths, limit))


def _without_repeats(splits: Splits) -> Splits:
    """Return splits whose later parts hold no line that occurs in an earlier one."""
    seen = set(map(normalized, splits.train))
    validation = [line for line in splits.validation if normalized(line) not in seen]
    seen |= set(map(normalized, splits.validation))
    held_out = [line for line in splits.held_out if normalized(line) not in seen]
    if not validation or not held_out:
        lines = [line for part in splits for line in part]
        raise DataError(
            f"{len(lines):,} lines, of which {len(set(lines)):,} differ, leave nothing to hold out",
            hint="use more lines",
        )
    return Splits(splits.train, validation, held_out)


def _pairs_of(
    data: Any, columns: dict[str, str | None], longest: int | None, **reading: Any
) -> tuple[list[Pair], tuple[str, ...], int]:
    """Return the different pairs of a table, of catalogs, or of a folder of either, notes, and the longest length."""
    if data is None:
        raise DataError(
            "the task 'pairs' needs a file or folder",
            hint="pass a table, or gettext catalogs such as share/locale/de/LC_MESSAGES: --data PATH",
        )
    every, said = read_pairs(data, columns, **reading)
    full = [pair for pair in every if all(pair)]
    first: dict[str, Pair] = {}
    for pair in full:
        first.setdefault(pair.source, pair)
    lengths = [max(map(len, pair)) for pair in first.values()]
    limit = _length_limit(lengths, SHORT_PAIR) if longest is None else longest
    kept = [pair for pair, length in zip(first.values(), lengths, strict=True) if length <= limit]
    name = "the table" if is_rows(data) else shown_path(data)
    reasons = {
        "pairs without a source or a target": len(every) - len(full),
        "repeated sources, the first target of each stays": len(full) - len(first),
        f"pairs of more than {limit:,} characters": len(first) - len(kept),
    }
    if len(kept) < 2:
        remedies = "fill in what is missing", "name the column that is read: --source NAME", f"raise longest={limit}"
        worst = max(range(3), key=[*reasons.values()].__getitem__)
        raise DataError(
            "; ".join((f"{name} leaves {len(kept)} different pairs, too few to hold any out", *left_out(reasons))),
            hint=f"{remedies[worst]}, or use more data",
        )
    notes = f"{name}: {len(every):,} pairs", *said, *left_out(reasons), *_too_long("pairs", lengths, limit)
    return kept, notes, limit


def _length_limit(lengths: Sequence[int], least: int) -> int:
    """Return what 98 of 100 texts keep within, between `least` and `LONGEST`."""
    return max(least, min(LONGEST, int(np.quantile(lengths, 0.98, method="higher")))) if lengths else least


def _too_long(what: str, lengths: Sequence[int], limit: int) -> tuple[str, ...]:
    """Return a warning if more than a tenth of the texts are longer than the limit."""
    longer = sum(length > limit for length in lengths)
    if longer <= len(lengths) / 10:
        return ()
    share = f"{longer:,} of {len(lengths):,} {what}"
    return (f"warning: {share} are longer than {limit:,} characters; --set longest={max(lengths)} keeps all of them",)
