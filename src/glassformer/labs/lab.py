"""A lab: a statement, functions to fill in, what they must return, and what helps on the way.

One Python file holds all of it, for ours in `statements/` and for one of your own alike; docs/guides/labs.md lists
what it defines.
"""

import ast
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core.arrays import Array
from ..core.errors import DataError, GlassformerError, first_line
from ..core.settings import check_known
from .draw import Maker, examples
from .trees import results

FOLDER = Path(__file__).parent / "statements"
ORDER = (
    "softmax", "softmax_backward", "causal_mask", "attention", "attention_backward", "multi_head",
    "multi_head_backward", "sinusoidal", "rotary", "rotary_backward", "layer_norm", "layer_norm_backward", "gelu",
    "gelu_backward", "block", "block_backward", "cross_entropy", "cross_entropy_backward", "adam", "training_loop",
    "kv_cache", "top_p", "beam_search", "logit_lens", "induction_head",
)  # fmt: skip
"""Our labs in the order of the book."""

Terms = Mapping[str, Mapping[str, Callable[..., Array]]]


@dataclass(frozen=True, eq=False)
class Exercise:
    """One function to fill in."""

    name: str
    reference: Callable[..., Any]
    source: str
    """Text that defines the reference, imports and given functions included."""
    context: str
    """Text that defines all functions of the lab: it may call others."""
    example: Maker
    returns: tuple[str, ...]
    """The names of the results, in order."""
    derivation: Mapping[str, str] = field(default_factory=dict)
    """For each result its formula."""
    terms: Terms = field(default_factory=dict)
    """For each result the terms whose sum it is: "name: formula" and a function of the arguments."""
    edges: Mapping[str, Maker] = field(default_factory=dict)
    """Examples that a plain formula may fail on, by what is special about them."""
    mistakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Typical mistakes that no rule makes: "kind: words" and a function that makes it."""
    allowed: float = 1e-8
    """How far a right float64 answer may be off, relative to the largest number in play: far above rounding."""
    arguments: tuple[str, ...] = ()
    """The names of the arguments, where they are not those of the reference."""
    text: str = ""
    """The function alone, as the solution has it."""

    def __repr__(self) -> str:
        return f"Exercise({self.name!r}, returns={self.returns!r})"

    @property
    def empty(self) -> str:
        """The function with its docstring and nothing else to it."""
        node = ast.parse(self.text).body[0]
        assert isinstance(node, ast.FunctionDef)
        first = node.body[0]
        last = first.end_lineno if ast.get_docstring(node) is not None else first.lineno - 1
        task = ["    # Replace the next line with your code.", f'    raise NotImplementedError("write {self.name}")']
        return "\n".join([*self.text.splitlines()[:last], *task])


@dataclass(frozen=True, eq=False)
class Lab:
    """A statement with its exercises; the last one is checked with all others in place."""

    name: str
    title: str
    chapter: str
    statement: str
    exercises: tuple[Exercise, ...]
    hints: tuple[str, ...]
    head: str
    """The imports of its file, and what it gives."""
    address: str
    """Where its file says it comes from: the name of a lab, or the path of the reader's own."""

    def __repr__(self) -> str:
        return f"Lab({self.name!r}, {self.title!r}, chapter={self.chapter!r})"  # neither hints nor solutions

    @property
    def start(self) -> str:
        """The file to fill in."""
        return self._file(one.empty for one in self.exercises)

    @property
    def solution(self) -> str:
        """The same file, filled in."""
        return self._file(one.text for one in self.exercises)

    def _file(self, functions: Iterable[str]) -> str:
        imports, gap, given = self.head.partition("\n\n\n")
        top = (
            f'"""Lab {self.name}: {self.title}.\n\n{self.statement}\n\n'
            f"Check it:    glassformer lab check {self.name}.py\n"
            f'A hint:      glassformer lab hint {self.address}\n"""'
        )
        return "\n\n\n".join([f'{top}\n\n{imports}\n\nLAB = "{self.address}"{gap}{given}', *functions]) + "\n"

    @property
    def notebook(self) -> str:
        """The same as a notebook: the statement, the functions, and cells that check them and open a hint."""
        last = self.exercises[-1].name
        which = "" if self.address == self.name == last else f", lab={self.address!r}"
        texts = [f"import glassformer as gf\n\ngf.labs.check({last}{which})", f"gf.labs.hint({self.address!r})"]
        texts = [self.start.split('"""', 2)[2].strip(), *texts]
        cells: list[dict[str, Any]] = [{"cell_type": "markdown", "source": f"# {self.title}\n\n{self.statement}"}]
        cells += [{"cell_type": "code", "source": text, "execution_count": None, "outputs": []} for text in texts]
        cells = [{**cell, "id": f"cell-{at}", "metadata": {}} for at, cell in enumerate(cells)]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        made = {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}
        return json.dumps(made, ensure_ascii=False, indent=1) + "\n"

    def exercise(self, name: str) -> Exercise:
        """Return an exercise by the name of its function."""
        return next(one for one in self.exercises if one.name == name)


