"""The package as it is installed: marked as typed, and with every library that it imports among its dependencies."""

import ast
import inspect
import re
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
