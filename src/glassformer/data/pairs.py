"""Pairs of texts from tables, from conversations, and from the catalogs (.po, .mo) that translated programs carry.

Translators edit .po files, programs read .mo files. Only messages matter here: a malformed date or plural
rule in the header of a catalog is ignored.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import DataError
from ..core.files import explained
from .corpus import text_files
from .tables import TABLE_SUFFIXES, Row, Table, is_rows, read_table

CATALOGS = frozenset({".po", ".mo"})
PAIR_SUFFIXES = TABLE_SUFFIXES | CATALOGS
"""The files of a folder that hold pairs."""
_CHARSET = re.compile(rb"charset=([-\w.:]+)", re.IGNORECASE)
_LINE = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*)?"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\\"'?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_ESCAPED = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_MAGIC = {0x950412DE: "<", 0xDE120495: ">"}

CHAT = ("messages", "conversations", "conversation")
"""Columns of JSON Lines that hold conversations: lists of {"role": …, "content": …}."""
ANSWERS = ("assistant", "gpt", "model", "bot")
"""Roles of the messages that a model learns to write."""

# A message and its translation: one text each, or the singular and the plural forms of both.
Message = tuple[tuple[str, ...], tuple[str, ...]]


class Pair(NamedTuple):
    """A text and what it should become."""

    source: str
    target: str


def read_pairs(data: Any, columns: Mapping[str, str | None], **reading: Any) -> tuple[list[Pair], tuple[str, ...]]:
    """Return the pairs of a table, of catalogs, or of a folder of either, and lines about how they were read.

    columns   of "source" and "target", where the user names them
    reading   further arguments of `read_table`
    """
    if is_rows(data):
        return _table_pairs(read_table(data, columns, **reading))
    pairs: list[Pair] = []
    notes: list[str] = []
    for file in text_files(data, PAIR_SUFFIXES):
        if file.suffix.lower() in CATALOGS:
            pairs += read_catalog(file)
        else:
            more, said = _table_pairs(read_table(file, columns, **reading))
            pairs += more
            notes += said
    return pairs, tuple(dict.fromkeys(notes))


def _table_pairs(table: Table) -> tuple[list[Pair], tuple[str, ...]]:
    """Return the pairs of a table: from columns that are named, known or the only two, or from conversations."""
    if not any(table.asked.values()) and (chats := conversations(table)):
        return [*map(exchange, chats)], ("conversations: what comes before the last answer → this answer",)
    source, target = table.chosen(in_order=len(table.columns) == 2)
    if source == target:
        raise DataError(f"the column {source!r} is both source and target", hint="name two columns")
    pairs = [Pair(*pair) for pair in zip(table.texts(source), table.texts(target), strict=True)]
    return pairs, (f"sources in {source!r}, targets in {target!r}", *table.notes)


# --- conversations ----------------------------------------------------------------------------------------------------


def conversations(table: Table) -> list[list[tuple[str, str]]]:
    """Return the messages of each conversation, as role and text; none if the table has no column of conversations."""
    column = next((table.columns.index(name) for name in CHAT if name in table.columns), None)
    return [] if column is None else [_turns(row.fields[column], row) for row in table.rows]


def _turns(value: Any, row: Row) -> list[tuple[str, str]]:
    """Return the role and the text of each message of a conversation."""
    names = (("role", "content"), ("from", "value"))
    turns = []
    for message in value if isinstance(value, list) else [value]:
        known = [pair for pair in names if isinstance(message, dict) and all(name in message for name in pair)]
        content = message[known[0][1]] if known and isinstance(message, dict) else 0
        if content is None:  # beside calls of tools: nothing was said
            continue
        said = _said(content)
        if said is None:
            raise DataError(
                f"{row.location}: a conversation holds {message!r:.60}",
                hint='a conversation is a list of messages such as {"role": "user", "content": "Hello"}',
            )
        turns.append((str(message[known[0][0]]), said.strip()))
    return turns


def _said(content: Any) -> str | None:
    """Return the text of a message, or of its parts; None for content of another form."""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content if part.get("type") == "text"]
        return "".join(texts) if all(isinstance(text, str) for text in texts) else None
    return content if isinstance(content, str) else None


def message(turn: tuple[str, str]) -> dict[str, str]:
    """Return a message as chat templates know it: the roles are called user and assistant."""
    role = "assistant" if turn[0] in ANSWERS else "user" if turn[0] == "human" else turn[0]
    return {"role": role, "content": turn[1]}


def exchange(turns: list[tuple[str, str]]) -> Pair:
    """Return what comes before the last answer of a conversation, and this answer; empty where there is none."""
    last = max((index for index, (role, _) in enumerate(turns) if role in ANSWERS), default=0)
    before = turns[:last]
    asked = before[0][1] if len(before) == 1 else "\n".join(f"{role}: {said}" for role, said in before)
    return Pair(asked, turns[last][1] if last else "")


# --- catalogs ---------------------------------------------------------------------------------------------------------


def read_catalog(path: Path) -> list[Pair]:
    """Return the translated messages of a .po or .mo file, in order."""
    with explained(path, DataError, "check its permissions", "read"):
        return {".po": _read_po, ".mo": _read_mo}[path.suffix.lower()](path)


def _pairs(messages: Iterable[Message]) -> list[Pair]:
    """Return the translated messages; a plural form pairs the singulars and the plurals of both languages."""
    pairs = []
    for sources, targets in messages:
        if len(sources) == 1:
            matched = [(sources[0], targets[0])]
        elif len(targets) == 1:  # a language without a singular of its own
            matched = [(sources[1], targets[0])]
        else:
            matched = [(sources[0], targets[0]), (sources[1], targets[-1])]
        pairs += [Pair(source, target) for source, target in matched if source and target]
    return pairs


def _read_po(path: Path) -> list[Pair]:
    """Read a catalog, without messages that are marked fuzzy or obsolete."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    text = _decode(data, _charset(data), path)
    return _pairs(_forms(fields) for fields, fuzzy in _entries(text, path) if not fuzzy and any(fields["msgid"]))


