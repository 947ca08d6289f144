"""Changes of our solution that give the learner's numbers, and changes of the learner's file that give ours."""

import ast
import contextlib
import re
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core.arrays import Array
from .answers import Finding, is_close, shapes_of
from .case import Case, Found, equal, is_right, limited
from .draw import Example
from .lab import Exercise
from .mutants import Mutant, inspected, mutants, suspects, watched
from .terms import Pairs, error_of, unexplained
from .trees import arrays_in, cast_floats, flat, results

MOST = 16_000
"""How much changed text is tried, in lines. A count, not a time: a busy machine gives the same answer."""
CALL = 12
"""To run a changed function costs about as much as to compile this many lines."""
WEAK = ("wrong variable", "not finite")
"""Findings that give way to any other: a wrong variable explains too much to be told first."""


def by_mistake(case: Case, wrong: Sequence[str]) -> Found:
    """Compare with typical mistakes of the lab."""
    known = [(label.partition(": "), call) for label, call in case.exercise.mistakes.items()]
    return _alike(case, wrong, ((Mutant(kind, words.__str__), call) for (kind, _, words), call in known))


def by_change(case: Case, wrong: Sequence[str]) -> Found:
    """Look for changes of the solution that give the learner's numbers, of all results or of one."""
    return _alike(case, wrong, _changed_solutions(case.exercise, case.pairs))


def _alike(case: Case, wrong: Sequence[str], changed: Iterable[tuple[Mutant, Callable[..., Any]]]) -> Found:
    found: Found = {}
    names = {*case.pairs[0][2]}
    # The input with the largest error first: most changes are ruled out by it.
    order = sorted(case.pairs, key=lambda pair: -max(error_of(pair, name) for name in wrong))
    allowed = [{name: unexplained(pair, name) for name in names} for pair in order]
    for mutant, call in changed:
        same = names
        for (example, mine, _), most in zip(order, allowed, strict=True):
            values = _run(call, case.exercise, example)
            same = {name for name in same if name in values and is_close(mine[name], values[name], 1.0, most[name])}
            if not same.intersection(wrong):
                break
        if same == names:
            return {"": _of_mutant(mutant, *wrong)}
        for name in same.intersection(wrong):
            if name not in found or found[name].kind in WEAK:
                found[name] = _of_mutant(mutant, name)
    return found


def _changed_solutions(exercise: Exercise, pairs: Pairs) -> Iterator[tuple[Mutant, Callable[..., Any]]]:
    """Yield the mistakes made by rule, each with the function that makes it."""
    known: dict[str, Any] = {"__name__": "lab"}
    exec(compile(exercise.context, "<lab>", "exec"), known)
    shapes = _shapes(_variables(exercise, pairs))
    for mutant in affordable(mutants(exercise.context, exercise.name, shapes=shapes)):
        namespace = dict(known)
        try:
            exec(compile(mutant.source, "<lab>", "exec"), namespace)
        except Exception:  # a change that is no Python
            continue
        yield mutant, namespace[exercise.name]


def affordable(many: Iterator[Mutant]) -> Iterator[Mutant]:
    """Yield changes until they have `MOST` lines together: to try one takes a time that grows with its length."""
    left = MOST
    for one in many:
        left -= CALL + one.source.count("\n")
        if left < 0:
            return
        yield one


def _variables(exercise: Exercise, pairs: Pairs) -> list[Any]:
    """Return the variables of our solution in several calls."""
    if not exercise.context:
        return []
    known: dict[str, Any] = {"__name__": "lab"}
    exec(compile(inspected(exercise.context, exercise.name), "<lab>", "exec"), known)
    return [known[exercise.name](*cast_floats(example.args, np.float64)) for example, _, _ in pairs]


