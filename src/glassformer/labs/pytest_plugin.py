"""The checks of labs as fixtures of pytest; in a conftest.py: pytest_plugins = ["glassformer.labs.pytest_plugin"]."""

from collections.abc import Callable
from typing import Any

import pytest

from .check import Verdict, check, check_backward, check_file


def _failing(checker: Callable[..., Verdict]) -> Callable[..., Verdict]:
    def checked(*args: Any, **settings: Any) -> Verdict:
        verdict = checker(*args, **settings)
        if not verdict.ok:
            pytest.fail(repr(verdict), pytrace=False)
        return verdict

    return checked


@pytest.fixture
def check_lab() -> Callable[..., Verdict]:
    """Fail the test if a function does not solve its lab: check_lab(softmax_backward, lab=None)."""
    return _failing(check)


@pytest.fixture
def check_lab_file() -> Callable[..., Verdict]:
    """Fail the test if a file does not solve its lab: check_lab_file("softmax_backward.py")."""
    return _failing(check_file)


@pytest.fixture
def check_gradient() -> Callable[..., Verdict]:
    """Fail the test if a backward is not the gradient of its forward: check_gradient(forward, backward, example)."""
    return _failing(check_backward)
