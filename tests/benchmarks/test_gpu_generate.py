"""The benchmark of generation on a device runs, with little installed, and PyTorch writes the same tokens."""

import json
import os
import subprocess
import sys
from pathlib import Path

from xla import xla_flags

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_generate.py"
BARE = """
import os, runpy, sys
sys.modules |= {"threadpoolctl": None, "babel": None, "numba": None, "rich": None}  # as if they were not installed
sys.path.insert(0, os.path.dirname(sys.argv[1]))
sys.argv = [sys.argv[1], "--tiny", "--rounds", "1", "--batch", "2"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_it_prints_one_line_of_json_for_each_row(torch, jax):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": xla_flags()}
    command = [sys.executable, "-c", BARE, SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ours, peer, last = map(json.loads, done.stdout.splitlines())
    assert (ours["contender"], peer["contender"]) == ("glassformer jax", "PyTorch")
    for row in (ours, peer):
        assert (row["batch"], row["prompt"], row["new"], row["dtype"]) == (2, 12, 12, "float32")
        assert row["tokens_per_second"] > 0
        assert row["same_tokens"] == 1.0
    assert set(last["compilations"].values()) == {1}
