"""The budget of a chat template: steps, bytes, and the length of any text it makes.

A template is a program that comes with published weights. Every loop, call and operation of it pays for what it does
before it does it, so that none can run for long or fill the memory, whatever it was written for.
"""

import sys
from typing import Any

from jinja2.exceptions import SecurityError

MOST_STEPS = 1 << 23
"""One step is a value that is looked at, a few parts of the template that are run, or 16 characters."""
MOST_BYTES = 1 << 27
"""Of all texts and lists that a template makes, kept or not."""
LONGEST = 1 << 22
"""Characters of a text, or of all that a list holds."""
LARGEST_COUNT = 1 << 12
"""Of a width, an indentation and the like."""
WIDEST = 10  # characters that one may become when a list is written out: \\U0001f600
NUMBER = 1 << 11  # characters of a number, or of a text that is made as wide as allowed

_ITEM = 64  # bytes, about, that one item of a list takes
_PIECE = 96  # and one that is a short text of its own
_LOOK = 8  # steps to look into a list, beside one or two for each of its items
_NUMBERS = {int, float, bool, type(None)}
# The views of a dict by their own types: to ask whether something is any view takes as long as all the rest.
_MANY: tuple[type[Any], ...] = (list, tuple, set, frozenset, type({}.keys()), type({}.values()), type({}.items()))


class Budget:
    """The steps and bytes that one rendering has spent."""

    def __init__(self) -> None:
        self.steps = 0
        self.bytes = 0

    def pay(self, steps: int) -> None:
        """Count steps; stop a template that takes too many."""
        self.steps += max(int(steps), 0)
        if self.steps > MOST_STEPS:
            raise SecurityError(f"it takes more than {MOST_STEPS:,} steps")

    def made(self, value: Any) -> Any:
        """Return a value that the template made; stop one that is too large, or one too many."""
        if isinstance(value, str):
            self.fits(len(value))
            self._store(sys.getsizeof(value))
        elif isinstance(value, list | tuple | dict | set | frozenset):
            self._store(_ITEM * len(value))
            self.size(value)
        elif isinstance(value, int) and value.bit_length() > 1 << 12:
            raise SecurityError("a number in it grows without bound")
        return value

    def fits(self, length: int) -> None:
        """Stop a template that makes a text of `length` characters, if that is too long."""
        if length > LONGEST:
            raise SecurityError(f"it makes a text or a list of more than {LONGEST:,} characters")
        self.pay(8 + (length >> 4))

    def room(self, pieces: int) -> None:
        """Stop a template that cuts a text into more pieces than fit into its memory."""
        if self.bytes + _PIECE * pieces > MOST_BYTES:
            raise SecurityError(f"it cuts a text into {pieces:,} pieces")

    def size(self, value: Any) -> int:
        """Return how many characters a value holds, with all that is in it; looking takes steps for each part."""
        if isinstance(value, str):
            self.pay(1 + (len(value) >> 4))
            return len(value)
        total, seen, looks, waiting = 0, 0, 0, [value]
        while waiting:
            item = waiting.pop()
            seen, looks = seen + 1, looks + 1
            if isinstance(item, str):
                total += len(item)
            elif isinstance(item, range):
                seen += len(item)
            elif isinstance(item, dict):
                waiting += [list(item), list(item.values())]
            elif isinstance(item, _MANY):
                looks += _LOOK
                kinds = set(map(type, item))
                if kinds == {str} or kinds <= _NUMBERS:  # most of what is large, and looked at fast
                    seen += len(item)
                    total += sum(map(len, item)) if str in kinds else 0
                else:
                    waiting += item
            if total + seen > LONGEST or self.steps + seen + looks > MOST_STEPS:
                self.pay(seen + looks)
                self.fits(total + seen)
        self.pay(seen + looks + (total >> 4))
        return total + seen

    def written_size(self, value: Any) -> int:
        """Return a bound on the length of `str(value)`."""
        if isinstance(value, int | float):
            return NUMBER
        return self.size(value) if isinstance(value, str) else WIDEST * self.size(value) + NUMBER

    def count(self, value: Any) -> None:
        """Stop a template that asks for a width, an indentation or the like without bound."""
        if isinstance(value, int) and abs(value) > LARGEST_COUNT:
            raise SecurityError(f"it asks for a width or count of {value:,}")

    def _store(self, size: int) -> None:
        self.bytes += size
        if self.bytes > MOST_BYTES:
            raise SecurityError(f"its texts and lists take more than {MOST_BYTES:,} bytes")
