"""Checkpoints of many processes: complete or not there, the same on any mesh, the same as one file."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glassformer.core.errors import CheckpointError, ConfigError
from glassformer.core.tree import tree_map
from glassformer.engines.cluster import collective
from glassformer.engines.jax import sharded_checkpoint
from glassformer.engines.jax.sharded_checkpoint import (
    from_safetensors,
    list_sharded,
    load_sharded,
    load_sharded_arrays,
    save_sharded,
    sharded_path,
)
from glassformer.training import load_checkpoint, save_checkpoint
from glassformer.training.trainer import TrainingState
from runs import assert_same_bits, tiny_session
from xla import xla_flags

pytestmark = pytest.mark.usefixtures("jax")


def state(step: int) -> dict:
    rng = np.random.default_rng(step)
    w = rng.normal(size=(2, 4, 8)).astype(np.float32)
    return {
        "params": {"blocks": {"w": w, "norm": {}}, "head": {}, "none": np.zeros((0, 3), np.float32)},
        "optimizer": {"step": np.asarray(step, np.int32), "mean": {"blocks": {"w": -w}}},
        "ema": None,
    }


def meta(step: int) -> dict:
    return {"step": step, "best": 1.5, "stale": 0, "refused": 0}


@pytest.fixture(scope="module")
def written(tmp_path_factory, jax):
    """A run folder with the checkpoints of steps 1, 2 and 3, of which two are left."""
    folder = tmp_path_factory.mktemp("run")
    for step in (1, 2, 3):
        save_sharded(folder, tree_map(jax.numpy.asarray, state(step)), meta(step))
    return folder


@pytest.fixture
def folder(written, tmp_path):
    return Path(shutil.copytree(written, tmp_path / "run"))


def test_a_state_comes_back_bit_for_bit_as_arrays_of_its_targets(written, jax):
    target = tree_map(jax.numpy.asarray, state(0))
    loaded = load_sharded(written, target)
    assert_same_bits(loaded.state, state(3))
    assert loaded.state["params"]["head"] == {}
    assert loaded.state["ema"] is None
    assert isinstance(loaded.state["params"]["blocks"]["w"], jax.Array)
    assert (loaded.meta, loaded.ignored) == (meta(3), [])

    loaded = load_sharded(written, state(0)).state
    assert type(loaded["params"]["blocks"]["w"]) is np.ndarray
    assert_same_bits(loaded, state(3))


def test_half_precision_comes_back(tmp_path, jax):
    tree = {"x": jax.numpy.arange(5, dtype="bfloat16"), "y": jax.numpy.arange(5, dtype="float16")}
    save_sharded(tmp_path, tree, meta(1))
    assert_same_bits(load_sharded(tmp_path, tree).state, tree)
    assert_same_bits(load_sharded_arrays(tmp_path).state, tree)


def test_the_last_two_are_kept_and_either_can_be_read(written):
    assert list_sharded(written) == [2, 3]
    assert_same_bits(load_sharded(written, state(0), step=2).state, state(2))
    with pytest.raises(CheckpointError, match="no complete sharded checkpoint of step 1") as caught:
        load_sharded(written, state(0), step=1)
    assert caught.value.hint == "there are those of steps 2, 3"


def test_a_step_of_training_that_is_there_already_is_not_written_again(tmp_path, monkeypatch):
    training = TrainingState(3, {"w": np.ones(2)}, {"step": np.asarray(3)}, best=1.5)
    sharded_checkpoint.save_sharded_state(tmp_path, training)
    monkeypatch.setattr(sharded_checkpoint, "_checkpointer", None)
    sharded_checkpoint.save_sharded_state(tmp_path, training)
    with pytest.raises(CheckpointError):
        sharded_checkpoint.save_sharded_state(tmp_path, training._replace(best=1.0))


def test_another_state_of_the_same_step_takes_its_place(folder):
    save_sharded(folder, state(7), meta(3))
    assert_same_bits(load_sharded(folder, state(0)).state, state(7))
    assert list_sharded(folder) == [2, 3]


def test_an_older_step_is_kept_when_it_is_written(folder):
    save_sharded(folder, state(1), meta(1))
    assert list_sharded(folder) == [1, 2, 3]
    save_sharded(folder, state(4), meta(4))
    assert list_sharded(folder) == [3, 4]


def test_an_incomplete_checkpoint_is_ignored_and_told_and_removed_by_the_next(folder):
    (sharded_path(folder, 3) / "whole.json").unlink()
    leftover = folder / "sharded" / "00000004.orbax-checkpoint-tmp"
    leftover.mkdir()
    loaded = load_sharded(folder, state(0))
    assert loaded.meta["step"] == 2
    assert loaded.ignored == [sharded_path(folder, 3), leftover]
    save_sharded(folder, state(4), meta(4))
    assert sharded_checkpoint.incomplete_sharded(folder) == []
    assert list_sharded(folder) == [2, 4]


def test_what_else_lies_beside_checkpoints_is_left_alone(folder):
    copy = folder / "sharded" / "00000003.copy"
    shutil.copytree(sharded_path(folder, 3), copy)
    for name in ("mine", "5", "²"):
        (folder / "sharded" / name).mkdir()
        shutil.copy(copy / "whole.json", folder / "sharded" / name)
    assert (list_sharded(folder), sharded_checkpoint.incomplete_sharded(folder)) == ([2, 3], [])
    save_sharded(folder, state(4), meta(4))
    assert sharded_checkpoint.files_of(copy) == sharded_checkpoint.files_of(sharded_path(folder, 3))
    assert (folder / "sharded" / "mine" / "whole.json").is_file()


def test_a_checkpoint_that_is_removed_does_not_count_from_the_first_moment(folder, monkeypatch):
    def seen(path, **_):
        assert not (path / "whole.json").exists()

    monkeypatch.setattr(shutil, "rmtree", seen)  # it removes nothing, as where files are held open
    save_sharded(folder, state(4), meta(4))
    assert list_sharded(folder) == [3, 4]


def test_a_process_killed_while_it_writes_leaves_the_ones_before(folder):
    code = """