def _unknown(mine: Sequence[Any], case: Case) -> set[str]:
    """Return the learner's variables that equal none of ours, no argument and no result."""
    many = _variables(case.exercise, case.pairs[:3])
    if not _shapes(mine) or not _shapes(many):
        return set()
    arrays = [
        [np.asarray(x) for x in (*flat(ours).values(), *arrays_in(example.args), *right.values())]
        for ours, (example, _, right) in zip(many, case.pairs, strict=False)
    ]
    found = {name: [np.asarray(one.get(name, 0)) for one in mine] for name in mine[0]}
    return {
        name for name, values in found.items()
        if not any(all(map(equal, values, known)) for known in zip(*arrays, strict=False))
    }  # fmt: skip


def _shapes(many: Sequence[Any]) -> dict[str, Any]:
    """Return of each variable the shapes that it has in several calls."""
    if not many or not all(isinstance(one, dict) for one in many):
        return {}
    return {name: tuple(np.shape(one.get(name, 0)) for one in many) for name in many[0]}


def _run(call: Any, exercise: Exercise, example: Example) -> dict[str, Array]:
    def value() -> Iterator[Any]:
        with contextlib.suppress(Exception):
            yield results(call(*cast_floats(example.args, np.float64)), exercise.returns)

    has_loops = re.search(r"^ +(for|while) ", exercise.source, flags=re.MULTILINE)
    return next(limited(value(), "<lab>") if has_loops else value(), {})


def _of_mutant(mutant: Mutant, *names: str) -> Finding:
    listed = ", ".join(names)
    kind = {"extra function": "missing function"}.get(mutant.kind, mutant.kind)
    words = f"{listed} {'are' if names[1:] else 'is'} what comes out"
    if mutant.source:  # a change of our solution, which the words quote
        return Finding(kind, f"{words} of the solution with one such mistake", "", mutant.words, result=listed)
    return Finding(kind, f"{words} {mutant.words}", result=listed)


# --- hypotheses: the learner's own function, changed or given other inputs --------------------------------------------


def by_line(case: Case, _: Sequence[str]) -> Found:
    """Change the lines of the learner's function that make the first wrong values."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return _repaired(case, [*_split(case)[0]][:1], _suspects(case))
    return {}


def by_repair(case: Case, _: Sequence[str]) -> Found:
    """Change one place of the learner's own file; one that makes it right names the line and the mistake."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return _repaired(case, [*_split(case)[0]], range(1 << 30))
    return {}


def _suspects(case: Case) -> set[int]:
    """Return the lines of the learner's file that make the first values that are none of ours."""
    text = next(iter(_split(case)[0].values()))
    start = case.runner.source[: case.runner.source.index(text)].count("\n")
    return {start + line for line in suspects(text, _unknown(_learner_variables(case), case))}


def _learner_variables(case: Case) -> list[Any]:
    """Return the variables of the learner's function on some inputs, if it runs to its end."""
    own, rest = _split(case)
    name = next(iter(own))
    text = "\n\n".join({**own, name: inspected(own[name], name)}.values())
    return [one.value for one in next(case.run([example.args for example, _, _ in case.pairs[:3]], [text], rest))]


def _repaired(case: Case, functions: list[str], lines: Container[int]) -> Found:
    args = [example.args for example, _, _ in case.pairs]
    own, rest = _split(case)
    shapes, solution = _shapes(_learner_variables(case)), case.exercise.text or "pass"
    tried = [*affordable(mutants(case.runner.source, *functions, shapes=shapes, lines=lines, solution=solution))]
    if not case.pairs[0][1]:  # nothing was returned: shapes that do not fit are a matter of axes first
        tried.sort(key=lambda one: one.kind not in ("wrong axis", "transposed"))
    texts = ["\n\n".join({**own, one.function: one.source}.values()) for one in tried]
    ended = 0
    for mutant, text, first in zip(tried, texts, case.run(args[:1], texts, rest), strict=False):
        ended += any(outcome.error in ("time", "ended", "memory") for outcome in first)
        if ended == 3:  # each of them costs seconds
            break
        if is_right(case, first) and is_right(case, next(case.run(args, [text], rest))):
            words = f"line {mutant.line} holds the mistake: one change there makes all of it right"
            return {"": Finding(mutant.kind, words, "", f"it becomes right {mutant.words}", line=mutant.line)}
    return {}


