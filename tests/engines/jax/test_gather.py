"""The newest state of a run, however it was written, in the one file that all other commands read."""

import numpy as np
import pytest

from glassformer.engines.jax.sharded_checkpoint import gather, save_sharded
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
