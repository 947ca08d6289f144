"""Check a learner's function or file: is it valid, is it right, and if not, what is wrong and how."""

import ast
import contextlib
import inspect
import itertools
import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import ConfigError, DataError, did_you_mean
from .answers import Finding, Found, broken, differs, reference
from .case import Case, answered
from .changes import by_repair, is_lost, of_lost
from .diagnosis import diagnose
from .diary import note, read_diary
from .draw import SQUARES, Draw, Example, Maker, examples, small_examples, square_examples
from .lab import ORDER, Exercise, Lab, get_lab, signature
from .sandbox import SECONDS, Local, Sandbox
from .trees import arrays_in, results

RANDOM = 16
"""Random shapes in float64; half as many in float32."""
DIAGNOSED = 6
LONGEST = 600
SHOWN = 10
"""Lines of what a file printed that a verdict shows."""
TURN = "`.T` turns all axes around; np.swapaxes(a, -1, -2) turns the last two"


@dataclass(frozen=True)
class Verdict:
    """What a check found: `ok`, and if it is not, the findings, the smallest example and the formula."""

    name: str
    ok: bool
    findings: tuple[Finding, ...] = ()
    example: str = ""
    """The smallest input on which the two differ, with both results."""
    derivation: str = ""
    lab: str = ""
    """The lab: its name, or the path of one of your own."""
    parts: tuple[str, ...] = ()
    """Functions of the same lab that are right."""
    printed: str = ""
    tried: int = 0
    is_first: bool = False
    """It judges the first try here: what makes it right is shown from the second one on."""

    @property
    def kind(self) -> str:
        """What is wrong in a word or two; "right" if nothing is, "unknown" if no one mistake explains it."""
        return "right" if self.ok else self.findings[0].kind if self.findings else "unknown"

    @property
    def has_run(self) -> bool:
        """Whether there was something to run: no empty function, no empty file, no syntax error."""
        return self.kind not in ("empty", "missing function", "not Python")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        hidden = {"result", "remedy"} if self.is_first else {"result"}
        found = [{name: x for name, x in asdict(one).items() if name not in hidden} for one in self.findings]
        return {
            "lab": self.lab, "name": self.name, "ok": self.ok, "kind": self.kind, "findings": found,
            "example": self.example, "derivation": self.derivation, "right": list(self.parts), "printed": self.printed,
        }  # fmt: skip

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        first = self.findings[0] if self.findings else Finding("unknown", "")
        lines = [f"{name} is right." for name in self.parts if name != self.name]
        if self.ok:
            lines.append(f"{self.name} is right: {self.tried} random inputs, in float64 and float32.")
        elif self.kind == "unknown":
            lines.append(f"{self.name} is not right yet: no typical mistake gives its numbers; compare term by term.")
        elif first.kind == "empty":
            lines.append(f"{first.words}: replace the line that raises NotImplementedError, then check again.")
        else:
            lines.append(f"{self.name} is not right yet: {first.kind}.")
        for finding in self.findings if self.kind != "empty" else ():
            at = f" (line {finding.line})" if finding.line and f"line {finding.line}" not in finding.words else ""
            more = finding.evidence, "" if self.is_first else finding.remedy
            lines += [f"  {finding.words}{at}.", *(f"    {text}" for text in more if text)]
        lines += ["", self.example] if self.example else []
        lines += ["", f"The derivation: {self.derivation}"] if self.derivation else []
        if printed := self.printed.strip().splitlines():
            lines += ["", f"It printed{f' (the first {SHOWN} lines)' * (len(printed) > SHOWN)}:", *printed[:SHOWN]]
        return "\n".join(lines)


def check(function: Callable[..., Any], lab: str | None = None) -> Verdict:
    """Check a function of this process against the lab of its name.

        gf.labs.check(softmax_backward)              # also my_softmax_backward
        gf.labs.check(mine, lab="softmax_backward")

    lab   the lab that it solves, by name or by the path of a lab of your own (default: the one of its name)

    A file of someone else belongs into `check_file`, which runs it in a process of its own.
    """
    if not callable(function):
        raise ConfigError(f"{function!r:.60} is no function", hint="pass the function itself: check(softmax_backward)")
    name = getattr(function, "__name__", type(function).__name__)
    found, exercise = _find(name, lab)
    ours = [one.source for one in found.exercises if one is not exercise]
    return _noted(replace(check_exercise(exercise, Local(function), ours=ours), lab=found.address), found, ".")


