"""Rows of texts as people keep them: CSV, TSV, JSON Lines, folders of them, DataFrames and lists of dicts.

A row that breaks the structure of its file is an error with the number of its line: a quote that never closes, more
fields than the header has, a line that is no JSON. What a task can do without, such as a row with an empty field, is
its own affair. Columns are found by name, or named by the user; those of a file without a header are called 1, 2, …
"""

import csv
import io
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import ConfigError, DataError, did_you_mean
from ..core.reporting import report
from .columns import MISSING, WITNESSES, known_columns, names_columns
from .corpus import TEXT_SUFFIXES, new_copy, read_file, shown_path, text_files

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json"})
"""The files of a folder that hold rows. A file that is named itself may end in anything."""
DELIMITERS = (",", ";", "\t", "|")
HEAD = 1 << 16
"""Characters of a file that its delimiter is found by."""
REPORTED = 1 << 14
"""Lines from one report of progress to the next."""
_BETWEEN = re.compile(r"[\s,]*")
_EXCEL = re.compile(r"sep=(.)\r?\n")
"""The first line of some files of Excel, which names the delimiter."""


class Row(NamedTuple):
    """One row and where it stands; `error` says why it cannot be read.

    file     empty for rows that come from Python
    line     of the file, from 1, where the row begins; of rows from Python, their index
    fields   one for each column: text, or what JSON and Python hold
    """

    file: str
    line: int
    fields: tuple[Any, ...]
    error: DataError | None = None

    @property
    def location(self) -> str:
        """Its file and line, or its index, as messages say them."""
        return f"{self.file}, line {self.line:,}" if self.file else f"rows[{self.line}]"


