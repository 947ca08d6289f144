"""Look for a wrong number in a copy of the package: a script, so that the copy is all that its process imports.

    PYTHONPATH=FOLDER python hunt.py FOLDER CATCHER…

A catcher is a row of `glassformer check` ("layer_norm", "decoder (head)") or the address of a test ("tests/…::…").
The exit status says what happened; a crash is no catch, because it says nothing about the numbers.
"""

import sys
from pathlib import Path

import glassformer
from glassformer.proofs import (
    layer_cases,
    model_cases,
    op_cases,
    prove_layer_case,
    prove_model_case,
    prove_op_case,
)

RIGHT, WRONG, BROKEN, SKIPPED = 0, 10, 11, 12  # 1 and 2 are how Python itself ends on an error
KINDS = ((op_cases, prove_op_case), (layer_cases, prove_layer_case), (model_cases, prove_model_case))


def stop(status: int, reason: str) -> None:
    sys.stdout.write(f"{reason}\n")
    sys.exit(status)


def prove_rows(rows: set[str]) -> None:
    """Prove the cases of the rows, up to the first that fails."""
    proved = set()
    for cases, prove in KINDS:
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
    # Plugins are not found by themselves (the caller says so), because some take longer to load than the test to run.
    options = ["-x", "-q", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    status = pytest.main([*options, *sorted(addresses)], plugins=[outcomes])
    for address, end in outcomes.ends:
        skipped = isinstance(end, pytest.skip.Exception)
        found = SKIPPED if skipped else WRONG if isinstance(end, AssertionError) else BROKEN
        stop(found, f"{address}: {type(end).__name__}: {end}")
    if status != pytest.ExitCode.OK:
        stop(BROKEN, f"pytest ended with {status!r}")


if __name__ == "__main__":
    folder, *catchers = sys.argv[1:]
    if Path(folder) not in Path(glassformer.__file__).parents:
        stop(BROKEN, f"imported {glassformer.__file__}, which is not in {folder}")
    prove_rows({catcher for catcher in catchers if "::" not in catcher})
    if any("::" in catcher for catcher in catchers):
        run_tests({catcher for catcher in catchers if "::" in catcher})
    stop(RIGHT, "nothing is wrong")
