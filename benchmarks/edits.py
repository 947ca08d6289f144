"""Edits of the mathematics, one at a time: does every engine compute what is written?

    python benchmarks/edits.py                                # 100 edits of every file, on cpu and jax: hours
    python benchmarks/edits.py --quick                        # 2 of every file: minutes
    python benchmarks/edits.py --part 2/3 --out part2.json    # a third of them, with a file of results
    python benchmarks/edits.py --join part1.json part2.json part3.json
    python benchmarks/edits.py --only ops/mask.py --engines cpu
    python benchmarks/edits.py --repeat ops/mask.py:3         # one edit again, with what it changed

A program changes a constant, a default, an operator, a comparison, a condition or a sign, drops a term, swaps two
arguments, or scales an argument or a result: on disk, or in memory, before a first run or after it. The engine numpy,
which runs every line as it is written, is the judge: three training steps, and texts written with a cache. An edit that
alters its numbers must alter those of the engine in the same way; one that does not is ignored. The last thing printed
is a table; the exit code is 1 if an edit was ignored. It needs NumPy, Numba and JAX, no more, and Linux: it forks.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from _edit_panel import differ, distance, panel, token_by_token
from _edited import Edit, edits_of, put_into_memory

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
ON_A_CPU = {
    "JAX_PLATFORMS": "cpu",
    # Programs that run three times need not be fast: so they compile in a third of the time.
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
    # Most edits leave most programs as they are.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
EACH, QUICK = 100, 2  # edits of a file
LIMIT = 300  # seconds of one engine
ON_JAX, QUICK_ON_JAX = ((2, 2),), ((1, 0), (0, 1))
"""How many of the trainings and of the texts that an edit shows in JAX computes, which compiles them anew: in turn."""
JITTER, FACTOR = 1e-6, 20
"""Some edits make numbers depend on rounding: an engine may be so many times as far from NumPy as NumPy is from itself
where all parameters are moved by such a share."""
VERDICTS = ("followed", "ignored", "no effect", "fails", "crashed")
HOW = (
    "on disk", "replaced", "on disk", "in place",
    "on disk", "replaced after a run", "on disk", "in place after a run",
)  # fmt: skip
"""Where the edits of a file are made, in turn; on disk if that cannot be done in memory."""


class Case(NamedTuple):
    """One edit to try: of which file, the how-manieth of it, and how it is made."""

    file: str
    number: int
    how: str
    engines: tuple[str, ...]
    on_jax: tuple[int, int]
    edit: Edit


class Outcome(NamedTuple):
    """What came of an edit.

    verdict    one of VERDICTS; "no effect" and "fails" are told by the engine numpy: no numbers are others, or all that
               could show it fail
    how        how it was made
    shown      in how many computations the engine numpy shows it
    hidden     engine: computation, for those that did not follow
    stopped    by engine, the share of kernels that stepped back
    """

    verdict: str
    how: str
    shown: int = 0
    hidden: tuple[str, ...] = ()
    stopped: dict[str, float] = {}  # noqa: RUF012 - never written to


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} edits of every file")
    parser.add_argument("--each", type=int, help=f"edits of every file ({EACH})")
    parser.add_argument("--engines", nargs="+", choices=("cpu", "jax"), default=("cpu", "jax"), help="who must follow")
    parser.add_argument("--only", nargs="+", help="files, such as ops/mask.py")
    parser.add_argument("--part", default="1/1", help="one of several parts: 2/3 is the second of three")
    parser.add_argument("--repeat", help="one edit again: FILE:NUMBER")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no other edit after so long")
    parser.add_argument("--out", type=Path, help="write what came of each edit into a JSON file")
    parser.add_argument("--join", nargs="+", type=Path, help="only print the table of such files")
    arguments = parser.parse_args()
    if arguments.join:
        return _report([row for path in arguments.join for row in json.loads(path.read_text(encoding="utf-8"))])
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= ONE_THREAD | dict(ON_A_CPU, JAX_COMPILATION_CACHE_DIR=folder)
        cases = _cases(arguments)
        rows = _tried(cases, arguments.processes, time.monotonic() + 60 * arguments.minutes)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if arguments.repeat:
        print("\n".join([*_difference(cases[0]), "", json.dumps(rows)]))
    return _report(rows)


def _cases(arguments: argparse.Namespace) -> list[Case]:
    from glassformer.core import sources

    on_jax = QUICK_ON_JAX if arguments.quick else ON_JAX
    each = arguments.each or (QUICK if arguments.quick else EACH)
    file, _, only = (arguments.repeat or "").partition(":")
    cases = []
    for name in [file] if file else arguments.only or sources.described():
        text = (sources.PACKAGE / name).read_text(encoding="utf-8")
        for number, edit in enumerate(edits_of(text, int(only) + 1 if only else each, arguments.seed)):
            how = HOW[number % len(HOW)]
            cases.append(Case(name, number, how, tuple(arguments.engines), on_jax[number % len(on_jax)], edit))
    if only:
        return cases[-1:]
    part, parts = map(int, arguments.part.split("/"))
    return cases[part - 1 :: parts]


def _tried(cases: list[Case], processes: int, end: float) -> list[dict[str, Any]]:
    """Try cases, each in a process of its own, and say how far it has come; return a row for each that was tried."""
    _prepare(cases[0].engines, processes)
    begun, rows = time.monotonic(), []
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        waiting = {pool.submit(_try, case, end): case for case in cases}
        for number, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            case, outcome = waiting[future], future.result()
            if outcome is None:  # too late
                continue
            rows.append(_row(case, outcome))
            if outcome.verdict in ("ignored", "crashed"):
                print(f"{outcome.verdict}: {_name(rows[-1])} in {', '.join(outcome.hidden)}", flush=True)
            if sys.stderr.isatty() or number % 50 == 0:
                took = time.monotonic() - begun
                print(f"\r{number:,} of {len(cases):,} edits, {took:,.0f} s ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if len(rows) < len(cases):
        print(f"{len(cases) - len(rows):,} edits were not tried: the time was up")
    return sorted(rows, key=lambda row: (row["file"], row["number"]))


def _row(case: Case, outcome: Outcome) -> dict[str, Any]:
    edit = case.edit
    about = {"file": case.file, "number": case.number, "line": edit.line, "function": edit.function, "kind": edit.kind}
    return about | outcome._asdict()


def _name(row: dict[str, Any]) -> str:
    where = f"{row['file']}:{row['line']} {row['function']}".strip()
    return f"{where}: {row['kind']}, {row['how']} (--repeat {row['file']}:{row['number']})"


# --- one case --------------------------------------------------------------------------------------------------------

_before: dict[str, Any] = {}


def _prepare(engines: tuple[str, ...], processes: int) -> None:
    """Compute once what the package as it is gives, and load what all cases need, to be forked from here."""
    import compileall
    import warnings

    from glassformer.core import sources

    warnings.simplefilter("ignore")
    compileall.compile_dir(sources.PACKAGE, quiet=2)  # for all copies
    _before.update(_in_child(lambda: _numbers("numpy")))
    failed = [name for name, numbers in _before.items() if isinstance(numbers, str)]
    assert not failed, f"the package as it is fails in {failed}"
    if "cpu" in engines:
        names = list(_before)
        with concurrent.futures.ProcessPoolExecutor(processes) as pool:  # which compiles kernels
            parts = pool.map(_different, [names[i::processes] for i in range(processes)])
            different = [name for part in parts for name in part]
        assert not different, f"without an edit, the engine cpu computes other numbers: {different}"
        from proofs import compiler

        compiler.load()
    if "jax" in engines:
        import jax  # noqa: F401


def _different(names: list[str]) -> list[str]:
    """Return in which computations the engine cpu gives other numbers than the engine numpy."""
    found = _in_child(lambda: _numbers("cpu", names)) or {}
    return [n for n in names if n not in found or isinstance(found[n], str) or differ(found[n], _before[n])]


def _try(case: Case, end: float) -> Outcome | None:
    from glassformer.core import sources
    from proofs.copies import changed, copied

    if time.monotonic() > end:
        return None
    if case.how != "on disk":
        outcome = _in_child(lambda: _looked_at(case, sources.PACKAGE.parent)) or Outcome("crashed", case.how)
        if outcome.verdict in VERDICTS:
            return outcome
        case = case._replace(how="on disk")
    with copied() as folder, changed(folder, case.file, case.edit.text):
        return _in_child(lambda: _looked_at(case, folder)) or Outcome("crashed", case.how)


def _looked_at(case: Case, folder: Path) -> Outcome:
    """Return what came of a case; runs in a child, which knows nothing of the package but what lies in the folder."""
    import logging

    for name in [name for name in sys.modules if name.partition(".")[0] == "glassformer"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        with _limited(LIMIT):
            import glassformer

            assert folder in Path(glassformer.__file__).parents
            logging.getLogger("glassformer").setLevel(logging.ERROR)
            undo = None
            if case.how != "on disk" and (undo := _edit(case)) is None:
                return Outcome("not in memory", case.how)
            written = _numbers("numpy")
    except Exception:  # at import
        return Outcome("fails", case.how)
    shown = [
        name for name, numbers in written.items() if not isinstance(numbers, str) and differ(numbers, _before[name])
    ]
    if not shown:
        return Outcome(
            "fails" if any(isinstance(numbers, str) for numbers in written.values()) else "no effect", case.how
        )
    hidden, stopped = [], {}
    for engine in case.engines:
        names = _looked_for(case, shown) if engine == "jax" else shown
        if undo is not None and case.how.endswith("after a run"):
            undo()
            _numbers(engine, names)
            undo = _edit(case)
        with _limited(LIMIT):
            hidden += _hidden(engine, names, written)
        stopped[engine] = _stopped(engine)
    return Outcome("ignored" if hidden else "followed", case.how, len(shown), tuple(hidden), stopped)


def _edit(case: Case) -> Any:
    import glassformer.engines.cpu.trainer
    import glassformer.generation
    import glassformer.training  # noqa: F401

    module = sys.modules["glassformer." + case.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")]
    return put_into_memory(case.edit, module, in_place=case.how.startswith("in place"))


def _looked_for(case: Case, shown: list[str]) -> list[str]:
    """Return a few of the computations that an edit shows in, other ones for the next edit."""
    known = [name for name in shown if name in panel("jax")]
    texts = [name for name in known if name.startswith("written")]
    trainings = [name for name in known if name not in texts]
    chosen = []
    for names, most in zip((trainings, texts), case.on_jax, strict=True):
        chosen += [names[(most * case.number + i) % len(names)] for i in range(min(most, len(names)))]
    return chosen


def _hidden(engine: str, names: list[str], written: dict[str, Any]) -> list[str]:
    """Return the computations in which an engine does not follow the engine numpy."""
    found, hidden = _numbers(engine, names), []
    for name, numbers in found.items():
        if not isinstance(numbers, str) and not differ(numbers, written[name]):
            continue
        # Memory that nobody has written to, or a scale by the number of queries: NumPy itself is not of one mind.
        with token_by_token() if name.startswith("written") else contextlib.nullcontext():
            again = _numbers("numpy", [name])[name]
        if isinstance(again, str) or differ(again, written[name]):
            continue
        if isinstance(numbers, str):
            hidden.append(f"{engine}: {name}: {numbers}")
        else:
            moved = [_numbers("numpy", [name], JITTER, phase)[name] for phase in range(3)]
            rounding = max(0.0 if isinstance(near, str) else distance(near, written[name]) for near in moved)
            if not distance(numbers, written[name]) <= FACTOR * rounding:
                share = distance(numbers, written[name]) / distance(_before[name], written[name])
                hidden.append(f"{engine}: {name} (off by {share:.2g} of the effect)")
    return hidden


def _stopped(engine: str) -> float:
    from glassformer.core import dispatch

    kernels = dispatch.engines().find(engine).kernels()
    return sum(not kernel.is_current() for kernel in kernels) / len(kernels)


def _numbers(engine: str, names: list[str] | None = None, *jitter: float) -> dict[str, Any]:
    """Return what computations give, or in a text how they fail."""
    import numpy as np

    import glassformer as gf

    found: dict[str, Any] = {}
    with gf.use_engine(engine), np.errstate(all="ignore"):
        for name, make in panel(engine, *jitter).items():
            if names is None or name in names:
                try:
                    found[name] = make()
                except Exception as error:
                    found[name] = f"{type(error).__name__}: {error}"[:200]
    return found


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Let what happens inside a `with` block end with an error after some seconds."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"it took more than {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    yield
    signal.alarm(0)


def _in_child(function: Any) -> Any:
    """Return what a function returns in a forked process, None if that crashes."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            try:
                pickle.dump(function(), said)
                said.flush()
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        said.seek(0)
        data = said.read()
    return pickle.loads(data) if data else None