@dataclass(frozen=True)
class Table:
    """All rows of a file, a folder, a DataFrame or a list.

    name       where they come from
    columns    their names; `header`: whether they have names of their own
    asked      the columns that the user names, by what they are for: keys of `KNOWN` (None: not named)
    notes      lines that say how the file was read
    """

    name: str
    columns: tuple[str, ...]
    rows: list[Row]
    header: bool = True
    asked: Mapping[str, str | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def find(self, role: str) -> str | None:
        """Return the column that the user asks for, or the one with a known name for a role; None without one."""
        asked = self.asked.get(role)
        if asked is None:
            unnamed = [each for each in self.asked if self.asked[each] is None]
            return known_columns(self.columns, unnamed if role in unnamed else [role])[role]
        folded = {name.strip().casefold(): name for name in reversed(self.columns)}
        if asked in self.columns or asked.casefold() in folded:
            return asked if asked in self.columns else folded[asked.casefold()]
        raise DataError(
            f"{self.name} has no column {asked!r}, only {', '.join(map(repr, self.columns))}",
            hint=did_you_mean(asked, self.columns) if self.header else "without a header, columns are called 1, 2, …",
        )

    def chosen(self, *, in_order: bool = False) -> list[str]:
        """Return a column for each role: the one asked for, one with a known name, or the only one that is left.

        in_order   whether several columns that are left are taken in the order of the roles
        """
        columns = {role: self.find(role) for role in self.asked}
        missing = [role for role, column in columns.items() if column is None]
        rest = [column for column in self.columns if column not in columns.values()]
        if len(rest) == len(missing) and (in_order or len(missing) == 1):
            columns |= dict(zip(missing, rest, strict=True))
        elif missing:
            known = ", ".join(map(repr, self.columns))
            fact = f"{self.name} has the columns {known}, and none is known for a {missing[0]}"
            raise DataError(fact, hint=f"name it: --{missing[0]} NAME, or {missing[0]}=…")
        return [str(column) for column in columns.values()]

    def has(self, *roles: str) -> bool:
        """Return whether there is a column of its own for each role."""
        columns = [self.find(role) for role in roles]
        return None not in columns and len(set(columns)) == len(columns)

    def texts(self, column: str) -> list[str]:
        """Return one field of every row as text, empty where there is none; refuse lists and objects."""
        index = self.columns.index(column)
        return [text_of(row.fields[index], row, column) for row in self.rows]


def read_table(
    data: Any,
    asked: Mapping[str, str | None],
    *,
    strict: bool = True,
    header: bool | None = None,
    keep_missing: bool = False,
) -> Table:
    """Return all rows of a file, a folder of tables, a DataFrame, or a list of dicts.

    asked          see `Table`
    strict         refuse a broken row; False: keep it, with its error
    header         whether the first row of a CSV or TSV file names the columns (None: see `names_columns`)
    keep_missing   keep cells of such a file that read NaN, NULL, N/A or the like as text
    """
    if not isinstance(data, str | os.PathLike):
        _refuse_header("the data", header)
        return replace(_from_python(data), asked=asked)
    files = table_files(data)
    if Path(data).is_dir() and not is_table(files[0]):
        tables = [_labeled_texts(Path(data), files)]
    else:
        tables = [_read_file(file, asked, strict, header, keep_missing) for file in files]
    table, *others = tables
    for other in others:
        if other.columns != table.columns:
            raise DataError(
                f"{other.name} has the columns {', '.join(other.columns)}, but {table.name} {', '.join(table.columns)}",
                hint="give all files of a folder the same columns, or name one of them",
            )
    every = tables[0].rows if len(tables) == 1 else [row for each in tables for row in each.rows]
    notes = [note for each in tables for note in each.notes]
    if not every:
        raise DataError(f"{data} has no rows", hint="pass a file with a row below its header")
    for row in every if strict else ():
        if row.error is not None:
            raise row.error
    return Table(shown_path(data), table.columns, every, table.header, asked, tuple(dict.fromkeys(notes)))


def table_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the file itself, or the tables below a folder; where there are none, its texts."""
    if Path(path).is_dir():
        with suppress(DataError):
            return text_files(path, TABLE_SUFFIXES)
    return text_files(path, TABLE_SUFFIXES if Path(path).is_file() else TEXT_SUFFIXES)


def is_table(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a table by its name."""
    return Path(path).suffix.lower() in TABLE_SUFFIXES


def text_of(value: Any, row: Row, column: str) -> str:
    """Return a field as text, without space around it; numbers as JSON writes them."""
    if isinstance(value, str):
        return value.strip()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # what a column of whole numbers with gaps becomes in a DataFrame
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, list | tuple | dict | set):
        raise DataError(f"{row.location}: {column!r} holds {value!r:.60}, not text", hint="name another column")
    return str(value).strip()


# --- files -----------------------------------------------------------------------------------------------------------


def _read_file(
    path: Path, asked: Mapping[str, str | None], strict: bool, header: bool | None, keep_missing: bool
) -> Table:
    text = read_file(path, strict=strict)
    suffix, first, name = path.suffix.lower(), text.lstrip()[:1], shown_path(path)
    if not first:
        raise DataError(f"{name} is empty", hint="pass a file with rows in it")
    if suffix in (".json", ".jsonl", ".ndjson") or (suffix not in TABLE_SUFFIXES and first in "{["):
        _refuse_header(name, header)
        return _of_dicts(name, (_json_list if first == "[" else _json_lines)(text, name))
    said = _EXCEL.match(text)
    delimiter = said[1] if said else "\t" if suffix in (".tsv", ".tab") else _delimiter(text)
    rows = [*_records(text, name, delimiter, skipped=bool(said), quotes=delimiter != "\t" or suffix == ".csv")]
    if not rows:
        raise DataError(f"{name} has no rows", hint="pass a file with a row below its header")
    if rows[0].error:
        raise rows[0].error
    if header is None:
        header = names_columns(rows[0].fields, [row.fields for row in rows[1 : WITNESSES + 1]], asked)
    table = _separated(rows, name, delimiter, header)
    return table if keep_missing else _without_missing(table)


