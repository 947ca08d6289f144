"""JSON that somebody else wrote: small, without doubles, and an object."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from ..errors import WeightsError
from ..files import explained

MOST_BYTES = 1 << 22
"""More than any index or config of a supported model needs."""


def read_json(path: Path, *, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file."""
    with explained(path, WeightsError, "check the path", "read"), path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise WeightsError(f"{path} is larger than {most:,} bytes", hint="no model needs that: check what it is")
    return parse_json(content, str(path))


def parse_json(content: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object that `content` is; refuse anything else, and keys that stand there twice."""
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{what} is damaged: {error}", hint="get the file again") from None
    if not isinstance(value, dict):
        raise WeightsError(f"{what} is damaged: it holds no JSON object", hint="get the file again")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:80]!r} stands there twice")
    return found
