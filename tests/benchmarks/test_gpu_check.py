"""The check of a GPU ends with an error where something is not fused, or wrong."""

import json
from argparse import Namespace

import numpy as np
import pytest

import _gpu_check


@pytest.fixture
def errors(monkeypatch):
    """What each part finds: nothing wrong, until a test says otherwise."""
    found = dict.fromkeys(("gradient", "step", "attention", "kernel"), 0.0)
    for name in found:
        monkeypatch.setattr(_gpu_check, f"_{name}_error", lambda *_, name=name: found[name])
    return found


@pytest.mark.parametrize("part", ["gradient", "step", "attention", "kernel", None])
@pytest.mark.parametrize("error", [0.5, np.nan])
def test_what_is_not_within_its_limit_is_an_error(part, error, errors, jax, monkeypatch, capsys):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    if part is None:
        _gpu_check.check(Namespace())
    else:
        errors[part] = error
        with pytest.raises(SystemExit, match="not within the limit: "):
            _gpu_check.check(Namespace())
    assert len([json.loads(line) for line in capsys.readouterr().out.splitlines()]) == 10


def test_attention_that_is_not_fused_is_an_error(jax):
    with pytest.raises(AssertionError, match="cuDNN's pair was not called"):
        _gpu_check._attention_error()