def _refuse_header(name: str, header: bool | None) -> None:
    if header is not None:
        raise ConfigError(f"header is set, but {name} is no CSV or TSV file", hint="leave it out")


def _labeled_texts(folder: Path, files: list[Path]) -> Table:
    """Return the texts of a folder, one row each; its subfolders are their labels."""
    label = [file.relative_to(folder).parts[0] if file.parent != folder else None for file in files]
    rows = [Row(str(file), 1, (read_file(file), name)) for file, name in zip(files, label, strict=True)]
    return Table(str(folder), ("text", "label"), rows)


def _delimiter(text: str) -> str:
    """Return the delimiter that cuts the first lines into most equally many fields."""
    head = text[:HEAD]

    def score(delimiter: str) -> tuple[float, int]:
        with suppress(csv.Error):
            widths = [len(row) for row in csv.reader(io.StringIO(head, newline=""), delimiter=delimiter) if row]
            widths = widths[: len(widths) - (len(head) < len(text))]
            if widths and widths[0] > 1:
                return sum(width == widths[0] for width in widths) / len(widths), widths[0]
        return 0.0, 0

    return max(DELIMITERS, key=score)


def _records(text: str, file: str, delimiter: str, *, skipped: bool, quotes: bool) -> Iterator[Row]:
    """Yield the fields of every record.

    skipped   whether the first line is none
    quotes    whether quotes enclose fields; those of tab-separated values do not, as IANA defines them
    """
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    quoting = {} if quotes else {"quoting": csv.QUOTE_NONE}
    reader: Any = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, **quoting)  # type: ignore[arg-type]
    if skipped:
        next(reader)
    total = text.count("\n")
    while True:
        line = reader.line_num + 1
        if line % REPORTED == 0:
            report(line, total, "lines read")
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            unclosed = "unexpected end" in str(error)
            what = "a quote opens here and never closes" if unclosed else "text follows a closing quote"
            hint = 'close it; a quote inside a quoted field is written twice: ""'
            yield Row(file, line, (), DataError(f"{file}, line {line:,}: {what}", hint=hint))
            if unclosed:
                return
            continue
        if any(field.strip() for field in fields):
            yield Row(file, line, tuple(fields))


def _separated(rows: list[Row], file: str, delimiter: str, header: bool) -> Table:
    """Name the columns of records, by their first one if that is a header; mark those with other numbers of fields."""
    names = [name.strip() for name in rows[0].fields]
    if header:
        names = [name or str(number) for number, name in enumerate(names, start=1)]
        _check_different(names, f"{rows[0].location}: ")
    else:
        names = [str(number + 1) for number in range(len(names))]
    hint = f"put a “{delimiter}” between fields, and quotes around a text that holds one"
    hint = "put a tab between fields, and none inside one" if delimiter == "\t" else hint
    checked = []
    for row in rows[1:] if header else rows:
        if row.error is None and len(row.fields) != len(names):
            fields = "1 field" if len(row.fields) == 1 else f"{len(row.fields)} fields"
            fact = f"{row.location} has {fields}, but the {'header' if header else 'first line'} has {len(names)}"
            row = row._replace(error=DataError(fact, hint=hint))
        checked.append(row)
    as_what = ("as data; --header", "as column names; --no-header")[header]
    return Table(file, tuple(names), checked, header, notes=(f"first row read {as_what} to change it",))


def _without_missing(table: Table) -> Table:
    """Return a table whose cells that read NaN, NULL or the like are None, and say how many there are."""
    seen = Counter[str]()
    rows = []
    for row in table.rows:
        missing = MISSING.intersection(row.fields)
        if missing and row.error is None:
            seen.update(cell for cell in row.fields if cell in MISSING and cell)
            row = row._replace(fields=tuple(None if cell in missing else cell for cell in row.fields))
        rows.append(row)
    if not seen:
        return replace(table, rows=rows)
    cells = f"{seen.total():,} cell" + "s" * (seen.total() != 1)
    words = ", ".join(repr(word) for word, _ in seen.most_common(3))
    note = f"{cells} of {words} read as empty; --keep-missing to keep them as text"
    return replace(table, rows=rows, notes=(*table.notes, note))


