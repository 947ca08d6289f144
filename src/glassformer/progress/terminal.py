"""Text on its way to a terminal: control characters are shown as escapes, here and for all commands.

A name, a label or a path in a file of a stranger could otherwise move the cursor or erase a question.
A pipe gets every character as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""Control characters but tabs and line ends, and those that turn the direction of writing around."""


def harmless(text: str) -> str:
    """Return a text in which control characters are escapes, such as \\x1b."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class Terminal:
    """A stream to a terminal, written to by `print`."""

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream  # the name by which rich finds it

    def write(self, text: str) -> int:
        """Write a text, harmless."""
        self.rich_proxied_file.write(harmless(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def guarded(stream: Any) -> Any:
    """Return a stream through which no control character of a text reaches a terminal."""
    return Terminal(stream) if stream is not None and stream.isatty() else stream
