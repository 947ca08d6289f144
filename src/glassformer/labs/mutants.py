"""Typical mistakes, made by rule: every way to change one place of a function as people do.

The checker uses them both ways. A changed solution that gives the learner's numbers names the mistake in the terms of
the derivation; a change of the learner's own file that gives the right numbers names the line.
"""

import ast
import itertools
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .patterns import called, filled, in_common, is_method, parsed, rebuilt
from .rules import REDUCTIONS, RULES, Place, Scope, axes, from_table, insertions, is_mask, removed, twins, variables

BEGINNINGS = {
    "{a}, {b} = {b}, {a}": "swapped",
    "{a}, {b} = {a}[:-1], {b}[1:]": "off by one",
    "{b}, {a} = {b}[:-1], {a}[1:]": "off by one",
    "{a} = np.swapaxes({a}, -1, -2)": "transposed",
    "{a} = np.ones_like({a})": "mask",
    "{a} = ~{a}": "mask",
    "{a} = -{a}": "wrong sign",
}
"""Mistakes that amount to other arguments."""
REVERSED = {
    "missing term": "extra term", "extra term": "missing term", "not summed": "wrong axis",
    "extra function": "missing function", "missing function": "extra function",
}  # fmt: skip
"""What a change of the learner's file mends, where that is not what the change itself would be called."""
INTO_ITSELF = re.compile(r"\b(\w+)\.(?:append|extend)\(\(?\1\b")  # NumPy makes an array without end of such a list
SHOWN = 70
"""Characters of an expression that are quoted."""
STEPS = ast.Assign, ast.AugAssign, ast.Expr, ast.If


@dataclass(frozen=True)
class Mutant:
    """A function with one mistake."""

    kind: str
    told: Callable[[], str]
    line: int = 0
    function: str = ""
    source: str = ""
    """The text of the function alone."""

    @property
    def words(self) -> str:
        """What the mistake is, as the end of the sentence "your result is what comes out …"."""
        return self.told()


def mutants(
    source: str,
    *functions: str,
    shapes: Mapping[str, Any] | None = None,
    lines: Container[int] = range(1 << 30),
    solution: str = "",
) -> Iterator[Mutant]:
    """Yield copies of functions with one change, or with one kind of change throughout, plain ones first.

    The kind is that of the mistake: the change itself, or, of a learner's file, what it mends; `solution` is ours then.
    """
    homes = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name in functions]
    homes.sort(key=lambda node: functions.index(node.name))
    texts = ["\n".join(source.splitlines()[home.lineno - 1 : home.end_lineno]) for home in homes]
    places = [
        [place for place in _places(home, Scope(home, shapes or {}, solution)) if place.node.lineno in lines]
        for home in homes
    ]
    seen = {*texts}
    for rule in RULES:
        for home, text, found in zip(homes, texts, places, strict=True):
            yield from beginnings(text, home) if rule is insertions and not solution else ()
            same: dict[str, list[tuple[Place, str, Any]]] = {}
            for place in found:
                for number, (kind, new) in enumerate(rule(place)):
                    name = place.name(kind, new)
                    if solution and rule not in (variables, twins):  # which say it themselves
                        name = REVERSED.get(name, name)
                    change = place, name, new
                    form = "" if rule is axes else f"{type(place.node)} {called(place.node)}"
                    same.setdefault(f"{number} {kind} {form}", []).append(change)
                    yield from _made(text, home, [change], seen)
            for many in same.values() if rule in (from_table, axes) else ():
                yield from _made(text, home, many, seen)


def inspected(source: str, function: str) -> str:
    """Return source whose function returns its arrays by name instead of its result."""
    tree = ast.parse(source)
    home = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    if isinstance(home.body[-1], ast.Return):
        home.body[-1].value = parsed("{name: x for name, x in locals().items() if hasattr(x, 'shape')}")
    return ast.unparse(tree)


def watched(source: str) -> str:
    """Return the functions of source; each value that they assign or return passes through `watch_(value, line)`."""

    def change(node: Any) -> Any:
        if type(node) not in (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return) or node.value is None:
            return node
        value, is_more = node.value, hasattr(node, "op")
        value = ast.BinOp(parsed(ast.unparse(node.target)), node.op, value) if is_more else value
        value = filled("watch_(A, B)", {"A": value, "B": ast.Constant(node.lineno)})
        return ast.Assign([node.target], value) if is_more else type(node)(**{**vars(node), "value": value})

    body = [rebuilt(one, change) if isinstance(one, ast.FunctionDef) else one for one in ast.parse(source).body]
    return ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))


