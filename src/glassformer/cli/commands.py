"""The commands, declared where they are written: `declarations` reads them from the sources, without importing any.

A command is a function of a file of this folder. Its docstring is its line in `glassformer --help`; the decorator
names its section there and the examples below its own help. `tests/test_commands.py` runs each example as printed: in
them, `notes.txt` stands for the user's text, `notes/` for a folder of texts, `runs/majority` and `runs/text` for runs.

    @command("Train", "glassformer tasks")
    def tasks(…):
        \"\"\"List the tasks to train on.\"\"\"
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click

SECTIONS = ("Start", "Train", "Look inside", "Write and predict", "Learn", "Plan", "Models")
"""The sections of `glassformer --help`, in their order."""


def command(
    section: str, *examples: str, name: str | None = None, cls: type[click.Command] = click.Command, **settings: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function a command of `glassformer`; all arguments are written as literals.

    examples   lines of a shell, as they are typed
    name       the function's unless given
    """
    assert section in SECTIONS, section
    return click.command(name, cls, epilog=epilog(examples), **settings)


def epilog(examples: tuple[str, ...]) -> str:
    """Return the examples as they stand below the help."""
    # \b keeps click from wrapping the lines.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in examples)])


class Declared(NamedTuple):
    """A command as it is declared: its file and function, and what the help shows."""

    module: str
    function: str
    section: str
    summary: str
    examples: tuple[str, ...]


@cache
def declarations() -> dict[str, Declared]:
    """Return all commands by name, section by section and there in the order of the alphabet."""
    found = [pair for file in sorted(Path(__file__).parent.glob("*.py")) for pair in _declared_in(file)]
    return dict(sorted(found, key=lambda pair: (SECTIONS.index(pair[1].section), pair[0])))


def _declared_in(file: Path) -> Iterator[tuple[str, Declared]]:
    source = file.read_text(encoding="utf-8")
    for node in ast.parse(source).body if "\n@command(" in source else ():
        for call in getattr(node, "decorator_list", ()):
            if isinstance(node, ast.FunctionDef) and isinstance(call, ast.Call) and ast.unparse(call.func) == "command":
                section, *examples = (ast.literal_eval(argument) for argument in call.args)
                names = [ast.literal_eval(word.value) for word in call.keywords if word.arg == "name"]
                summary = (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ")
                yield (*names, node.name)[0], Declared(file.stem, node.name, section, summary, tuple(examples))


@cache
def load_command(name: str) -> click.Command:
    """Import a command: from the file of its name, or from the one that declares it."""
    file = Path(__file__).with_name(f"{name}.py")
    declared = dict(_declared_in(file)) if file.is_file() else {}
    chosen = declared[name] if name in declared else declarations()[name]
    found: click.Command = getattr(import_module(f".{chosen.module}", __package__), chosen.function)
    return found