import os, sys
from glassformer.engines.jax import sharded_checkpoint
import numpy as np
def killed(*_):
    os.kill(os.getpid(), 9)
setattr(sharded_checkpoint, sys.argv[2], killed)
sharded_checkpoint.save_sharded(sys.argv[1], {"x": np.ones(3)}, {"step": 4})
"""
    for moment in ("write_text", "_commit"):
        result = subprocess.run([sys.executable, "-c", code, str(folder), moment], check=False)
        assert result.returncode == -9
        assert list_sharded(folder) == [2, 3]
        assert_same_bits(load_sharded(folder, state(0)).state, state(3))


def test_a_changed_bit_in_any_file_is_found(folder):
    path = sharded_path(folder, 3)
    for name in sharded_checkpoint.files_of(path):
        content = (path / name).read_bytes()
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        (path / name).write_bytes(changed)
        with pytest.raises(CheckpointError, match=f"is damaged: the checksum of {name}") as caught:
            load_sharded(folder, state(0))
        assert caught.value.hint == f"to go on from step 2, remove {path}"
        (path / name).write_bytes(content)
    assert load_sharded(folder, state(0)).meta["step"] == 3


def test_a_missing_file_is_found(folder):
    path = sharded_path(folder, 3)
    (path / sharded_checkpoint.files_of(path)[-1]).unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        load_sharded(folder, state(0))


def test_a_changed_number_in_the_description_is_found(folder):
    path = sharded_path(folder, 3) / "whole.json"
    path.write_text(path.read_text().replace('"best": 1.5', '"best": 1.6'))
    with pytest.raises(CheckpointError, match=r"whole\.json is damaged, or was edited"):
        load_sharded(folder, state(0))


def test_a_file_that_cannot_be_read_is_damage(folder, monkeypatch):
    def broken(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(sharded_checkpoint, "checksum", broken)
    with pytest.raises(CheckpointError, match=r"is damaged: .* cannot be read \(Input/output error\)"):
        load_sharded(folder, state(0))


def test_storage_that_is_not_shared_is_told(folder, monkeypatch):
    monkeypatch.setattr(collective, "PATIENCE", 0.1)
    monkeypatch.setattr(sharded_checkpoint, "_known_step", lambda *_: 9)  # what worker 0 sees
    with pytest.raises(CheckpointError, match="cannot be seen from this machine") as caught:
        load_sharded(folder, state(0))
    assert "storage that all workers share" in caught.value.hint


NOT_DICTS = '{"format": "glassformer-sharded-checkpoint", "version": 1, "meta": {}, "arrays": [], "files": 1}'


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": "other", "version": 1}', NOT_DICTS])
def test_an_unreadable_description_is_damage(folder, content):
    (sharded_path(folder, 3) / "whole.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"whole\.json is damaged") as caught:
        load_sharded(folder, state(0))
    assert "go on from step 2" in caught.value.hint


def test_another_version_is_refused(folder):
    path = sharded_path(folder, 3) / "whole.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2, "checksum": None}))
    with pytest.raises(CheckpointError, match="has version 2, this program reads version 1"):
        load_sharded(folder, state(0))


def test_what_the_library_cannot_read_is_damage_too(folder):
    path = sharded_path(folder, 3)
    (path / "manifest.ocdbt").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="is damaged: it cannot be read"):
        sharded_checkpoint._read_arrays(path, {"params.blocks.w": state(0)["params"]["blocks"]["w"]})


def test_a_folder_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no complete sharded checkpoint") as caught:
        load_sharded(tmp_path, state(0))
    assert "ended before its first one" in caught.value.hint
    (tmp_path / "sharded" / "00000001").mkdir(parents=True)
    with pytest.raises(CheckpointError) as caught:
        load_sharded(tmp_path, state(0))
    assert "lost while it wrote its first one" in caught.value.hint


def other(**changes):
    tree = state(0)
    tree["params"] |= changes
    return tree


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (other(more=np.ones(2)), r"params.more is missing, the run has float64 \(2,\)"),
        (
            other(blocks={"w": np.ones((2, 4, 9), np.float32)}),
            r"w is float32 \(2, 4, 8\), the run has float32 \(2, 4, 9\)",
        ),
        (other(blocks={"w": np.ones((2, 4, 8), np.float16)}), "the run has float16"),
        (other(blocks=[{"w": np.ones((4, 8), np.float32)}] * 2), "params.blocks.w is .*, the run has missing"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(written, target, message):
    with pytest.raises(CheckpointError, match=message):
        load_sharded(written, target)


@pytest.mark.parametrize("moment", ["_checkpointer", "write_text", "_commit"])
def test_a_full_disk_leaves_the_ones_before_and_says_so(folder, monkeypatch, moment):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(sharded_checkpoint, moment, full)
        with pytest.raises(CheckpointError, match="the disk is full; those of steps 2, 3 are unchanged") as caught:
            save_sharded(folder, state(4), meta(4))
    assert "free some space" in caught.value.hint
    assert_same_bits(load_sharded(folder, state(0)).state, state(3))
    save_sharded(folder, state(4), meta(4))
    assert list_sharded(folder) == [3, 4]


def test_a_disk_too_full_for_the_first_folder_is_told(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(CheckpointError, match="the disk is full; there was none before"):
        save_sharded(tmp_path, state(1), meta(1))


def test_a_limit_on_the_size_of_files_is_told(tmp_path):
    code = """
