"""The task of telling texts apart: texts with labels from a table, or from a folder for each label."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ...core import registry
from ...core.arrays import Array
from ...core.errors import DataError
from ...text.tokenizer import LEARNED, Family, Tokenizer, fit_tokenizer
from ..examples import Examples, class_examples
from ..splits import Splits, hash_fraction, normalized
from ..tables import Table, read_table
from ..task import (
    MAX_LABELS,
    RECIPE,
    Count,
    Lexicon,
    Seed,
    Task,
    example_lines,
    label_counts,
    left_out,
    length_line,
    recipe,
    require_text,
    split_line,
    tokens_line,
)

HELD_OUT_SHARE = 0.1
LONGEST = 256
FEW = 20
"""Texts below which nothing that is measured says anything."""
WARNED = 3
"""Warnings of one kind that are printed."""
ENOUGH = 1000
"""Different texts from which on there is a part to choose the best parameters by, and another to test on."""
SETTINGS = {
    "width": 64, "heads": 4, "layers": 1, "positions": "rotary", "norm": "rms", "activation": "silu", "gated": True,
    "attention_bias": False, "feed_forward_bias": False, "init_std": 0.02,
}  # fmt: skip
"""Of the model. A published family, EuroBERT, computes these, so that it can be exported."""
PADDING = "<pad>"
"""A token that stands in no text, by which other programs fill a batch."""
EPOCHS, STEPS = 3, (300, 3000)
"""Of a training: as many steps as the epochs take, but not fewer or more than these."""
EVALUATIONS, PATIENCE = 12, 5
"""How many there are, and after how many without improvement a training stops."""
SPELLED, PIECES = 80, (512, 16_384)
"""Characters of the training texts for each piece of the tokenizer, of which there are not fewer or more than these."""
LETTERS = 1000
"""Different characters up to which texts are cut into words and their pieces."""


class Labeled(NamedTuple):
    """A text and its label."""

    text: str
    label: str


def classify(
    *,
    seed: Seed = 0,
    data: Any = None,
    text: str | None = None,
    label: str | None = None,
    header: bool | None = None,
    keep_missing: bool = False,
    longest: Count = LONGEST,
    tokenizer: Family = "auto",
    tokenizer_size: int | None = None,
    class_weights: Literal["none", "balanced"] = "none",
    lexicon: Lexicon | None = None,
) -> Task:
    """Build the task: about a tenth of each label is held out; from 1,000 texts on, a twentieth to validate.

    text             column of the texts (none: found by its name, such as text, review or sentence)
    label            column of the labels (none: found by its name, such as label, category or stars)
    header           whether the first row of a CSV or TSV file names its columns (none: by what stands below it)
    keep_missing     keep cells that read NaN, NULL, N/A and the like as text, instead of leaving their rows out
    longest          tokens that are read of a text; what comes after them is cut off
    tokenizer        what texts are cut into; auto is wordpiece, which lower-cases words and knows frequent ones as a
                     whole, and bpe where texts have more than 1,000 different characters
    tokenizer_size   tokens that bpe or wordpiece learns (none: one for 80 characters of the training texts, but not
                     fewer than 512 or more than 16,384)
    class_weights    balanced: rare labels weigh as much as frequent ones, each 1 / (classes · its share)

    The data is a table, a folder of tables, a folder of texts for each label, a DataFrame or a list of dicts; a
    `lexicon` is that of a model that exists already. Each text counts once, whatever its case and white space, so that
    it never stands on both sides. A hash of it decides on its part, which is the same for every seed.
    """
    del seed  # nothing is drawn: the split is by a hash
    if data is None:
        raise DataError("the task 'classify' needs texts with labels", hint="pass a table: --data reviews.csv")
    table = read_table(data, {"text": text, "label": label}, header=header, keep_missing=keep_missing)
    splits, classes, notes, first = _read(table, lexicon.labels if lexicon else ())
    train, *others = ([example.text for example in part] for part in splits)
    if learned := lexicon is None:
        lexicon = Lexicon(_fitted(tokenizer, tokenizer_size, train, [text for part in others for text in part]))
    parts, lengths = _encoded(splits, lexicon, classes, longest)
    weights = _balancing(splits.train, classes) if class_weights == "balanced" else {}
    sizes = {"vocab": lexicon.tokenizer.size, "context": longest if learned else min(longest, max(lengths))}
    return Task(
        name="classify",
        architecture="encoder",
        tokenizer=lexicon.tokenizer,
        settings={**sizes, "classes": len(classes), **SETTINGS},
        recipe=_recipe(len(splits.train), weights, learned=learned),
        metric="classes",
        encode_input=lambda typed: lexicon.encode_question("encoder", require_text(typed)),
        decode_answer=lambda ids: classes[int(ids[0])],
        prompts=tuple(example.text for example in splits.held_out if len(example.text) <= longest)[:3],
        groups=tuple(example.label for example in splits.held_out),
        texts=Splits(*([example.text for example in part] for part in splits)),
        notes=(*notes, tokens_line(lexicon.tokenizer, learned=learned), _length_note(lengths, longest), *first),
        **parts,
    )


def labeled_examples(
    data: Any,
    lexicon: Lexicon,
    classes: Sequence[str],
    *,
    longest: int,
    text: str | None,
    label: str | None,
    header: bool | None = None,
    keep_missing: bool = False,
) -> tuple[Examples, tuple[str, ...]]:
    """Return every row with a text and a label of these classes, for a model that exists, and lines about them."""
    table = read_table(data, {"text": text, "label": label}, header=header, keep_missing=keep_missing)
    columns = _columns(table)
    rows = [Labeled(*pair) for pair in zip(*map(table.texts, columns), strict=True)]
    for row, example in zip(table.rows, rows, strict=True):
        if all(example) and example.label not in classes:
            known = ", ".join(map(repr, classes[:MAX_LABELS]))
            raise DataError(
                f"{row.location}: the model has no class {example.label!r}; it knows {known}",
                hint="leave the row out, or name the column of the labels",
            )
    full = [example for example in rows if all(example)]
    if not full:
        raise DataError(f"{table.name} has no row with both a text and a label", hint="pass rows that have both")
    parts, lengths = _encoded(Splits(full, [], []), lexicon, classes, longest)
    reasons = {"rows without a text or a label": len(rows) - len(full)}
    return parts["train"], (*left_out(reasons), _length_note(lengths, longest))


def _read(table: Table, known: Sequence[str]) -> tuple[Splits, list[str], tuple[str, ...], tuple[str, ...]]:
    """Return the parts of a table, without rows that are empty or repeated; the classes; notes; lines of examples."""
    text, label = _columns(table)
    kept, reasons = _kept(table, text, label)
    classes = _classes(table.name, label, kept, known)
    rows = f"{table.name}: {len(table.rows):,} rows; texts in {text!r}, labels in {label!r}"
    counts = Counter(example.label for example in kept)
    notes = rows, *table.notes, *left_out(reasons), label_counts(counts), *_doubtful(table, label, counts)
    splits = _split(table.name, kept)
    return splits, classes, (*notes, split_line(splits)), example_lines(kept[:3])


def _doubtful(table: Table, column: str, counts: Counter[str]) -> Iterator[str]:
    """Yield warnings of labels that differ in spelling alone, of labels with one text, and of very few texts."""
    lines: dict[str, list[int]] = {}
    for row, label in zip(table.rows, table.texts(column), strict=True):
        lines.setdefault(label, []).append(row.line)

    def located(label: str) -> str:
        shown, more = ", ".join(f"{line:,}" for line in lines[label][:3]), ", …" if len(lines[label]) > 3 else ""
        return f"{label!r} (line{'s' if len(lines[label]) > 1 else ''} {shown}{more})"

    spellings: dict[str, list[str]] = {}
    for label, _ in counts.most_common():
        spellings.setdefault(normalized(label), []).append(label)
    for labels in [labels for labels in spellings.values() if len(labels) > 1][:WARNED]:
        yield f"warning: labels that differ in case or blanks alone are told apart: {', '.join(map(located, labels))}"
    single = [label for label, count in counts.items() if count == 1]
    for label in single[:WARNED]:
        yield f"warning: a single text has the label {located(label)}, so nothing tests it"
    if len(single) > WARNED:
        yield f"warning: {len(single) - WARNED:,} more labels have a single text each"
    if counts.total() < FEW:
        yield f"warning: {counts.total():,} texts are too few to learn from, or to measure by"


def _fitted(family: str, size: int | None, train: Sequence[str], others: Sequence[str]) -> Tokenizer:
    """Return a tokenizer with a token for padding, and as many pieces as there are texts to learn from.

    One of the user's own is taken as it is.
    """
    letters = len(set().union(*train))
    if family == "auto":
        family = "wordpiece" if letters <= LETTERS else "bpe"
    if size is None and family in LEARNED:
        size = max(min(sum(map(len, train)) // SPELLED, PIECES[1]), PIECES[0])
        size = max(size, 3 * letters) if family == "wordpiece" else size  # a letter may begin a word, or not
    specials = () if family in registry.own("tokenizer") else (PADDING,)
    return fit_tokenizer(family, train, others, size=size, specials=specials)


def _recipe(count: int, weights: dict[str, list[float]], *, learned: bool) -> dict[str, Any]:
    """Return the training on this many texts; a model that exists has another, see `planning.tuning_defaults`."""
    if not learned:
        return recipe(steps=1000, lr=1e-3, warmup=50, dropout=0.1, eval_every=100) | weights
    steps = min(max(EPOCHS * count // RECIPE["batch"], STEPS[0]), STEPS[1])
    every = steps // EVALUATIONS
    # Of few texts, many checkpoints answer as many rightly; and where rare labels weigh more, accuracy is not the aim.
    keep = "best" if count < ENOUGH or weights else "accurate"
    return recipe(steps=steps, lr=3e-3, dropout=0.3, eval_every=every, patience=PATIENCE, keep=keep) | weights


def _balancing(train: Sequence[Labeled], classes: Sequence[str]) -> dict[str, list[float]]:
    """Return the setting that lets all classes weigh the same in the training data."""
    counts = Counter(example.label for example in train)
    return {"class_weights": [len(train) / (len(counts) * counts[name]) if counts[name] else 0.0 for name in classes]}


def _length_note(lengths: Sequence[int], longest: int) -> str:
    cut = sum(length > longest for length in lengths)
    return length_line("texts", lengths, f"; {cut:,} cut after {longest:,}" if cut else "")


def _columns(table: Table) -> list[str]:
    """Return the columns of texts and labels; of two with unknown names, labels are in the one that repeats more."""
    if len(table.columns) == 2 and not any(table.asked.values()) and not table.has("text") and not table.has("label"):
        label, text = sorted(table.columns, key=lambda column: len(set(table.texts(column))))
        return [text, label]
    columns = table.chosen()
    if columns[0] == columns[1]:
        raise DataError(f"the column {columns[0]!r} is both text and label", hint="name two columns")
    return columns


def _kept(table: Table, text: str, label: str) -> tuple[list[Labeled], dict[str, int]]:
    """Return the first row of each different text, and how many others there are, by the reason."""
    rows = [Labeled(*pair) for pair in zip(table.texts(text), table.texts(label), strict=True)]
    full = [row for row in rows if all(row)]
    first: dict[str, Labeled] = {}
    for row in full:
        first.setdefault(normalized(row.text), row)
    conflicts = sum(row.label != first[normalized(row.text)].label for row in full)
    others = f" ({conflicts:,} had another label)" if conflicts else ""
    reasons = {
        "rows without a text": sum(not row.text for row in rows),
        "rows without a label": sum(bool(row.text) and not row.label for row in rows),
        f"repeated texts, the first label of each stays{others}": len(full) - len(first),
    }
    return list(first.values()), reasons


def _classes(name: str, column: str, kept: Sequence[Labeled], known: Sequence[str]) -> list[str]:
    """Return the labels in order, numbers by their size; refuse labels that are all the same, or all different.

    A model that exists tells the classes apart that it knows: labels must be among them.
    """
    labels = sorted({example.label for example in kept})
    unknown = [label for label in labels if label not in known]
    if known and labels:
        if unknown:
            raise DataError(f"{name}: the model knows no label {unknown[0]!r}", hint=f"known: {', '.join(known)}")
        return list(known)
    if len(labels) < 2:
        what = f"every label is {labels[0]!r}" if labels else "no row has both a text and a label"
        raise DataError(f"{name}: {what}", hint="there must be two labels to tell apart; is another column meant?")
    if len(labels) > max(2, len(kept) // 2):
        raise DataError(
            f"{name}: {column!r} has {len(labels):,} different labels for {len(kept):,} texts",
            hint="a label needs several texts; name another column: --label NAME",
        )
    try:
        return sorted(labels, key=float)
    except ValueError:
        return labels


def _split(name: str, kept: Sequence[Labeled]) -> Splits:
    """Split the texts of each label by a hash; a label with a single text is trained on."""
    by_hash = sorted(kept, key=lambda example: hash_fraction(normalized(example.text)))
    sizes, taken = Counter(example.label for example in kept), Counter[str]()
    splits = Splits([], [], [])
    for example in by_hash:
        size, number = sizes[example.label], taken[example.label]
        taken[example.label] += 1
        test = min(max(1, round(size * HELD_OUT_SHARE)), size - 1)
        validation = min(test - test // 2, size - 1 - test) if len(kept) >= ENOUGH else 0
        splits[2 if number < test else 1 if number < test + validation else 0].append(example)
    if not splits.held_out:
        fact = f"{name} has one different text for each label, so nothing can be held out"
        raise DataError(fact, hint="use more texts; repeated ones count once")
    return splits


def _encoded(
    splits: Splits, lexicon: Lexicon, classes: Sequence[str], longest: int
) -> tuple[dict[str, Any], list[int]]:
    """Return the examples of each part, and how many tokens each text has before it is cut."""
    parts: dict[str, Any] = {}
    lengths: list[int] = []
    for part, pairs in splits._asdict().items():
        ids = lexicon.encode_sources([pair.text for pair in pairs])
        lengths += [len(each) for each in ids]
        if pairs:
            ids = [cut_ids(each, longest, lexicon.tokenizer) for each in ids]
            parts[part] = class_examples(ids, [pair.label for pair in pairs], classes)
    return parts, lengths


def cut_ids(ids: Array, longest: int, tokenizer: Tokenizer) -> Array:
    """Return at most `longest` ids; a special token at the end, such as [SEP], stays."""
    if len(ids) <= longest:
        return ids
    ends = ids[-1] in tokenizer.specials.values()
    return np.concatenate([ids[: longest - 1], ids[-1:]]) if ends else ids[:longest]
