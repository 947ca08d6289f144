"""The files of sharded checkpoints: all of them are on the disk before one counts."""

import os
from pathlib import Path

import numpy as np
import pytest

from glassformer.engines.jax.sharded_checkpoint import save_sharded
from glassformer.engines.jax.sharded_files import files_of

pytestmark = pytest.mark.usefixtures("jax")


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="asks the system which file is open")
def test_all_of_a_checkpoint_is_on_the_disk_before_it_counts(tmp_path, monkeypatch, jax):
    flushed, fsync = [], os.fsync

    def noted(descriptor):
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    state = {"params": {"w": jax.numpy.ones((2, 4), np.float32)}}
    path = save_sharded(tmp_path, state, {"step": 1, "best": None, "stale": 0, "refused": 0})
    commit = next(place for place, found in enumerate(flushed) if found.name.startswith("whole.json"))
    folders = [found for found in path.rglob("*") if found.is_dir()]
    assert {*folders, path, path.parent, *(path / name for name in files_of(path))} <= set(flushed[:commit])