def _find(name: str, lab: str | None) -> tuple[Lab, Exercise]:
    """Return the lab and the exercise that a function is meant for."""
    named = [lab] if lab is not None else sorted((one for one in ORDER if f"_{name}".endswith(f"_{one}")), key=len)[-1:]
    for found in map(get_lab, named or ORDER):
        fitting = [one for one in found.exercises if one.name == name] or list(found.exercises if named else ())
        if fitting:
            return found, fitting[-1]
    hint = f"name the lab: check({name}, lab=…); {did_you_mean(name, ORDER)}"
    raise ConfigError(f"no lab asks for a function {name}", hint=hint)


def check_file(path: str | Path, lab: str | None = None, *, seconds: float = SECONDS) -> Verdict:
    """Check a file or notebook in a process of its own, with limits on its time and memory.

    lab       the lab that it solves (default: what its line LAB = "…" says, or the function that it defines)
    seconds   how long each step may take
    """
    verdict = judged(Path(path), lab, seconds)
    return _noted(verdict, get_lab(verdict.lab), Path(path).parent)


def _noted(verdict: Verdict, lab: Lab, folder: str | Path) -> Verdict:
    """Count a check that ran something as a try, in the diary of a folder."""
    right, tries = f"{lab.name} right", f"{lab.name} tries"
    diary = read_diary(folder)
    if verdict.has_run:
        note(folder, {right: max(int(verdict.ok), diary.get(right, 0)), tries: diary.get(tries, 0) + 1})
    return replace(verdict, is_first=not diary.get(tries))


def judged(path: Path, lab: str | None, seconds: float) -> Verdict:
    """Return the verdict on a file, which is no try of the reader's."""
    source = read_source(path)
    found = get_lab(lab if lab is not None else lab_of(source, path))
    right: list[str] = []
    with Sandbox(source, path.name, seconds=seconds) as runner:
        for exercise in found.exercises:
            ours = [one.source for one in found.exercises if one is not exercise]
            verdict = check_exercise(exercise, runner, ours=ours)
            if not verdict.ok:
                break
            right.append(exercise.name)
        return replace(verdict, lab=found.address, parts=tuple(right), printed=runner.printed)


