"""JSON documents with a checksum: written in one step, and refused with a reason and a remedy where they are damaged.

    write_document(path, {"steps": 3})       the file holds {"steps": 3, "sha256": "…"}
    content = read_json(path)
    check_document(path, content)            content is {"steps": 3} again

The checksum is a hash of the content as JSON gives it back, with sorted names: white space and order do not count.
"""

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CheckpointError, DataError, GlassformerError, wrong_field
from .files import explained, open_plain, refusal, write_text

RESTORE = "restore it from a copy"
SHA256 = "sha256"


def digest(*values: Any) -> str:
    """Return the SHA-256 of values: of NumPy arrays their bytes, bytes as they are, all else as JSON."""
    sha256 = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            sha256.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        else:
            sha256.update(value if isinstance(value, bytes) else _text(value))
    return sha256.hexdigest()


def crc32(value: Any) -> int:
    """Return the CRC-32 of a value as JSON."""
    return zlib.crc32(_text(value))


def _text(value: Any) -> bytes:
    return json.dumps(as_read(value), sort_keys=True).encode()


def as_read(value: Any) -> Any:
    """Return a value as JSON gives it back: tuples are lists, and all keys are text."""
    return json.loads(json.dumps(value))


def write_document(path: Path, content: Mapping[str, Any], *, field: str = SHA256, checksum: Any = None) -> None:
    """Replace a document in one step; its `checksum`, the SHA-256 of the content unless given, comes last."""
    stated = digest(content) if checksum is None else checksum
    write_text(path, json.dumps({**content, field: stated}, indent=2, ensure_ascii=False) + "\n")


def check_document(
    path: Path,
    content: dict[str, Any],
    error: type[GlassformerError] = CheckpointError,
    *,
    field: str = SHA256,
    checksum: Callable[[Any], Any] = digest,
    remedy: str = f"{RESTORE}; to use an edited one, remove its line {SHA256}",
) -> bool:
    """Take the checksum out of a document, and refuse one that does not match; return whether there was one."""
    stated = content.pop(field, None)
    with explaining_damage(path, error):
        matches = stated is None or stated == checksum(content)
    if not matches:
        fact = f"{path} is damaged, or was edited: its checksum does not match its content"
        raise error(fact, hint=remedy)
    return stated is not None


def read_json(
    path: Path, error: type[GlassformerError] = CheckpointError, remedy: str = RESTORE, *, most: int | None = None
) -> dict[str, Any]:
    """Return the JSON object in a file; refuse one of more than `most` bytes."""
    with explained(path, error, f"check the path, or {remedy}", "read"), open_plain(path) as file:
        content = file.read(-1 if most is None else most + 1)
    if most is not None and len(content) > most:
        raise error(f"{path} is larger than {most:,} bytes", hint="no model needs that: check what it is")
    return parse_json(content, str(path), error, remedy)


def parse_json(
    content: bytes, what: str, error: type[GlassformerError] = CheckpointError, remedy: str = RESTORE
) -> dict[str, Any]:
    """Return the JSON object that `content` is; refuse anything else, and keys that stand there twice."""
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as found:
        raise damaged(what, wrong_field(found), remedy, error) from None
    if not isinstance(value, dict):
        raise damaged(what, "it holds no JSON object", remedy, error)
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise DataError(f"the key {twice[:80]!r} stands there twice")
    return content


def damaged(
    path: Path | str, why: str, remedy: str = RESTORE, error: type[GlassformerError] = CheckpointError
) -> GlassformerError:
    """Return the error for a damaged file."""
    return error(f"{path} is damaged: {why}", hint=remedy)


@contextmanager
def explaining_damage(
    path: Path | str, error: type[GlassformerError] = CheckpointError, remedy: str = RESTORE
) -> Iterator[None]:
    """Turn what unreadable content raises into an error that names the file."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as found:
        if isinstance(found, CheckpointError | DataError | error):
            raise
        why = refusal(found) if isinstance(found, OSError) else wrong_field(found)
        raise damaged(path, why, remedy, error) from found
