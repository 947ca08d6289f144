"""The package as it is installed: typed, with its dependencies, and tested on the newest Python in every room."""

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.web.derivations import CHECKOUT, INSTALLED
from oracles import require

PACKAGE = Path(gf.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FROM_OTHERS = {
    "orbax": "orbax-checkpoint",
    "markdown_it": "markdown-it-py",
    "PIL": "matplotlib",
    "llvmlite": "numba",
    "transformers": "torch",
}
"""Modules that come with a package of another name; the reference implementation is installed by its users."""


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_every_imported_library_is_a_dependency():
    extras = [name for extra in PROJECT["optional-dependencies"].values() for name in extra]
    declared = {re.match(r"[\w-]+", name)[0].lower() for name in (*PROJECT["dependencies"], *extras)}
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    needed = {
        FROM_OTHERS.get(name, name) for name in imported - sys.stdlib_module_names - {"glassformer", "IPython"}
    }  # in notebooks, which have it
    assert needed <= declared


def test_the_wheel_carries_the_derivations_and_the_styles_of_figures(tmp_path):
    require("hatchling")
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(PACKAGE.parents[1])).build(directory=str(tmp_path), versions=["standard"])
    inside = INSTALLED.relative_to(PACKAGE.parent).as_posix()
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {Path(name).name for name in names if name.startswith(f"{inside}/")} == {
        path.name for path in CHECKOUT.iterdir()
    }
    assert {"glassformer/plots/light.mplstyle", "glassformer/plots/dark.mplstyle"} <= set(names)


@pytest.mark.parametrize(
    "module",
    [gf, *filter(inspect.ismodule, (getattr(gf, name) for name in gf.__all__))],
    ids=lambda module: module.__name__,
)
def test_what_completes_is_what_is_public(module):
    assert {name for name in dir(module) if not name.startswith("__")} == set(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_the_public_names_are_those_of_the_stub():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.level]
    homes = {one.name: "." + (node.module or "") for node in imports for one in node.names}
    assert homes == gf._HOMES
    assert gf.__all__ == sorted(homes)


ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / ".ci" / "newest_python.py"


def python(folder: Path, name: str, answer: str) -> Path:
    """Write a program of this name that answers as an interpreter does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    return folder / name


def asked(tmp_path: Path) -> tuple[str, str]:
    """Return what the script prints, and what it says, where PATH and pyenv have nothing but these."""
    alone = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv"), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, SCRIPT], env=alone, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.skipif(os.name == "nt", reason="the interpreters of this test are scripts of a shell")
def test_the_newest_release_that_can_make_an_environment_is_taken(tmp_path):
    python(tmp_path / "bin", "python3.30", "echo 3 30 9 final 0 0 /newer/python")
    folder = tmp_path / "pyenv" / "versions" / "3.31.2" / "bin"
    newest = python(folder, "python3", "echo 3 31 2 final 0 0 /newest/python")
    python(tmp_path / "bin", "python3.36", "exit 127  # as pyenv's stand-in for one that is not chosen")
    python(tmp_path / "bin", "python3.37", "echo No module named ensurepip >&2; exit 1")
    python(tmp_path / "bin", "python3.38", "echo 3 38 0 candidate 1 0 /not/released")
    python(tmp_path / "bin", "python3.39", "echo 3 39 0 final 0 1 /free/threaded")
    assert asked(tmp_path) == ("/newest/python", "The newest Python on this machine is 3.31.2.")
    newest.unlink()
    assert asked(tmp_path) == ("/newer/python", "The newest Python on this machine is 3.30.9.")


def test_where_there_is_only_one_it_is_taken_and_this_is_said(tmp_path):
    place, said = asked(tmp_path)
    assert Path(place).samefile(sys.executable)
    own = ".".join(map(str, sys.version_info[:3]))
    assert said == f"The newest Python on this machine is {own}; there is no other: the suite runs on it, too."


def test_every_room_has_tests_among_those_of_the_newest_python():
    """Rooms are folders of tests; and each path of the Makefile is there."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (listed,) = re.findall(r"^NEWEST_TESTS := \$\(addprefix tests/,(.*)\)$", makefile, flags=re.MULTILINE)
    paths = [Path("tests") / name for name in listed.split()]
    assert all((ROOT / path).exists() for path in paths)
    rooms = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert rooms <= {path.parts[1] for path in paths}
    assert {Path("tests/engines/jax"), Path("tests/interpret")} <= {*paths}


@pytest.mark.parametrize(("wanted", "code"), [("", 0), ("1", 2)])
def test_without_node_the_page_is_not_checked_and_that_is_said(wanted, code, tmp_path):
    if (make := shutil.which("make")) is None:
        pytest.skip("there is no make")
    env = {"PATH": str(tmp_path), "GLASSFORMER_REQUIRE_ALL": wanted}
    done = subprocess.run([make, "lint-page"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "there is no node of version 20 or later" in done.stdout + done.stderr


def test_tools_of_the_page_have_exact_versions_and_no_lock_file():
    tools = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    assert {"prettier", "eslint", "typescript"} <= {*tools}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in tools.values())
    assert not (ROOT / "package-lock.json").exists()
