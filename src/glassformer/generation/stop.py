"""Stop strings in a stream of text: they may span tokens, and nothing that could still become one is let out."""

from collections.abc import Sequence

from ..errors import ConfigError


class StopStrings:
    """Lets text pass up to the first stop string.

    The first is the one that is complete first; of several complete at the same character, the longest. How the text
    is cut into pieces makes no difference.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        for stop in stops:
            if not stop:
                raise ConfigError("a stop string is empty", hint="use text of at least one character")
        self.stops = tuple(stops)
        self.stopped = False
        self._held = ""

    def push(self, text: str) -> str:
        """Take in more text; return what may be shown. `stopped` tells whether a stop string came."""
        if self.stopped:
            return ""
        text = self._held + text
        found = [(text.find(stop) + len(stop), text.find(stop)) for stop in self.stops if stop in text]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = max((_overlap(text, stop) for stop in self.stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Return what was held back: no more text comes to complete it."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a beginning of `stop`, short of all of it."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[len(text) - size :]):
            return size
    return 0