def read_source(path: Path) -> str:
    """Return the code of a file; of a notebook its imports, functions and assignments."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".ipynb":
            return text
        cells = json.loads(text)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except FileNotFoundError:
        raise DataError(f"there is no file {path}", hint="`glassformer lab start NAME` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="pass a Python file or a notebook") from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} is no notebook", hint="pass a Python file or a notebook") from None
    kept = []
    wanted = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    for cell in code:
        plain = "\n".join(line for line in cell.splitlines() if not line.lstrip().startswith(("%", "!")))
        try:
            kept += [ast.unparse(node) for node in ast.parse(plain).body if isinstance(node, wanted)]
        except SyntaxError:
            kept.append(plain)
    return "\n\n".join(kept)


def lab_of(source: str, path: Path) -> str:
    """Return the lab that a file says it solves: by its line LAB, its functions, or its name."""
    if line := re.search(r"""^LAB\s*=\s*(["'])(.+?)\1""", source, flags=re.MULTILINE):
        return line[2]
    problem, hint = f"{path} does not say which lab it solves", 'keep its line LAB = "…", or name the lab with --lab'
    defined: list[str] = []
    try:
        defined = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError as error:
        problem, hint = f"{path} is not Python: {error.msg} (line {error.lineno})", "mend that line, then check again"
    except (ValueError, RecursionError, MemoryError):
        problem = f"{path} is not Python"
    for name in (*defined[::-1], *[name for name in sorted(ORDER, key=len, reverse=True) if name in path.stem]):
        if name in ORDER:
            return name
    raise DataError(problem, hint=hint)


def check_backward(
    forward: Callable[..., Any], backward: Callable[..., Any], example: Maker | Sequence[Any]
) -> Verdict:
    """Check the gradient of any function of your own against a numeric one, and name what is wrong with it.

        gf.labs.check_backward(softmax, softmax_backward, lambda draw: (draw.array("B", "S"),))

    forward    y = forward(*arrays), or an op of ours: y, saved = forward(*arrays)
    backward   backward(dy, *arrays), or backward(dy, saved) of such an op; one gradient for each array of floats
    example    the arrays, or a function that draws them: draw.array("B", "T") names axes and draws their sizes
    """
    from ..proofs.gradient import derivative  # with all ops, layers and models: a lab needs none of them

    if not all(map(callable, (forward, backward))):
        raise ConfigError("check_backward takes two functions and an example", hint="check_backward(f, f_backward, x)")
    maker = example if callable(example) else _around(example)
    args = examples(maker, 1)[0].args
    y = forward(*args)
    is_op = isinstance(y, tuple) and len(y) == 2
    names = _argument_names(forward, args)
    moving = [at for at, x in enumerate(args) if _is_float(x)]

    def forward_y(*arrays: Any) -> Any:
        return forward(*arrays)[0] if is_op else forward(*arrays)

    def draw_dy(draw: Draw) -> tuple[Any, ...]:
        arrays = maker(draw)
        arrays = arrays if isinstance(arrays, tuple) else (arrays,)
        return (draw.array(*np.shape(forward_y(*arrays))), *arrays)

    def numeric(dy: Any, *arrays: Any) -> tuple[Any, ...]:
        def loss(x: Any, at: int) -> Any:
            return np.sum(dy * forward_y(*arrays[:at], x, *arrays[at + 1 :]))

        return tuple(derivative(lambda x, at=at: loss(x, at), arrays[at]).value for at in moving)

    exercise = Exercise(
        getattr(backward, "__name__", "backward"), numeric, "", "", draw_dy, tuple(f"d{names[at]}" for at in moving),
        allowed=1e-5, arguments=("dy", *names),
    )  # fmt: skip
    runner = Local(backward)
    runner.call = lambda dy, *arrays: backward(dy, forward(*arrays)[1]) if is_op else backward(dy, *arrays)
    return check_exercise(exercise, runner, has_single=False)


def _around(arrays: Sequence[Any]) -> Maker:
    """Return a maker of examples near given arrays."""
    fixed = tuple(arrays) if isinstance(arrays, tuple | list) else (arrays,)
    return lambda draw: tuple(x + 0.3 * draw.rng.standard_normal(np.shape(x)) if _is_float(x) else x for x in fixed)


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def _argument_names(function: Callable[..., Any], args: Sequence[Any]) -> list[str]:
    try:
        names = [one.name for one in inspect.signature(function).parameters.values() if one.kind < 2]
    except (TypeError, ValueError):
        names = []
    return [names[at] if at < len(names) else f"x{at}" for at in range(len(args))]


# --- one exercise -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep the warnings of NumPy and Python to themselves: they name our files, and the findings say what is wrong."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        yield


@silent()
def check_exercise(exercise: Exercise, runner: Any, *, ours: Sequence[str] = (), has_single: bool = True) -> Verdict:
    """Run a learner's function on random examples and judge it; `ours` takes the place of its other functions."""
    doubles = examples(exercise.example, RANDOM if has_single else DIAGNOSED)
    singles = examples(exercise.example, RANDOM // 2, seed=1, dtype=np.float32) if has_single else []
    edges = [Example(maker, Draw(np.random.default_rng(4))) for maker in exercise.edges.values()]
    tried = [*doubles, *singles, *edges]
    right = [reference(exercise, one.args) for one in tried]
    case = Case(exercise, runner, ours, [(one, {}, wanted) for one, wanted in zip(tried, right, strict=True)])
    outcomes = next(case.run([one.args for one in tried]))
    verdict = Verdict(exercise.name, False, tried=len(tried))
    wrong: list[Found] = []
    for (example, _, wanted), outcome in zip(case.pairs, outcomes, strict=False):
        if finding := broken(exercise, outcome, example, wanted):
            return _explained(replace(case, pairs=case.pairs[1:4]), verdict, finding)
        found = results(outcome.value, exercise.returns)
        wrong.append({name: found[name] for name in wanted if differs(exercise, name, example, found, wanted)})
    if not any(wrong):
        return replace(verdict, ok=True)
    if any(wrong[: len(doubles)]):
        # Those that are wrong come first: an answer may be right on all but a few.
        order = sorted(range(len(doubles)), key=lambda at: not wrong[at])
        pairs = [(tried[at], results(outcomes[at].value, exercise.returns), right[at]) for at in order]
        # Half of them have finite results, if they can: only those numbers can be explained.
        lost = [pair for pair in pairs if any(is_lost(x, pair[2][name]) for name, x in pair[1].items())]
        pairs.sort(key=lambda pair: any(pair is one for one in lost[DIAGNOSED // 2 :]))
        return _diagnosed(replace(case, pairs=pairs[:DIAGNOSED]), verdict)
    makers = dict(enumerate(exercise.edges.items(), start=len(doubles + singles)))
    at = next(at for at, bad in enumerate(wrong) if bad)
    pairs = [(tried[n], results(outcomes[n].value, exercise.returns), right[n]) for n in (at, 0, 1, 2)]
    return _special(replace(case, pairs=pairs), verdict, *makers.get(at, ()))


def _special(case: Case, verdict: Verdict, where: str = "float32 inputs", maker: Maker | None = None) -> Verdict:
    """Return in words what is wrong beyond usual float64 inputs, and show the smallest input for which it is."""
    name, (_, found, right) = case.wrong[0], case.pairs[0]
    finding = Finding("special case", f"{name} is wrong", result=name)
    finding = replace(of_lost(case, [name]), kind="not finite") if is_lost(found[name], right[name]) else finding
    words = f"{finding.words} for {where}, though it is right for usual inputs"
    example = smallest(case, maker) if maker else ""
    return replace(verdict, findings=(replace(finding, words=words),), example=example)


def _explained(case: Case, verdict: Verdict, finding: Finding) -> Verdict:
    """Add to a finding about an answer that is none the line that one change mends."""
    found = finding
    if finding.kind in ("raised", "wrong shape", "wrong result"):
        if mended := by_repair(case, ()).get(""):
            found = replace(mended, words=f"{finding.words}; {mended.words}")
        elif alike := _on_squares(case):
            found = replace(alike[0], words=f"{finding.words}; if all axes have one size, {alike[0].words}")
    has_many = any(x.ndim > 2 for x in arrays_in(case.pairs[0][0].args))
    if has_many and "ValueError: matmul" in finding.words and re.search(r"\.T\b", case.runner.source):
        found = replace(found, words=f"{found.words}. {TURN}")
    return replace(verdict, findings=(found,), derivation=case.exercise.derivation.get(finding.result, ""))


def _on_squares(case: Case) -> list[Finding]:
    """Diagnose a function that fails on usual shapes on those where all axes have the same size."""
    pairs = answered(case, square_examples(case.exercise.example))
    case = replace(case, pairs=pairs)
    return diagnose(case) if len(pairs) == SQUARES and case.wrong else []


def _diagnosed(case: Case, verdict: Verdict) -> Verdict:
    """Find out what is wrong, where, and on which small input it shows."""
    derivation = case.exercise.derivation
    formula = next((derivation[name] for name in case.wrong if name in derivation), "")
    return replace(verdict, findings=tuple(diagnose(case)), example=smallest(case), derivation=formula)


def smallest(case: Case, maker: Maker | None = None) -> str:
    """Return the smallest input on which a function differs from ours, with both results; "" if none is small.

    Where a result is not finite, it is an input for which it is not.
    """
    pairs = answered(case, list(small_examples(maker or case.exercise.example)))
    lost = [pair for pair in (*pairs, *case.pairs) if any(is_lost(x, pair[2][name]) for name, x in pair[1].items())]
    for digits, pair in itertools.product((4, 10), lost or pairs):
        example, found, right = pair
        for name in (name for name in right if differs(case.exercise, name, *pair)):
            mine, wanted = _short(found[name], digits), _short(right[name], digits)
            if mine != wanted:  # as printed: a difference that rounding hides explains nothing
                named = zip(signature(case.exercise), example.args, strict=False)
                lines = [f"  {n} = {_short(x)}" for n, x in named] + [
                    f"  your {name}: {mine}",
                    f"  right {name}: {wanted}",
                ]
                text = "\n".join(["The smallest input found on which the two differ:", *lines])
                return text if len(text) < LONGEST else ""
    return ""


def _short(x: Any, digits: int = 4) -> str:
    if isinstance(x, np.ndarray):
        x = np.round(x, digits) + 0.0 if x.dtype.kind == "f" else x  # without −0
        return " ".join(np.array2string(x, precision=digits, suppress_small=True, separator=", ").split())
    if isinstance(x, dict):
        return ", ".join(f"{name} {_short(part)}" for name, part in x.items())
    return f"{x}"
