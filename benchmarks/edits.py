"""Edits of the mathematics, one at a time: does every engine compute what is written?

    python benchmarks/edits.py                                # 20 edits of every file, on cpu and jax: hours
    python benchmarks/edits.py --quick                        # 2 of every file, on cpu: minutes
    python benchmarks/edits.py --only ops/mask.py --engines cpu
    python benchmarks/edits.py --repeat ops/mask.py:3         # one edit again, with what it changed

A program changes a constant, an operator, a comparison or a default, drops a term or swaps two arguments, on disk or in
memory. The engine numpy, which runs every line as it is written, is the judge: three training steps, and texts written
with a cache. An edit that alters its numbers must alter those of the engine in the same way; one that does not is
ignored. The last thing printed is a table; the exit code is 1 if an edit was ignored. Linux only: it forks.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import pickle
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from _edited import Edit, edits_of, panel, put_into_memory  # noqa: E402

EACH, QUICK = 20, 2  # edits of a file
LIMIT = 300  # seconds of one case
VISIBLE = 2e-3
"""How far numbers must lie apart, relative to the largest of their computation, to be told from rounding."""
JITTER, FACTOR = 1e-6, 20
"""Some edits make numbers depend on rounding: an engine may be so many times as far from NumPy as NumPy is from itself
where all parameters are moved by such a share."""


class Case(NamedTuple):
    """One edit to try: of which file, the how-manieth of it, and whether on disk or in memory."""

    file: str
    number: int
    where: str
    engines: tuple[str, ...]
    edit: Edit


class Outcome(NamedTuple):
    """What came of an edit.

    verdict    followed, ignored, no effect (on the engine numpy), or fails (on the engine numpy, so on none)
    hidden     engine: computation, for those that did not follow
    stopped    by engine, the share of kernels that stepped back
    """

    verdict: str
    hidden: tuple[str, ...] = ()
    stopped: dict[str, float] = {}  # noqa: RUF012 - never written to


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} edits of every file, on the engine cpu")
    parser.add_argument("--each", type=int, help=f"edits of every file ({EACH})")
    parser.add_argument("--engines", nargs="+", choices=("cpu", "jax"), help="engines that must follow (cpu jax)")
    parser.add_argument("--only", nargs="+", help="files, such as ops/mask.py")
    parser.add_argument("--repeat", help="one edit again: FILE:NUMBER")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    each = arguments.each or (QUICK if arguments.quick else EACH)
    engines = tuple(arguments.engines or (("cpu",) if arguments.quick else ("cpu", "jax")))
    cases = _cases(arguments.only, each, engines, arguments.seed, arguments.repeat)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder  # most edits leave most programs as they are
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        outcomes = _tried(cases, arguments.processes)
    if arguments.repeat:
        print("\n".join(_difference(cases[0])))
    return _report(cases, outcomes, engines)


def _cases(only: list[str] | None, each: int, engines: tuple[str, ...], seed: int, repeat: str | None) -> list[Case]:
    from glassformer import sources

    known = sources.described()
    file, _, number = (repeat or "").partition(":")
    files = [file] if repeat else only or [name for name in known if not name.endswith("__init__.py")]
    cases = []
    for name in files:
        text = (sources.PACKAGE / name).read_text(encoding="utf-8")
        for n, edit in enumerate(edits_of(text, int(number) + 1 if repeat else each, seed)):
            cases.append(Case(name, n, "memory" if n % 2 else "disk", engines, edit))
    return [case for case in cases if not repeat or case.number == int(number)]


def _tried(cases: list[Case], processes: int) -> list[Outcome]:
    """Try all cases, each in a process of its own, and say how far it has come."""
    begun, outcomes = time.monotonic(), []
    with concurrent.futures.ProcessPoolExecutor(processes, initializer=_prepare) as pool:
        for number, (case, outcome) in enumerate(zip(cases, pool.map(_try, cases), strict=True), 1):
            outcomes.append(outcome)
            if outcome.verdict == "ignored":
                print(f"ignored: {_name(case)} in {', '.join(outcome.hidden)}", flush=True)
            if sys.stderr.isatty() or number % 50 == 0:
                end = "" if sys.stderr.isatty() else "\n"
                took = time.monotonic() - begun
                print(f"\r{number:,} of {len(cases):,} edits, {took:,.0f} s ", end=end, file=sys.stderr, flush=True)
    return outcomes


def _name(case: Case) -> str:
    edit = case.edit
    where = f"{case.file}:{edit.line} {edit.function}".strip()
    return f"{where}: {edit.kind}, {case.where} (--repeat {case.file}:{case.number})"


# --- one case --------------------------------------------------------------------------------------------------------

_before: dict[str, Any] = {}


def _prepare() -> None:
    """Compute once what engines make of the package as it is, in a process from which cases are forked."""
    import warnings

    warnings.simplefilter("ignore")
    _before.update(_in_child(lambda: _numbers("numpy")) or {})
    assert _before, "the package as it is fails"


def _try(case: Case) -> Outcome:
    from glassformer import sources
    from proofs.copies import changed, copied

    if case.where == "disk":
        with copied() as folder, changed(folder, case.file, case.edit.text):
            return _in_child(lambda: _looked_at(case, folder)) or Outcome("fails")
    return _in_child(lambda: _looked_at(case, sources.PACKAGE.parent)) or Outcome("fails")


def _looked_at(case: Case, folder: Path) -> Outcome | None:
    """Return what came of a case; runs in a child, which knows nothing of the package but what lies in the folder."""
    import logging

    for name in [name for name in sys.modules if name.partition(".")[0] == "glassformer"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    import glassformer
    from glassformer import dispatch

    assert folder in Path(glassformer.__file__).parents
    logging.getLogger("glassformer").setLevel(logging.ERROR)
    if case.where == "memory":
        _import_all()
        module = sys.modules["glassformer." + case.file.removesuffix(".py").replace("/", ".")]
        if not put_into_memory(case.edit, module, in_place=case.number % 4 == 1):
            return Outcome("not in memory")
    try:
        written = _numbers("numpy")
    except Exception:
        return None
    shown = [name for name, numbers in written.items() if differ(numbers, _before[name])]
    if not shown:
        return Outcome("no effect")
    hidden, stopped = [], {}
    for engine in case.engines:
        try:
            found = _numbers(engine, shown)
        except Exception as error:
            found = dict.fromkeys(shown, f"{type(error).__name__}: {error}")
        for name, numbers in found.items():
            if isinstance(numbers, str):
                hidden.append(f"{engine}: {name}: {numbers:.80}")
            elif differ(numbers, written[name]):
                rounding = distance(_numbers("numpy", [name], JITTER)[name], written[name])
                if not distance(numbers, written[name]) <= FACTOR * rounding:
                    share = distance(numbers, written[name]) / distance(_before[name], written[name])
                    hidden.append(f"{engine}: {name} (off by {share:.2g} of the effect)")
        kernels = dispatch.engines().find(engine).kernels()
        stopped[engine] = sum(not kernel.is_current() for kernel in kernels) / len(kernels)
    return Outcome("ignored" if hidden else "followed", tuple(hidden), stopped)


def _import_all() -> None:
    import glassformer.engines.cpu.trainer
    import glassformer.generation
    import glassformer.training  # noqa: F401


def _numbers(engine: str, names: list[str] | None = None, jitter: float = 0.0) -> dict[str, Any]:
    import numpy as np

    import glassformer as gf

    with gf.use_engine(engine), np.errstate(all="ignore"):
        return {name: make() for name, make in panel(engine, jitter).items() if names is None or name in names}


def differ(have: Any, want: Any) -> bool:
    """Tell whether numbers are visibly others."""
    import numpy as np

    return not distance(have, want) <= VISIBLE * max(1, np.abs(want[np.isfinite(want)]).max(initial=0))


def distance(have: Any, want: Any) -> float:
    """Return how far numbers lie apart at most; infinity if others of them are finite."""
    import numpy as np

    if have.shape != want.shape or not np.array_equal(np.isfinite(have), np.isfinite(want)):
        return float("inf")
    finite = np.isfinite(want)
    return float(np.abs(have[finite] - want[finite]).max(initial=0))


def _in_child(function: Any) -> Any:
    """Return what a function returns in a forked process, None if that fails or takes too long."""
    import signal

    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(LIMIT)
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


def _difference(case: Case) -> list[str]:
    """Return the lines that an edit changes."""
    import ast
    import difflib

    from glassformer import sources

    before = ast.unparse(ast.parse((sources.PACKAGE / case.file).read_text(encoding="utf-8")))
    return list(difflib.unified_diff(before.splitlines(), case.edit.text.splitlines(), n=0, lineterm=""))


def _report(cases: list[Case], outcomes: list[Outcome], engines: tuple[str, ...]) -> int:
    """Print what came of all edits, by file."""
    rows = collections.defaultdict(list)
    for case, outcome in zip(cases, outcomes, strict=True):
        rows[case.file].append(outcome)
    words = ("followed", "ignored", "no effect", "fails", "not in memory")
    print("| file | " + " | ".join(words) + " | " + " | ".join(f"kernels of {e} that stopped" for e in engines) + " |")
    print("|---" * (1 + len(words) + len(engines)) + "|")
    for file, own in [*rows.items(), ("all", outcomes)]:
        counts = [sum(outcome.verdict == word for outcome in own) for word in words]
        shares = [[o.stopped[engine] for o in own if engine in o.stopped] for engine in engines]
        means = [f"{100 * sum(share) / len(share):.0f} %" if share else "-" for share in shares]
        print(f"| {file} | " + " | ".join([*map(str, counts), *means]) + " |")
    ignored = sum(outcome.verdict == "ignored" for outcome in outcomes)
    visible = ignored + sum(outcome.verdict == "followed" for outcome in outcomes)
    print(f"\n{len(cases):,} edits, {visible:,} of them alter the numbers of NumPy, {ignored:,} of these were ignored")
    return 1 if ignored or not visible else 0


if __name__ == "__main__":
    raise SystemExit(main())
