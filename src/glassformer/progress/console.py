"""The console of rich that all commands draw with: see `terminal`."""

from collections.abc import Iterator
from typing import IO, Any

from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from .terminal import harmless


class SafeConsole(Console):
    """A console of rich, whose own control codes are kept and those of texts escaped."""

    def __init__(self, stream: IO[str] | None, **settings: Any) -> None:
        while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
            stream = inner
        super().__init__(file=stream, **settings)

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what is drawn."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))
