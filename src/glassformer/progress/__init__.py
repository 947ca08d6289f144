"""The display of progress: a panel on a terminal or in a notebook, lines in a pipe."""

import sys


def log(text: str) -> None:
    """Print a message on stderr; in a notebook, where stderr looks like an error, on stdout."""
    print(text, file=sys.stdout if is_notebook() else sys.stderr, flush=True)


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: 1 step, 2 steps."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def is_notebook() -> bool:
    """Return whether this runs in a Jupyter notebook: IPython is loaded, and a kernel runs it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
