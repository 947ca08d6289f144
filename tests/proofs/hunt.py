"""Look for a wrong number in a copy of the package, in a process that imports nothing of Glassformer but the copy.

Such a process is forked from one that has imported what hunts need, because starting Python and importing NumPy, Numba,
PyTorch or JAX takes longer than most hunts. Where processes cannot be forked, each is started anew.

A catcher is a row of `glassformer check` ("layer_norm", "decoder (head)") or the address of a test ("tests/…::…").
The exit status says what happened; a crash is no catch, because it says nothing about the numbers.
"""

import gc
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
RIGHT, WRONG, BROKEN, SKIPPED = 0, 10, 11, 12  # 1 is how Python itself ends on an error
IMPORTED = ["proofs.compiler", "hypothesis.strategies", "jax.numpy", "pytest", "torch._inductor.config"]
"""What hunts start with; PyTorch is deterministic by that part of it. None starts a thread, so that forking is safe."""


def hunt(folder: Path, catchers: list[str], *, engine: str) -> tuple[int, str]:
    """Let the catchers look at the package in `folder`; return the exit status and the words."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as name:
        said = Path(name) / "said"
        process = context.Process(target=look, args=(folder, catchers, engine, said))
        process.start()
        process.join()
        assert process.exitcode is not None
        return process.exitcode, said.read_text(encoding="utf-8", errors="replace") if said.exists() else ""


def look(folder: Path, catchers: list[str], engine: str, said: Path) -> None:
    """Run the catchers in this process, which is theirs alone, and end it."""
    gc.freeze()  # what was imported before the fork stays to the end: nobody need look through it
    file = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(ROOT)
    os.environ.pop("PYTEST_ADDOPTS", None)
    # Plugins are not found by themselves, because some take longer to load than the test to run.
    os.environ |= {"GLASSFORMER_ENGINE": engine, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    import glassformer

    if folder not in Path(glassformer.__file__).parents:
        stop(BROKEN, f"imported {glassformer.__file__}, which is not in {folder}")
    tests = {catcher for catcher in catchers if "::" in catcher}
    if rows := set(catchers) - tests:
        prove_rows(rows)
    if tests:
        run_tests(tests)
    stop(RIGHT, "nothing is wrong")


def stop(status: int, reason: str) -> None:
    sys.stdout.write(f"{reason}\n")
    sys.exit(status)


def prove_rows(rows: set[str]) -> None:
    """Prove the cases of the rows, up to the first that fails."""
    from glassformer.proofs import layer_cases, model_cases, op_cases, prove_layer_case, prove_model_case, prove_op_case

    proved = set()
    for cases, prove in (
        (op_cases, prove_op_case),
        (layer_cases, prove_layer_case),
        (model_cases, prove_model_case),
    ):
        for case in cases() if rows - proved else ():
            row = case.name.partition(",")[0]
            if row in rows:
                proved.add(row)
                check = prove(case)
                if not check.ok:
                    stop(WRONG, f"{case.name}: error {check.error:.3g}")
    if rows - proved:
        stop(BROKEN, f"no such rows: {sorted(rows - proved)}")


class Outcomes:
    """A pytest plugin that notes with which exceptions tests ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, BaseException]] = []

    def pytest_sessionstart(self) -> None:
        """Let hypothesis stop at the first wrong number: to look for the simplest takes many times as long."""
        from hypothesis import Phase, settings

        settings.register_profile("hunt", settings.default, phases=(Phase.explicit, Phase.generate))
        settings.load_profile("hunt")

    def pytest_runtest_makereport(self, item, call) -> None:
        if call.excinfo is not None:
            self.ends.append((item.nodeid, call.excinfo.value))


def run_tests(addresses: set[str]) -> None:
    """Run the tests, up to the first that fails."""
    import pytest

    outcomes = Outcomes()
    options = ["-x", "-q", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    status = pytest.main([*options, *sorted(addresses)], plugins=[outcomes])
    for address, end in outcomes.ends:
        skipped = isinstance(end, pytest.skip.Exception)
        found = SKIPPED if skipped else WRONG if isinstance(end, AssertionError) else BROKEN
        stop(found, f"{address}: {type(end).__name__}: {end}")
    if status != pytest.ExitCode.OK:
        stop(BROKEN, f"pytest ended with {status!r}")
