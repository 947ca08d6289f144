"""Texts of a command in, from its arguments, stdin or a table, and the same rows with more columns out."""

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import click

from ..core.errors import ConfigError, DataError, GlassformerError
from ..core.files import explained, flush, flush_folder
from ..data.corpus import copied_once, read_file
from ..data.tables import Row, Table, is_table, read_table, text_of
from .options import PATH, bundle, read_stdin, refuse
from .output import log, plural

FORMATS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".jsonl": "", ".ndjson": ""}
"""Endings of files that can be written, each with what stands between its fields; nothing: JSON."""
STDIN = Path("-")
FOREIGN = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as `read_file` keeps them."""
BREAK = re.compile(r"[\t\r\n]")


def text_options(word: str, meaning: str, file: str) -> Callable[[Any], Any]:
    """Return the options of a command that reads texts: a `TextOptions`. `word` is what it calls one."""
    return bundle([
        click.argument(
            "inputs", metavar=f"[{word}]...", nargs=-1, help=f"{meaning}; - or none reads each line of stdin."
        ),
        click.option("--file", type=PATH, metavar="FILE", help=f"A file to read: {file}."),
        click.option("--text", metavar="COLUMN", help="Of a table: the column of texts (default: found by its name)."),
    ])  # fmt: skip


@dataclass(frozen=True)
class TextOptions:
    """The texts of a command: its arguments, the lines of stdin, or a file; `text` is the column of a table."""

    inputs: tuple[str, ...]
    file: Path | None
    text: str | None

    @property
    def from_stdin(self) -> bool:
        """Whether the texts are lines of stdin."""
        return self.inputs in ((), ("-",))

    def check_file(self, word: str) -> None:
        """Refuse arguments beside a file."""
        refuse(self.inputs, f"--file or the {word}", f"{word} are given twice, as arguments and by --file")

    def lines(self, what: str) -> list[str]:
        """Return the arguments, or the lines of stdin; refuse if there are none to do `what` with."""
        refuse(self.text, "--text", "--text belongs to --file")
        texts = read_stdin().splitlines() if self.from_stdin else list(self.inputs)
        if self.from_stdin and not any(text.strip() for text in texts):
            hint = "pass texts as arguments, by --file FILE, or one on each line of stdin"
            raise DataError(f"there is nothing to {what}", hint=hint)
        return texts


class Rows(NamedTuple):
    """The rows of a file, and of each its text, or why it has none."""

    table: Table
    texts: list[str | GlassformerError]


def read_rows(file: Path, column: str | None = None, out: Path | None = None) -> Rows:
    """Read a table, or a file or stdin whose lines are texts; a row without a text is an error of its own.

    column   of the texts (None: found by its name)
    out      where they will be written; refused if that cannot be, before anything is computed
    """
    if out is not None:
        check_out(out, file)
    if file == STDIN and column is not None:
        file = Path(copied_once("-"))
    if not is_table(file) and column is None:
        name = "stdin" if file == STDIN else str(file)
        lines = read_stdin().splitlines() if file == STDIN else read_file(file, strict=False).splitlines()
        if not lines:
            raise DataError(f"{name} is empty", hint="pass a file with texts in it")
        table = Table(name, ("text",), [Row(name, number, (line,)) for number, line in enumerate(lines, start=1)])
        return Rows(table, [_checked(line, row) for line, row in zip(lines, table.rows, strict=True)])
    table = read_table(file, {"text": column}, strict=False, keep_missing=True)
    [column] = table.chosen()
    return Rows(table, [_text(row, column, table.columns.index(column)) for row in table.rows])


def _text(row: Row, column: str, place: int) -> str | GlassformerError:
    try:
        return row.error or _checked(text_of(row.fields[place], row, column), row)
    except DataError as error:
        return error


def _checked(text: str, row: Row) -> str | DataError:
    """Return a text, or why it is none: it is empty, or holds bytes that are not UTF-8."""
    if not text.strip():
        return DataError(f"{row.location}: the text is empty", hint="leave the row out")
    if foreign := FOREIGN.search(text):
        return DataError(f"{row.location}: byte 0x{ord(foreign[0]) - 0xDC00:02x} is not UTF-8", hint="convert the file")
    return text


def check_out(out: Path, file: Path | None) -> None:
    """Refuse to write rows where that cannot be, or over the file that is read."""
    if out.suffix.lower() not in FORMATS:
        raise ConfigError(f"rows cannot be written into {out}", hint=f"name a file that ends in {', '.join(FORMATS)}")
    if file is not None and file.exists() and out.exists() and out.samefile(file):
        raise ConfigError(f"{out} is the file that is read", hint="choose another name")
    if out.is_dir() or not out.parent.is_dir():
        raise ConfigError(f"no file can be written at {out}", hint="name a file in a folder that exists")


class RowWriter:
    """Writes rows of a table, in their order, with values for new columns; `done` is how many."""

    def __init__(self, stream: TextIO | None, table: Table, names: Sequence[str], between: str) -> None:
        self.stream, self.table, self.between, self.done = stream, table, between, 0
        self.columns = list(table.columns)
        for name in names:
            spellings = chain([name], (f"{name}_{number}" for number in count(2)))
            self.columns.append(next(free for free in spellings if free not in self.columns))
        if between:
            self._write(self.columns)

    def __call__(self, values: Sequence[Sequence[Any]]) -> None:
        """Write the next rows, with their values for the new columns."""
        width = len(self.table.columns)
        for added in values:
            fields = self.table.rows[self.done].fields[:width]
            self._write([*fields, *[None] * (width - len(fields)), *added])
            self.done += 1

    def _write(self, fields: Sequence[Any]) -> None:
        stream = sys.stdout if self.stream is None else self.stream
        if not self.between:
            stream.write(json.dumps(dict(zip(self.columns, fields, strict=True)), ensure_ascii=False) + "\n")
        elif self.between == "\t":
            stream.write("\t".join(BREAK.sub(" ", _cell(field)) for field in fields) + "\n")
        else:
            csv.writer(stream, lineterminator="\n").writerow([_cell(field) for field in fields])


def _cell(value: Any) -> str:
    """Return a field as text: what is no text, as JSON writes it."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


@contextmanager
def writing_rows(table: Table, names: Sequence[str], out: Path | None) -> Iterator[RowWriter]:
    """Yield what writes the rows of a table with more columns, to stdout or into `out`.

    They go into a file beside `out`, which takes its name when all are there. If that does not happen, the file stays,
    and a message says what it holds.
    """
    between = FORMATS.get((Path(table.name) if out is None else out).suffix.lower(), ",")
    if between == "\t" and any(BREAK.search(_cell(field)) for row in table.rows for field in row.fields):
        raise ConfigError("a field holds a tab or a line break, which TSV cannot", hint="write a .csv or .jsonl file")
    if out is None:
        # A progress bar prints above itself what goes to its terminal; a pipe must not be redirected there.
        yield RowWriter(None if sys.stdout.isatty() else sys.stdout, table, names, between)
        return
    part = out.with_name(f"{out.name}.part")
    with explained(out), part.open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        write = RowWriter(stream, table, names, between)
        try:
            yield write
        except BaseException:
            log(f"{out} is not written; {part} holds {write.done:,} of {plural(len(table.rows), 'row')}")
            raise
    with explained(out):
        flush(part)
        os.replace(part, out)
    flush_folder(out.parent)
