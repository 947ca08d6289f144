"""What is shown while a model trains or something is computed: a panel, lines in a pipe, a curve in a notebook."""

import sys


def log(text: str) -> None:
    """Print a message on stderr."""
    print(text, file=sys.stderr, flush=True)


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: 1 step, 2 steps."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