def list_labs() -> list[Lab]:
    """Return our labs in the order of the book."""
    return [get_lab(name) for name in ORDER]


def get_lab(name: str | Path) -> Lab:
    """Return one of ours by name, or one of your own by the path of its file."""
    if name in ORDER:
        return _ours(str(name))
    path = Path(name)
    if path.suffix != ".py":
        check_known("there is no lab", str(name), ORDER, listed="`glassformer lab` lists them")
    if not path.is_file():
        raise DataError(f"there is no lab file {name}", hint="pass the path of a file that describes a lab")
    return read_lab(path, path.resolve().as_posix())


_ours = functools.cache(lambda name: read_lab(FOLDER / f"{name}.py", name))


def signature(exercise: Exercise) -> list[str]:
    """Return the names of an exercise's arguments."""
    return list(exercise.arguments or inspect.signature(exercise.reference).parameters)


# --- the file that describes a lab ------------------------------------------------------------------------------------


def read_lab(path: Path, address: str) -> Lab:
    """Read the file that describes a lab, run it, and refuse one that contradicts itself."""
    try:
        text = path.read_text(encoding="utf-8")
        module = ModuleType(f"{__package__}.statements.{path.stem}")
        module.__file__, module.__package__ = str(path), f"{__package__}.statements"
        exec(compile(text, str(path), "exec"), vars(module))
        return _lab(path, address, text, module)
    except GlassformerError:
        raise
    except Exception as error:
        raise DataError(f"{path} cannot be read as a lab: {type(error).__name__}: {first_line(error)}") from error


def _lab(path: Path, address: str, text: str, module: ModuleType) -> Lab:
    names = {"FILL_IN": (path.stem,), "GIVEN": (), "HINTS": ()}
    fill_in, given, hints = (tuple(getattr(module, name, default)) for name, default in names.items())
    if wrong := next((name for name in names if isinstance(getattr(module, name, ()), str)), ""):
        raise DataError(f"{path}: {wrong} is a text", hint="write a list of texts")
    lines, tree = text.splitlines(), ast.parse(text)
    parts = {_name(node): "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in tree.body}
    if lost := [name for name in (*fill_in, *given) if name not in parts and (name not in ORDER or name in given)]:
        raise DataError(f"{path} defines no function {', '.join(lost)}", hint="FILL_IN and GIVEN name what it defines")
    # Functions of other labs are imported from there, and to be filled in here.
    imports = [node for node in tree.body if isinstance(node, ast.Import) or getattr(node, "level", 1) == 0]
    head = "\n".join("\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in imports)
    head = "\n\n\n".join([head, *(parts[name] for name in given)])
    others = {name: get_lab(name).exercises[-1] for name in fill_in if name not in parts}
    sources = [one.source for one in others.values()] + [parts[name] for name in fill_in if name in parts]
    context = "\n\n".join([head, *sources, ""])
    exercises = tuple(
        others.get(name) or _exercise(path, module, name, parts[name], head, context, is_main=name == fill_in[-1])
        for name in fill_in
    )
    title, _, rest = (ast.get_docstring(tree) or path.stem).partition("\n")
    chapter = re.search(r"^Chapter: (.+)$\n*", rest, flags=re.MULTILINE)
    statement = rest.replace(chapter[0], "").strip() if chapter else rest.strip()
    title, chapters = title.rstrip("."), chapter[1] if chapter else ""
    return Lab(path.stem, title, chapters, statement, exercises, hints, head, address)


def _name(node: ast.stmt) -> str:
    """Return what a statement of a file defines."""
    if isinstance(node, ast.FunctionDef):
        return node.name
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""


def _exercise(
    path: Path, module: ModuleType, name: str, text: str, head: str, context: str, *, is_main: bool
) -> Exercise:
    """Return an exercise; refuse one whose example or terms do not fit its function."""

    def table(kind: str) -> Any:
        found = getattr(module, kind, {})
        return found.get(name, found if is_main else {})

    maker = getattr(module, "EXAMPLES", {}).get(name) or (getattr(module, "example", None) if is_main else None)
    if maker is None:
        raise DataError(f"{path} has no examples for {name}", hint="define example(draw), which returns its arguments")
    derivation, terms = table("DERIVATION"), table("TERMS")
    edges, mistakes = (getattr(module, kind, {}) if is_main else {} for kind in ("EDGES", "MISTAKES"))
    returns, reference = tuple(derivation) or ("the result",), getattr(module, name)
    try:
        args = examples(maker, 1)[0].args
        wrong = set(terms) - set(results(reference(*args), returns))
        for term in (term for of_one in terms.values() for term in of_one.values()):
            term(*args)
    except Exception as error:
        fact = f"{path}: {name} fails on its own example: {type(error).__name__}: {first_line(error)}"
        raise DataError(fact, hint="example(draw) returns the arguments of the function and of every term") from error
    if wrong:
        raise DataError(f"{path}: TERMS names {', '.join(wrong)}, which {name} does not return")
    source = f"{head}\n\n{text}\n"
    return Exercise(
        name, reference, source, context, maker, returns, derivation, terms, edges, mistakes, text=text
    )  # fmt: skip