def _split(case: Case) -> tuple[dict[str, str], str]:
    """Return the functions that the learner wrote for this exercise, its own first, and the rest of the file."""
    lines, body = case.runner.source.splitlines(), ast.parse(case.runner.source).body
    texts = {node: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in body}
    defined = {node.name: text for node, text in texts.items() if isinstance(node, ast.FunctionDef)}
    name = next((name for name in (case.exercise.name, *defined) if name in defined), None)
    if name is None:
        raise ValueError("no function can be changed")
    given, solved = (
        {node.name for text in many for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        for many in (case.ours, [case.exercise.context])
    )
    own = {name: defined[name]} | {one: text for one, text in defined.items() if one not in given | solved}
    rest = [t for n, t in texts.items() if not isinstance(n, ast.Expr) and getattr(n, "name", "") not in {*own, *given}]
    return own, "\n".join(rest)


MEND = """
def watch_(value, line):
    return ours_[NAME] if line == LINE else value

def right_(*args):
RIGHT
    return FUNCTION(*args)

theirs_ = FUNCTION
def FUNCTION(*args):
    globals()["ours_"] = right_(*args)
    return theirs_(*args)
"""


def by_value(case: Case, _: Sequence[str]) -> Found:
    """Return in words which line makes a wrong value, if all is right once it has the value of one of our variables."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        source, suspected = case.runner.source, _suspects(case)
        ours = _variables(case.exercise, case.pairs[:1])[0]
        right = textwrap.indent(inspected(case.exercise.context, case.exercise.name), "    ")
        mend = MEND.replace("FUNCTION", case.exercise.name).replace("RIGHT", right)
        nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Assign | ast.AugAssign | ast.Return)]
        for line, is_end in sorted({(node.lineno, isinstance(node, ast.Return)) for node in nodes}):
            if is_end and line in suspected:
                words = f"line {line} returns a wrong result, though all that goes into it is right"
                return {"": Finding("unknown", words, line=line)}
            for name in () if is_end else ours:
                more = mend.replace("NAME", repr(name)).replace("LINE", str(line))
                if is_right(case, next(case.run([e.args for e, _, _ in case.pairs], [watched(source)], more))):
                    words = f"the right value in line {line} makes all of it right: look there, and at what it uses"
                    return {"": Finding("unknown", words, line=line)}
    return {}


# --- what is not finite -----------------------------------------------------------------------------------------------

WATCH = """
def watch_(value, line):
    import numpy
    for part in value if isinstance(value, (list, tuple)) else ():
        watch_(part, line)
    kind = getattr(getattr(value, "dtype", None), "kind", "f" if isinstance(value, float) else "")
    if kind == "f" and (numpy.isnan(value).any() or not ALLOWS and numpy.isinf(value).any()):
        raise FloatingPointError(str(line))
    return value
"""


def is_lost(found: Array, right: Array) -> bool:
    """Return whether a result is NaN or infinite where the right one is not."""
    return found.dtype.kind == "f" and bool((~np.isfinite(found) & np.isfinite(right)).any())


def of_lost(case: Case, lost: Sequence[str]) -> Finding:
    """Name the first line that makes NaN, or infinity where the file does not write it, and what mends it."""
    pairs = [pair for pair in case.pairs if any(is_lost(pair[1][name], pair[2][name]) for name in lost)]
    listed, lines, source = ", ".join(lost), [], case.runner.source
    watch = WATCH.replace("ALLOWS", str(bool(re.search(r"\binf", source))))
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        outcomes = next(case.run([e.args for e, _, _ in pairs], [watched(source)], watch))
        lines = [int(one.words) for one in outcomes if one.error == "FloatingPointError" and one.words.isdigit()]
    line = lines[0] if lines else 0
    words = f"line {line} is the first that makes NaN or infinity of finite numbers: " * bool(line)
    words += f"{listed} {'are' if lost[1:] else 'is'} not finite"
    repair = (by_line(case, lost) or by_repair(case, lost)).get("", Finding("not finite", ""))
    given = f"given {shapes_of(case.exercise, pairs[0][0].args)}"
    return Finding(repair.kind, words, given, repair.remedy, line=line, result=listed)