# --- what is said ----------------------------------------------------------------------------------------------------


def _difference(case: Case) -> list[str]:
    """Return the lines that an edit changes."""
    import ast
    import difflib

    from glassformer.core import sources

    before = ast.unparse(ast.parse((sources.PACKAGE / case.file).read_text(encoding="utf-8")))
    return list(difflib.unified_diff(before.splitlines(), case.edit.text.splitlines(), n=0, lineterm=""))


def _report(rows: list[dict[str, Any]]) -> int:
    """Print what came of all edits, by file; return the exit code."""
    by_file = collections.defaultdict(list)
    for row in rows:
        by_file[row["file"]].append(row)
    engines = sorted({engine for row in rows for engine in row["stopped"]})
    titles = ["file", *VERDICTS, *(f"kernels of {engine} that stopped" for engine in engines)]
    print(f"| {' | '.join(titles)} |\n|---{'|---:' * (len(titles) - 1)}|")
    for file, own in [*sorted(by_file.items()), ("all", rows)]:
        counts = [f"{sum(row['verdict'] == verdict for row in own):,}" for verdict in VERDICTS]
        shares = [[row["stopped"][engine] for row in own if engine in row["stopped"]] for engine in engines]
        means = [f"{100 * sum(share) / len(share):.0f} %" if share else "-" for share in shares]
        print(f"| {file} | " + " | ".join([*counts, *means]) + " |")
    lost = [row for row in rows if row["verdict"] in ("ignored", "crashed")]
    visible = len(lost) + sum(row["verdict"] == "followed" for row in rows)
    print(f"\n{len(rows):,} edits, {visible:,} of them alter the numbers of NumPy, {len(lost):,} of these were ignored")
    print("".join(f"{_name(row)} in {', '.join(row['hidden'])}\n" for row in lost), end="")
    return 1 if lost or not visible else 0


if __name__ == "__main__":
    raise SystemExit(main())