def suspects(source: str, unknown: Container[str]) -> set[int]:
    """Return the lines that compute an unknown variable from known ones, or that return what is made of known ones."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Return | ast.Expr):
            names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            made, used = ({n.id for n in names if isinstance(n.ctx, kind)} for kind in (ast.Store, ast.Load))
            is_new = isinstance(node, ast.Return) or any(name in unknown for name in made)
            if is_new and not any(name in unknown for name in used):
                lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _made(text: str, home: ast.FunctionDef, changes: list[tuple[Place, str, Any]], seen: set[str]) -> Iterator[Mutant]:
    """Write changes into the text of a function."""
    data = text.encode()
    starts = [0, *itertools.accumulate(len(line) + 1 for line in data.split(b"\n"))]
    first = len(data)
    for place, _, new in sorted(changes, key=lambda change: (-change[0].node.lineno, -change[0].node.col_offset)):
        start = starts[place.node.lineno - home.lineno] + place.node.col_offset
        end = starts[place.node.end_lineno - home.lineno] + place.node.end_col_offset
        if end <= first:  # else it holds what was changed already
            written = "pass" if new is None else ast.unparse(new)
            written = written.replace("\n", "\n" + " " * place.node.col_offset)
            data = data[:start] + (f"({written})" if isinstance(new, ast.expr) else written).encode() + data[end:]
            first = start
    (place, kind, new), source = changes[0], data.decode()
    is_same = all(one is not None and ast.unparse(old.node) == ast.unparse(one) for old, _, one in changes)
    if not is_same and source not in seen and not ("end(" in source and INTO_ITSELF.search(source)):
        seen.add(source)
        throughout = ", and so throughout" * (len(changes) > 1)
        yield Mutant(kind, lambda: _words(place.node, new) + throughout, place.node.lineno, home.name, source)


def beginnings(text: str, home: ast.FunctionDef) -> Iterator[Mutant]:
    """Yield copies that begin with other arguments: exchanged, shifted, transposed, turned."""
    names, lines = [one.arg for one in home.args.args + home.args.kwonlyargs], text.splitlines()
    at = home.body[0].lineno - home.lineno
    for form, kind in BEGINNINGS.items() if at else ():
        for a, b in itertools.combinations(names, 2) if "{b}" in form else ((name, "") for name in names):
            if kind != "mask" or is_mask(ast.Name(a)):
                line = form.format(a=a, b=b)
                source = "\n".join([*lines[:at], " " * home.body[0].col_offset + line, *lines[at:]])
                yield Mutant(kind, f"with `{line}` before all else".__str__, home.lineno, home.name, source)


def _words(old: Any, new: Any) -> str:
    lost = removed(old, new)
    if lost is not None:
        return f"without {_said(lost)}" + f" in {_said(old)}" * (lost is not old)
    texts = ast.unparse(new), ast.unparse(old)
    # Long texts are cut where they differ, not where they agree.
    start = max(0, in_common(*texts) - SHOWN // 2) if max(map(len, texts)) > SHOWN else 0
    return f"with {_said(texts[0], start)} in place of {_said(texts[1], start)}"


def _said(what: Any, start: int = 0) -> str:
    text = what if isinstance(what, str) else ast.unparse(what)
    return f"`{'…' * (start > 0)}{text[start : start + SHOWN]}{'…' * (len(text) > start + SHOWN)}`"


def _places(home: ast.FunctionDef, scope: Scope) -> Iterator[Place]:
    def visit(node: Any, parents: tuple[ast.AST, ...]) -> Iterator[Place]:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.JoinedStr | ast.arguments):
            return
        is_fixed = isinstance(getattr(node, "ctx", None), ast.Store) or isinstance(node, ast.Slice | ast.Starred)
        if isinstance(node, ast.expr | ast.stmt) and not is_fixed and parents:
            yield Place(node, parents, scope)
        for first, second in itertools.pairwise(node.body) if isinstance(node, ast.For | ast.FunctionDef) else ():
            if isinstance(first, STEPS) and isinstance(second, STEPS):
                both = ast.Module([first, second], [])
                spans = {"lineno": first, "col_offset": first, "end_lineno": second, "end_col_offset": second}
                vars(both).update({name: getattr(one, name) for name, one in spans.items()})
                yield Place(both, (*parents, node), scope)
        for child in ast.iter_child_nodes(node):
            if not _names_axis(node, child):
                yield from visit(child, (*parents, node))

    yield from visit(home, ())


def _names_axis(node: Any, child: ast.AST) -> bool:
    """Return whether a child holds the number of an axis, which one rule changes as a whole."""
    if isinstance(node, ast.keyword):
        return node.arg in ("axis", "keepdims", "axes", "dtype")
    is_axis = called(node) in ("swapaxes", "transpose", "moveaxis", *REDUCTIONS)
    return is_axis and child in node.args[0 if is_method(node) else 1 :]