import resource, sys
import numpy as np
from glassformer.core.errors import CheckpointError
from glassformer.engines.jax.sharded_checkpoint import save_sharded
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_sharded(sys.argv[1], {"x": np.random.default_rng(0).normal(size=100_000)}, {"step": 1})
except CheckpointError as error:
    sys.stderr.write(str(error))
    sys.exit(7)
"""
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert result.returncode == 7, result.stderr
    assert "could not write the checkpoint" in result.stderr
    assert "there was none before" in result.stderr
    assert list_sharded(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "sharded").write_text("a file")
    with pytest.raises(CheckpointError, match=r"could not write the checkpoint .*: File exists; there was none before"):
        save_sharded(tmp_path, state(1), meta(1))


def test_without_the_library_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ConfigError) as caught:
        save_sharded(tmp_path, state(1), meta(1))
    assert caught.value.hint == 'install them: pip install "glassformer[jax]"'


@pytest.mark.parametrize("task", ["lines", "dates"], ids=["decoder", "encoder-decoder"])
@pytest.mark.parametrize("scan", [False, True], ids=["list", "stacked"])
def test_a_run_goes_to_shards_and_back_to_one_file_bit_for_bit(tmp_path, task, scan):
    session = tiny_session(task, tmp_path / "run", steps=2, ema=0.9, layers=2)
    list(session.steps())
    before = load_checkpoint(tmp_path / "run")
    from_safetensors(tmp_path / "run", scan=scan)
    names = load_sharded_arrays(tmp_path / "run").state
    assert any("blocks.0." in name for name in names) is not scan
    (tmp_path / "run" / "latest.safetensors").unlink()
    sharded_checkpoint.to_safetensors(tmp_path / "run")
    after = load_checkpoint(tmp_path / "run")
    assert_same_bits(after.arrays, before.arrays)
    assert after.meta == before.meta
    assert_same_bits(session.run.load_state().params, session.state.params)


def test_weights_that_changed_in_the_file_go_to_the_shards(tmp_path):
    run = tmp_path / "run"
    for scale in (1.0, 2.0):
        save_checkpoint(run, "latest", {"params.w": np.full(3, scale)}, meta(5))
        from_safetensors(run)
    assert load_sharded_arrays(run).state["params.w"].tolist() == [2.0, 2.0, 2.0]


ON_FOUR_DEVICES = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from glassformer.engines.jax.sharded_checkpoint import load_sharded, save_sharded

def placed(array, devices, names, *axes):
    mesh = Mesh(np.array(jax.devices()[: int(np.prod(devices))]).reshape(devices), names)
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))

folder, whole = sys.argv[1], np.arange(8 * 8, dtype=np.float32).reshape(8, 8)
square = (2, 2), ("a", "b")
save_sharded(folder, {"w": placed(whole, *square, "b", "a"), "n": placed(np.int32(7), *square)}, {"step": 1})
report = []
for devices, names, axes in [
    ((4,), ("a",), ("a",)), ((1, 2), ("a", "b"), (None, "b")), ((1,), ("a",), ()), (*square, (("a", "b"),))
]:
    target = {"w": placed(0 * whole, devices, names, *axes), "n": placed(np.int32(0), devices, names)}
    state = load_sharded(folder, target).state
    report.append([
        state["w"].sharding == target["w"].sharding,
        bool(np.array_equal(np.asarray(state["w"]), whole)),
        int(state["n"]),
        list(state["w"].addressable_shards[0].data.shape),
    ])
print(json.dumps(report))
"""


def test_a_checkpoint_can_be_read_onto_another_mesh(tmp_path):
    env = {**os.environ, "XLA_FLAGS": xla_flags(xla_force_host_platform_device_count=4), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", ON_FOUR_DEVICES, str(tmp_path)]
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    shapes = [[2, 8], [8, 4], [8, 8], [2, 8]]
    assert json.loads(result.stdout) == [[True, True, 7, shape] for shape in shapes]
