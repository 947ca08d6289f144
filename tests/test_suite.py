"""The promises about the tests themselves: where they stand, and that nothing in them is left to chance."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "src" / "glassformer"


@pytest.mark.parametrize("folder", ["ops", "layers", "models"])
def test_every_file_of_the_mathematics_has_a_test_of_its_name(folder):
    names = sorted(path.name for path in (PACKAGE / folder).glob("*.py") if path.stem != "__init__")
    missing = [f"tests/{folder}/test_{name}" for name in names if not (TESTS / folder / f"test_{name}").is_file()]
    assert names
    assert not missing, f"there is no {missing}"


def test_how_examples_are_drawn_is_said_in_one_place():
    allowed = {"conftest.py", "draws.py", "hunt.py"}
    wrong = [
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path.name not in allowed and "hypothesis" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "hypothesis"
        if {"settings", "seed", "reproduce_failure"} & {alias.name for alias in node.names}
    ]
    assert not wrong, f"use draws.py instead of hypothesis.settings: {wrong}"
