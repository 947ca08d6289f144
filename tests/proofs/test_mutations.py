"""The suite notices mistakes: every bug of a table of typical ones, planted in a copy of the package, is caught."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import glassformer
from oracles import refuse
from proofs.hunt import RIGHT, SKIPPED, WRONG
from proofs.mutations import MUTANTS

SOURCE = Path(glassformer.__file__).parent
ROOT = Path(__file__).parents[2]


def engine_for(mutant):
    """The engine that runs the file: what stands in an op is hidden where a kernel stands for it."""
    return "cpu" if mutant.file.startswith(("kernels/", "parallel/")) else "numpy"


def planted(mutant, text):
    """The text of a file with the bug in it."""
    places = text.count(mutant.old)
    assert places == 1, f"{mutant.file} contains {mutant.old!r} {places} times: bring the table up to date"
    return text.replace(mutant.old, mutant.new)


def hunt(mutant, catchers, *, engine):
    """Copy the package, plant the bug if there is one, let the catchers look; return the exit status and the words."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        # What is compiled already serves again, unless its file is changed.
        left_out = () if engine == "cpu" else ("*.nbi", "*.nbc")
        shutil.copytree(SOURCE, folder / "glassformer", ignore=shutil.ignore_patterns(*left_out))
        if mutant is not None:
            path = folder / "glassformer" / mutant.file
            path.write_text(planted(mutant, path.read_text(encoding="utf-8")), encoding="utf-8")
            for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
                compiled.unlink()
        settings = {"PYTHONPATH": name, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        settings["GLASSFORMER_ENGINE"] = engine
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"} | settings
        command = [sys.executable, Path(__file__).with_name("hunt.py"), folder, *catchers]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_the_suite_catches(mutant):
    status, words = hunt(mutant, [mutant.caught_by], engine=engine_for(mutant))
    if status == SKIPPED:
        refuse(words)
    assert status == WRONG, words


@pytest.mark.parametrize("engine", sorted({engine_for(mutant) for mutant in MUTANTS}))
def test_without_a_bug_every_catcher_passes(engine):
    catchers = sorted({mutant.caught_by for mutant in MUTANTS if engine_for(mutant) == engine})
    status, words = hunt(None, catchers, engine=engine)
    if status == SKIPPED:
        refuse(words)
    assert status == RIGHT, words


def test_the_table_names_many_different_bugs_that_are_still_possible():
    files = {(mutant.file, planted(mutant, (SOURCE / mutant.file).read_text(encoding="utf-8"))) for mutant in MUTANTS}
    assert len(files) == len({mutant.bug for mutant in MUTANTS}) == len(MUTANTS) >= 100


def test_a_crash_or_another_package_is_no_catch():
    mutant = MUTANTS[0]._replace(new="raise RuntimeError")
    assert hunt(mutant, [mutant.caught_by], engine="numpy")[0] not in (RIGHT, WRONG, SKIPPED)
    command = [sys.executable, Path(__file__).with_name("hunt.py"), ROOT / "nowhere", "softmax"]
    assert "is not in" in subprocess.run(command, capture_output=True, text=True, check=False).stdout
