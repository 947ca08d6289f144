"""A progress bar on a terminal, lines in a pipe."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from . import log
from .display import DELAY, PATIENCE, waiting

Show = Callable[[int, int, str], None]
"""Shows how many are done, of how many, and a note."""


@contextlib.contextmanager
def progress(doing: str, *, quiet: bool) -> Iterator[Show]:
    """Yield a function that shows progress on stderr; a pipe gets a line at once and then every few seconds."""
    screen = Console(stderr=True)
    if quiet:
        yield lambda done, total, note: None
        return
    if not screen.is_terminal:
        logged = float("-inf")

        def report(done: int, total: int, note: str) -> None:
            nonlocal logged
            if time.monotonic() - logged > PATIENCE:
                logged = time.monotonic()
                log(f"{doing}: {done:,} of {total:,} {note}")

        with waiting(doing, delay=DELAY):
            yield report
        return
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=screen, transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda done, total, note: bars.update(task, completed=done, total=total, description=note)
