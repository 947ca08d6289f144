"""The checks of labs as fixtures of pytest; in a conftest.py: pytest_plugins = ["glassformer.labs.pytest_plugin"].

check_lab(softmax_backward, lab=None)            fails the test if a function does not solve its lab
check_lab_file("softmax_backward.py")            fails it if a file does not
check_gradient(forward, backward, example)       fails it if a backward is not the gradient of its forward
"""

from collections.abc import Callable
from typing import Any

import pytest

from .check import Verdict, check, check_backward, check_file


def _fixture(checker: Callable[..., Verdict]) -> Any:
    def checked(*args: Any, **settings: Any) -> Verdict:
        verdict = checker(*args, **settings)
        if not verdict.ok:
            pytest.fail(repr(verdict), pytrace=False)
        return verdict

    return pytest.fixture(lambda: checked)


check_lab, check_lab_file, check_gradient = _fixture(check), _fixture(check_file), _fixture(check_backward)
