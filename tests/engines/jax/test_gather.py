"""The newest state of a run, however it was written: on the disk, and in the one file that all other commands read."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from glassformer.engines.jax.sharded_checkpoint import files_of, gather, load_sharded_arrays, save_sharded
from glassformer.training.checkpoint import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.usefixtures("jax")


def meta(step):
    return {"step": step, "best": None, "stale": 0, "refused": 0}


def write_shards(run, step):
    save_sharded(run, {"params": {"blocks": {"w": np.full((2, 3), float(step), np.float32)}}}, meta(step))


def test_a_run_without_shards_is_left_as_it_is(tmp_path):
    assert gather(tmp_path) is None
    save_checkpoint(tmp_path, "latest", {"params.w": np.ones(3)}, meta(4))
    assert gather(tmp_path) is None
    assert load_checkpoint(tmp_path).meta["step"] == 4


def test_shards_that_are_newer_become_one_file_with_a_list_of_blocks(tmp_path):
    save_checkpoint(tmp_path, "latest", {"params.blocks.0.w": np.zeros(3)}, meta(4))
    write_shards(tmp_path, 6)
    assert gather(tmp_path) == tmp_path / "latest.safetensors"
    arrays, kept = load_checkpoint(tmp_path)
    assert kept == meta(6)
    assert {name: x.tolist() for name, x in arrays.items()} == {f"params.blocks.{n}.w": [6.0] * 3 for n in range(2)}
    assert gather(tmp_path) is None


def test_shards_that_are_older_are_not_read(tmp_path):
    write_shards(tmp_path, 3)
    save_checkpoint(tmp_path, "latest", {"params.blocks.0.w": np.zeros(3)}, meta(4))
    assert gather(tmp_path) is None
    assert load_checkpoint(tmp_path).meta["step"] == 4


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="asks the system which file is open")
def test_all_of_a_checkpoint_is_on_the_disk_before_it_counts(tmp_path, monkeypatch, jax):
    flushed, fsync = [], os.fsync

    def noted(descriptor):
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    state = {"params": {"w": jax.numpy.ones((2, 4), np.float32)}}
    path = save_sharded(tmp_path, state, meta(1))
    commit = next(place for place, found in enumerate(flushed) if found.name.startswith("whole.json"))
    folders = [found for found in path.rglob("*") if found.is_dir()]
    assert {*folders, path, path.parent, *(path / name for name in files_of(path))} <= set(flushed[:commit])


ENDLESS = """
import itertools, sys
import numpy as np
from glassformer.engines.jax.sharded_checkpoint import save_sharded
for step in itertools.count(1):
    save_sharded(sys.argv[1], {"x": np.full(300_000, step, np.float32)}, {"step": step})
    print(step, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1])
def test_a_process_killed_at_any_moment_loses_nothing_that_was_written(tmp_path, delay):
    command = [sys.executable, "-c", ENDLESS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        written = [int(process.stdout.readline()) for _ in range(3)][-1]
        time.sleep(delay)
        process.kill()
    loaded = load_sharded_arrays(tmp_path)
    assert loaded.meta["step"] >= written
    assert set(loaded.state["x"]) == {loaded.meta["step"]}
