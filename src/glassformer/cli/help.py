"""How `--help` looks: every option on a line of its own, nothing cut at any width, and examples to copy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

from rich.console import Console
from rich.table import Table
from rich.text import Text

_VALUES = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


def print_help(command: Any, ctx: Any) -> None:
    """Print the help of a command, or of the group of all."""
    out = Console(highlight=False, emoji=False)
    out.print(Text(_usage(command, ctx), style="bold"), soft_wrap=True)
    out.print(Text("\n" + (command.help or "")))
    arguments: list[tuple[str, str]] = []
    options: list[tuple[str, str]] = []
    hints = get_type_hints(command.callback)
    for parameter in command.get_params(ctx):
        if not getattr(parameter, "hidden", False):
            of_its_kind = options if parameter.param_type_name == "option" else arguments
            of_its_kind.append((_label(parameter, hints), _explained(parameter)))
    commands = {name: one.help or "" for name, one in getattr(command, "commands", {}).items()}
    for title, rows in (("Commands", list(commands.items())), ("Arguments", arguments), ("Options", options)):
        if rows:
            out.print(Text(f"\n{title}", style="bold"))
            out.print(_columns(rows))
    if command.epilog:
        out.print(Text("\nExamples", style="bold"))
        for line in command.epilog.splitlines():
            out.print(Text(f"  {line}"), soft_wrap=True)


def _usage(command: Any, ctx: Any) -> str:
    """Return how a command is called: what may be left out stands in brackets."""
    words = ["COMMAND", "[ARGS]..."] if hasattr(command, "commands") else []
    for parameter in command.get_params(ctx):
        if parameter.param_type_name != "option":
            word = _label(parameter, {})
            word = word if parameter.required or word.startswith("[") else f"[{word}]"
            words.append(f"{word}..." if parameter.nargs == -1 and not word.endswith(("…", "...")) else word)
    return " ".join([f"Usage: {ctx.command_path} [OPTIONS]", *words])


def _columns(rows: list[tuple[str, str]]) -> Table:
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.add_column(style="cyan", no_wrap=True)
    shown.add_column(overflow="fold")
    for label, words in rows:
        shown.add_row(Text(f"  {label}"), Text(words))
    return shown


def _label(parameter: Any, hints: dict[str, Any]) -> str:
    """Return how a parameter is written; a flag takes nothing, and its negation is shown where that is the news."""
    if parameter.param_type_name != "option":
        return parameter.metavar or parameter.name.upper()
    names = ", ".join([*sorted(parameter.opts, key=len), *(parameter.secondary_opts if parameter.default else ())])
    if parameter.is_flag:
        return names
    hint = hints.get(parameter.name)
    found = [word for kind, word in _VALUES.items() if kind is hint or kind in get_args(hint)]
    return f"{names} {parameter.metavar or (found or ['TEXT'])[0]}"


def _explained(parameter: Any) -> str:
    """Return what a parameter means, what it may be and what it is if not given."""
    notes = list(_notes(parameter, parameter.help or ""))
    return " ".join([parameter.help or "", *([f"({', '.join(notes)})"] if notes else [])])


def _notes(parameter: Any, said: str) -> Iterator[str]:
    if parameter.required and parameter.param_type_name == "option":
        yield "required"
    least = getattr(parameter, "min", getattr(getattr(parameter, "type", None), "min", None))  # by version of typer
    if least is not None:
        yield f"at least {least:,}"
    default = parameter.default
    is_shown = isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""
    if is_shown and "default" not in said:
        yield f"default: {default}"
