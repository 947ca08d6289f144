"""The option --trust: whether the Python files that a run was trained with may run here."""

import sys
from typing import Any

import click


def trust_option() -> click.Option:
    """Return the option; without it, the user is asked where there is a terminal."""
    meaning = "Trust the Python files that the run was trained with, now and later."
    return click.Option(["--trust"], is_flag=True, expose_value=False, callback=_apply, help=meaning)


def _apply(ctx: click.Context, parameter: Any, wanted: bool) -> None:
    from ..runs import custom_files

    custom_files.ask = _ask
    ctx.with_resource(custom_files.granted(wanted))


def _ask(question: str) -> bool:
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return click.confirm(question, default=False, err=True)