def _read_mo(path: Path) -> list[Pair]:
    """Read a compiled catalog."""
    data = path.read_bytes()
    order = _MAGIC.get(int.from_bytes(data[:4], "little")) if len(data) >= 20 else None
    if order is None:
        raise DataError(f"{path} is no compiled message catalog", hint="compile one with: msgfmt")
    count, sources_at, targets_at = struct.unpack(f"{order}3I", data[8:20])
    try:
        pairs, size = [], 0
        for i in range(count):
            pairs.append((_string(data, sources_at + 8 * i, order), _string(data, targets_at + 8 * i, order)))
            size += len(pairs[-1][0]) + len(pairs[-1][1])
            if size > len(data):
                raise DataError(f"{path} is damaged: its texts overlap", hint="compile it again with: msgfmt")
    except (struct.error, IndexError):
        raise DataError(f"{path} is damaged: it points outside itself", hint="compile it again with: msgfmt") from None
    charset = next((_charset(target) for source, target in pairs if not source), "utf-8")
    texts = [(source.rpartition(b"\x04")[2], target) for source, target in pairs if source]  # without the context
    return _pairs(
        (tuple(_decode(source, charset, path).split("\0")), tuple(_decode(target, charset, path).split("\0")))
        for source, target in texts
    )


def _string(data: bytes, offset: int, order: str) -> bytes:
    """Return the string whose length and position stand at `offset`."""
    length, start = struct.unpack(f"{order}2I", data[offset : offset + 8])
    if start + length > len(data):
        raise IndexError
    return data[start : start + length]


def _charset(header: bytes) -> str:
    match = _CHARSET.search(header)
    name = match[1].decode("ascii") if match else "utf-8"
    return "utf-8" if name == "CHARSET" else name  # what a template says before anyone has filled it in


def _decode(data: bytes, charset: str, path: Path) -> str:
    try:
        return data.decode(charset)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not {charset}, as it says: byte 0x{data[error.start]:02x} ({error.reason})",
            hint="convert it: msgconv --to-code=UTF-8",
        ) from None
    except (LookupError, UnicodeError):  # an encoding that Python does not know, or `undefined`
        raise DataError(f"{path} says its charset is {charset!r}", hint="convert it: msgconv --to-code=UTF-8") from None


def _entries(text: str, path: Path) -> Iterator[tuple[dict[str, list[str]], bool]]:
    """Yield the fields of each entry (msgid, msgstr, …), line by line, and whether it is marked fuzzy."""
    fields: dict[str, list[str]] = {}
    fuzzy, current = False, ""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if line.startswith("#~"):
            fuzzy = fuzzy and bool(fields)  # a mark before an obsolete message is not for the next one
        if not line or line.startswith("#~"):
            continue
        match = None if line.startswith("#") else _LINE.fullmatch(line)
        keyword = "" if match is None else match[1] or ""
        # What comes before a message belongs to it, so an entry ends where the next one's comments or keywords begin.
        if "msgstr" in current and (line.startswith("#") or keyword in ("msgctxt", "msgid")):
            yield fields, fuzzy
            fields, fuzzy, current = {}, False, ""
        if line.startswith("#"):
            fuzzy = fuzzy or (line.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", line[2:]))
            continue
        if match is None or not (keyword or current) or keyword in fields or not _follows(keyword, fields):
            raise _malformed(path, number, line)
        current = keyword or current
        fields.setdefault(current, []).append(_unescape(match[2], path, number, line))
    if fields and "msgstr" not in current:
        raise DataError(f"{path} ends with a message that has no translation", hint="check it with: msgfmt --check")
    if fields:
        yield fields, fuzzy


def _follows(keyword: str, fields: dict[str, list[str]]) -> bool:
    """Return whether a keyword may come after those that an entry already has."""
    if keyword.startswith("msgstr["):
        return "msgid_plural" in fields
    needed = {"msgid_plural": "msgid", "msgstr": "msgid"}.get(keyword)
    alone = keyword != "msgstr" or "msgid_plural" not in fields
    return alone and (needed is None or needed in fields) and (keyword != "msgctxt" or not fields)


def _forms(fields: dict[str, list[str]]) -> Message:
    texts = {name: "".join(lines) for name, lines in fields.items()}
    sources = tuple(texts[name] for name in ("msgid", "msgid_plural") if name in texts)
    return sources, tuple(text for name, text in texts.items() if name.startswith("msgstr"))


def _unescape(text: str, path: Path, number: int, line: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[4]:
            raise _malformed(path, number, line)
        if match[1]:
            return _ESCAPED.get(match[1], match[1])
        return chr(int(match[2], 8) if match[2] else int(match[3], 16))

    return _ESCAPE.sub(replace, text)


def _malformed(path: Path, number: int, line: str) -> DataError:
    return DataError(f"{path}, line {number:,} is malformed: {line!r:.80}", hint="check it with: msgfmt --check")
