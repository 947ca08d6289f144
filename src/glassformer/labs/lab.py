"""A lab: a statement, functions to fill in, what they must return, and what helps on the way.

One Python file holds all of it, for ours in `statements/` and for one of your own alike:

    docstring         the title, "Chapter: …", the statement
    NAME(…)           the solution; its docstring stays in the file to fill in, its body does not
    example(draw)     random arguments for it; `draw.array("B", "T")` names axes, and draws their sizes
    DERIVATION        for each result its name and formula
    TERMS             for each result the terms that sum to it, as functions of the arguments
    HINTS             what helps, one step after the other
    EDGES             inputs that a plain formula fails on, by what is special about them
    MISTAKES          typical mistakes that no rule of `mutants.py` makes: "kind: words", and a function that makes it
    GIVEN             names of functions and constants of the file that the learner gets
    FILL_IN           names of the functions to fill in, if there are several: those of other labs may be named, and
                      EXAMPLES, DERIVATION and TERMS then have an entry for each that is not the last
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..arrays import Array
from ..errors import ConfigError, DataError, did_you_mean, first_line
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


@dataclass(frozen=True, eq=False)
class Lab:
    """A statement with its exercises; the last one is checked with all others in place."""

    name: str
    title: str
    chapter: str
    statement: str
    exercises: tuple[Exercise, ...]
    hints: tuple[str, ...]
    solution: str
    """The file that `start` writes, filled in."""
    start: str
    """The file that `start` writes."""
    address: str
    """What its file says of where it comes from: the name, or the path of a lab of one's own."""

    def exercise(self, name: str) -> Exercise:
        """Return an exercise by the name of its function."""
        return next(one for one in self.exercises if one.name == name)


def list_labs() -> list[Lab]:
    """Return our labs in the order of the book."""
    return [get_lab(name) for name in ORDER]


@functools.cache
def get_lab(name: str) -> Lab:
    """Return one of ours by name, or one of your own by the path of its file."""
    if name in ORDER:
        return read_lab(FOLDER / f"{name}.py", name)
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            raise DataError(f"there is no lab file {name}", hint="pass the path of a file that describes a lab")
        return read_lab(path, path.resolve().as_posix())
    raise ConfigError(
        f"there is no lab {name!r}", hint=did_you_mean(name, ORDER, listed="`glassformer lab` lists them")
    )