def _check_different(names: list[str], where: str = "") -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"{where}two columns are called {twice[0]!r}", hint="rename one of them")


def _json_lines(text: str, file: str) -> Iterator[Row]:
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if number % REPORTED == 0:
            report(number, len(lines), "lines read")
        if not line.strip():
            continue
        try:
            yield Row(file, number, (json.loads(line),))
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            fact = f"{file}, line {number:,} is no JSON: {why}: {line.strip()!r:.60}"
            yield Row(file, number, (), DataError(fact, hint="write one whole object on each line"))


def _json_list(text: str, file: str) -> Iterator[Row]:
    """Yield the items of a JSON list, each with the line it begins on."""
    decoder, offset, line, counted = json.JSONDecoder(), text.index("[") + 1, 1, 0
    while True:
        offset = _BETWEEN.match(text, offset).end()  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, offset), offset
        if text.startswith("]", offset):
            return
        try:
            value, offset = decoder.raw_decode(text, offset)
            yield Row(file, line, (value,))
        except (ValueError, RecursionError):
            fact = f"{file}, line {line:,}: this item of the list is no JSON: {text[offset : offset + 60]!r:.60}"
            yield Row(file, line, (), DataError(fact, hint="restore the file"))
            return


def _of_dicts(name: str, rows: Iterable[Row]) -> Table:
    """Return rows that hold one dict each as a table; a key that a row lacks is None there."""
    columns: dict[str, None] = {}
    kept = []
    for row in rows:
        if row.error is None and not isinstance(row.fields[0], Mapping):
            fact = f"{row.location} holds {row.fields[0]!r:.60} instead of an object"
            row = row._replace(error=DataError(fact, hint='write objects such as {"text": "…", "label": "…"}'))
        if row.error is None:
            columns |= dict.fromkeys(map(str, row.fields[0]))
        kept.append(row)
    names = tuple(columns)
    if not names and kept and kept[0].error is not None:
        raise kept[0].error
    return Table(name, names, [
        row if row.error is not None else row._replace(fields=tuple(row.fields[0].get(name) for name in names))
        for row in kept
    ])  # fmt: skip


# --- from Python -----------------------------------------------------------------------------------------------------


def is_rows(data: Any) -> bool:
    """Return whether data is a DataFrame, or a list of dicts."""
    is_frame = hasattr(data, "columns") and (hasattr(data, "to_dicts") or hasattr(data, "to_dict"))
    return is_frame or (isinstance(data, list) and bool(data) and isinstance(data[0], Mapping))


def written_rows(data: Any) -> str:
    """Write a DataFrame or a list of dicts into a file of JSON Lines, which a run folder can keep; return its path."""
    table, copy = _from_python(data), new_copy("rows.jsonl")
    with copy.open("w", encoding="utf-8") as file:
        for row in table.rows:
            fields = dict(zip(table.columns, row.fields, strict=True))
            file.write(json.dumps(fields, ensure_ascii=False, default=str) + "\n")
    return str(copy)


def _from_python(data: Any) -> Table:
    if not is_rows(data):
        raise DataError(f"the data is {data!r:.80}", hint="pass a path, a DataFrame, or a list of dicts")
    if hasattr(data, "columns"):
        _check_different(list(data.columns))
        # polars has to_dicts, pandas to_dict("records")
        dicts = data.to_dicts() if hasattr(data, "to_dicts") else data.to_dict("records")
    else:
        dicts = data
    table = _of_dicts("the table", [Row("", number, (item,)) for number, item in enumerate(dicts)])
    for row in table.rows:
        if row.error is not None:
            raise row.error
    if not table.rows:
        raise DataError("the table has no rows", hint="pass at least one")
    return table
