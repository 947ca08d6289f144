"""Memory safety: whatever the arguments, a call ends in an error or in the right answer, and the process goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glassformer.core.errors import ShapeError
from glassformer.core.quantized import Quantized, quantize
from glassformer.engines.cpu.update import adam_on_all, add_to_all, add_weighted

TESTS = Path(__file__).resolve().parents[2]


def test_no_entry_leaves_its_arrays_or_answers_what_the_op_does_not():
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("hostile.py"))],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = child.stdout.splitlines()
    assert child.returncode == 0, f"ended by {child.returncode} in {lines[-1:]}: {child.stderr[-2000:]}"
    found = json.loads(lines[-1])
    assert found["calls"] > 3500
    assert not found["missing"]
    assert not found["wrong"], "\n".join(found["wrong"])


def floats(*sizes):
    return [np.ones(size, np.float32) for size in sizes]


SETTINGS = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8}


def test_a_step_on_all_arrays_is_not_taken_where_their_sizes_differ():
    assert adam_on_all(floats(4, 5), floats(4, 4), floats(4, 5), [True, True], **SETTINGS) is None
    assert adam_on_all(floats(4), floats(4, 5), floats(4), [True], **SETTINGS) is None
    ps = floats(4, 5)
    step = adam_on_all(ps, floats(4, 5), floats(4, 5), [True, True], **SETTINGS)
    for gs in (floats(4, 4), floats(4), floats(4, 5, 6), [np.ones(4, ">f4"), np.ones(5, "f4")], []):
        assert not step(gs, rate=0.1, root=1.0)
    assert all((p == 1).all() for p in ps)
    assert not add_to_all(floats(4, 5), floats(4, 500_000), 1.0, 1.0)
    with pytest.raises(ValueError, match="broadcast"):
        add_weighted(*floats(4, 5), 1.0, 1.0)


@pytest.mark.parametrize("form", ["F16", "Q8_0", "Q4_0", "Q4_1"])
def test_a_matrix_in_blocks_has_the_blocks_that_it_says_and_keeps_them(form):
    w = quantize(np.ones((8, 64), np.float32), form)
    for rows, columns in ((9, 64), (1 << 40, 64), (8, 65 if form == "F16" else 97), (-8, 64)):
        with pytest.raises(ShapeError, match="these blocks cannot hold"):
            Quantized(form, w.blocks, rows, columns)
    for blocks in (w.blocks.astype(np.int16), np.asfortranarray(w.blocks)[::-1], w.blocks[:-1], None):
        with pytest.raises(ShapeError, match="these blocks cannot hold"):
            Quantized(form, blocks, 8, 64)
    with pytest.raises(AttributeError):
        w.rows = 1 << 40