def read_lab(path: Path, address: str) -> Lab:
    """Read the file that describes a lab, run it, and refuse one that contradicts itself."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        module = ModuleType(f"{__package__}.statements.{path.stem}")
        module.__file__, module.__package__ = str(path), f"{__package__}.statements"
        exec(compile(tree, str(path), "exec"), vars(module))
    except Exception as error:
        raise DataError(f"{path} cannot be read as a lab: {type(error).__name__}: {first_line(error)}") from error
    fill_in = tuple(getattr(module, "FILL_IN", (path.stem,)))
    title, _, rest = (ast.get_docstring(tree) or path.stem).partition("\n")
    chapter = re.search(r"^Chapter: (.+)$\n*", rest, flags=re.MULTILINE)
    statement = rest.replace(chapter[0], "").strip() if chapter else rest.strip()
    own = {node.name: _segment(text, node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in fill_in:
        if name not in own and name not in ORDER:
            raise DataError(f"{path} defines no function {name}", hint="define it, or name it in FILL_IN")
    others = {name: get_lab(name) for name in fill_in if name not in own}
    head, mark = _head(text, tree, module, own), f'LAB = "{address}"'
    parts = [one.exercises[-1].source for one in others.values()] + [own[name] for name in fill_in if name in own]
    context = "\n\n".join([head, *parts, ""])
    exercises = tuple(
        others[name].exercises[-1]
        if name in others
        else _exercise(path, module, name, f"{head}\n\n{own[name]}\n", context)
        for name in fill_in
    )
    bodies = {name: own.get(name) or _own_text(others[name]) for name in fill_in}
    title = title.rstrip(".")
    top = _top(path.stem, title, statement, address)
    solution = "\n\n\n".join([f"{top}\n\n{head}\n\n{mark}", *bodies.values()]) + "\n"
    start = "\n\n\n".join([f"{top}\n\n{head}\n\n{mark}", *(emptied(body) for body in bodies.values())]) + "\n"
    hints = tuple(getattr(module, "HINTS", ()))
    return Lab(path.stem, title, chapter[1] if chapter else "", statement, exercises, hints, solution, start, address)


def _exercise(path: Path, module: ModuleType, name: str, source: str, context: str) -> Exercise:
    is_main = name == getattr(module, "FILL_IN", (path.stem,))[-1]
    makers = getattr(module, "EXAMPLES", {})
    maker = makers.get(name) or (getattr(module, "example", None) if is_main else None)
    if maker is None:
        raise DataError(f"{path} has no examples for {name}", hint="define example(draw), which returns its arguments")
    derivation = getattr(module, "DERIVATION", {})
    derivation = derivation.get(name, {}) if name in derivation else derivation if is_main else {}
    terms = getattr(module, "TERMS", {})
    terms = terms.get(name, {}) if name in terms else terms if is_main else {}
    made = Exercise(
        name, getattr(module, name), source, context, maker, tuple(derivation) or ("the result",), derivation, terms,
        getattr(module, "EDGES", {}) if is_main else {}, getattr(module, "MISTAKES", {}) if is_main else {},
    )  # fmt: skip
    return _checked(path, made)


def _checked(path: Path, exercise: Exercise) -> Exercise:
    """Refuse an exercise whose example does not fit its function, or whose results have other names."""
    try:
        args = examples(exercise.example, 1)[0].args
        value = exercise.reference(*args)
        found = results(value, exercise.returns)
        wrong = set(exercise.terms) - set(found)
        for terms in exercise.terms.values():
            for term in terms.values():
                term(*args)
    except Exception as error:
        fact = f"{path}: {exercise.name} fails on its own example: {type(error).__name__}: {first_line(error)}"
        raise DataError(fact, hint="example(draw) returns the arguments of the function and of every term") from error
    if wrong:
        raise DataError(f"{path}: TERMS names {', '.join(wrong)}, which {exercise.name} does not return")
    return exercise


# --- the file to fill in ----------------------------------------------------------------------------------------------


def emptied(source: str) -> str:
    """Return a function with its docstring and nothing else to it."""
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    lines = source.splitlines()
    has_words = ast.get_docstring(node) is not None
    last = node.body[0].end_lineno if has_words else node.body[0].lineno - 1
    words = f'    raise NotImplementedError("write {node.name}")'
    return "\n".join([*lines[:last], "    # Your code comes here, instead of the next line.", words])


def _top(name: str, title: str, statement: str, address: str) -> str:
    file = f"{name}.py"
    return (
        f'"""Lab {name}: {title}.\n\n{statement}\n\n'
        f"Check it:    glassformer lab check {file}\n"
        f'A hint:      glassformer lab hint {address}\n"""'
    )


def _head(text: str, tree: ast.Module, module: ModuleType, own: dict[str, str]) -> str:
    """Return the imports of a lab's file, then what it gives."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    # Functions of other labs are to be filled in, not imported.
    wanted = [_segment(text, node) for node in imports if not isinstance(node, ast.ImportFrom) or not node.level]
    constants = {
        target.id: _segment(text, node)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name)
    }
    given = getattr(module, "GIVEN", ())
    plain = [constants[name] for name in given if name in constants]
    return "\n\n\n".join(["\n\n".join(["\n".join(wanted), *plain]), *(own[name] for name in given if name in own)])


def _own_text(lab: Lab) -> str:
    tree = ast.parse(lab.solution)
    return next(
        _segment(lab.solution, node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == lab.exercises[-1].name
    )


def _segment(text: str, node: ast.stmt) -> str:
    return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])


def notebook(lab: Lab) -> dict[str, Any]:
    """Return the file to fill in as a notebook: the statement, the functions, and a cell that checks them."""
    tree = ast.parse(lab.start)
    code = "\n".join(lab.start.splitlines()[tree.body[0].end_lineno :]).strip()
    last = lab.exercises[-1].name
    which = "" if lab.address == lab.name == last else f", lab={lab.address!r}"
    cells = [
        ("markdown", f"# {lab.title}\n\n{lab.statement}"),
        ("code", code),
        ("code", f"import glassformer as gf\n\ngf.labs.check({last}{which})"),
        ("code", f"gf.labs.hint({lab.address!r})"),
    ]
    more: dict[str, Any] = {"execution_count": None, "outputs": []}
    return {
        "nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "cells": [
            {"cell_type": kind, "id": f"cell-{at}", "metadata": {}, "source": text, **(more if kind == "code" else {})}
            for at, (kind, text) in enumerate(cells)
        ],
    }  # fmt: skip


def signature(exercise: Exercise) -> list[str]:
    """Return the names of an exercise's arguments."""
    return list(exercise.arguments or inspect.signature(exercise.reference).parameters)
