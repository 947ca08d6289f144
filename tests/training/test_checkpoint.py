"""Checkpoints: nothing changes on the way, nothing is lost in a crash, and damage is noticed."""

import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from glassformer.core.errors import CheckpointError, ConfigError, DTypeError, GlassformerError
from glassformer.core.tree import flatten, unflatten
from glassformer.training import BEST, LATEST, AdamW, checkpoint, list_checkpoints, load_checkpoint, save_checkpoint

needs_posix = pytest.mark.skipif(os.name != "posix", reason="kills and limits processes in the manner of POSIX")


@pytest.fixture
def arrays(rng):
    return {
        "params.blocks.0.w": rng.normal(size=(3, 4)).astype(np.float32),
        "params.turned": rng.normal(size=(3, 4)).T,
        "key": np.asarray([1, 2**32 - 1], np.uint32),
        "step": np.asarray(7, np.int32),
        "empty": np.zeros((0, 3)),
        "odd": np.asarray([np.nan, -0.0, np.inf, 5e-324]),
        "keep": np.asarray([True, False, True]),
        "half": np.asarray([1.5, -2], np.float16),
        "big_endian": np.asarray([1, 2], ">i4"),
    }


def bits(array):
    return array.dtype.newbyteorder("="), array.shape, np.asarray(array, array.dtype.newbyteorder("=")).tobytes()


def assert_identical(have, want):
    assert have.keys() == want.keys()
    for name in want:
        assert bits(have[name]) == bits(np.asarray(want[name])), name


def partials(folder):
    return list(folder.glob("*.partial"))


def test_arrays_and_meta_come_back_bit_for_bit_from_an_ordinary_safetensors_file(tmp_path, arrays):
    meta = {"step": 7, "rng": np.random.default_rng(0).bit_generator.state, "loss": 0.1, "names": ["é", None, True]}
    path = save_checkpoint(tmp_path / "run", LATEST, arrays, meta)
    assert path == tmp_path / "run" / "latest.safetensors"
    loaded = load_checkpoint(tmp_path / "run")
    assert_identical(loaded.arrays, arrays)
    assert list(loaded.arrays) == list(arrays)
    assert loaded.meta == meta
    assert all(array.flags.writeable for array in loaded.arrays.values())

    assert_identical(load_file(save_checkpoint(tmp_path, LATEST, arrays, {})), arrays)


def test_jax_arrays_come_back_as_numpy_and_an_optimizer_goes_on_from_its_saved_state(jax, tmp_path, rng):
    x = jax.numpy.arange(6, dtype=jax.numpy.bfloat16).reshape(2, 3)
    save_checkpoint(tmp_path, LATEST, {"x": x}, {})
    have = load_checkpoint(tmp_path).arrays["x"]
    assert isinstance(have, np.ndarray)
    assert have.dtype == x.dtype
    np.testing.assert_array_equal(have, np.asarray(x))

    params = {"blocks": [{"w": rng.normal(size=(3, 3)).astype(np.float32)}]}
    params, state = AdamW().update(params, params, AdamW().init(params), lr=0.1)
    save_checkpoint(tmp_path, LATEST, flatten({"params": params, "optimizer": state}), {})
    restored = unflatten(load_checkpoint(tmp_path).arrays)
    want = AdamW().update(params, params, state, lr=0.1)
    have = AdamW().update(restored["params"], restored["params"], restored["optimizer"], lr=0.1)
    assert_identical(flatten(have), flatten(want))


def test_a_new_checkpoint_replaces_the_old_of_its_name_and_the_same_content_is_the_same_bytes(tmp_path, arrays):
    save_checkpoint(tmp_path, LATEST, {"x": np.ones(2)}, {"step": 1})
    save_checkpoint(tmp_path, BEST, {"x": np.ones(2)}, {"step": 1})
    save_checkpoint(tmp_path, LATEST, {"x": np.ones(3)}, {"step": 2})
    assert (load_checkpoint(tmp_path).meta, load_checkpoint(tmp_path, BEST).meta) == ({"step": 2}, {"step": 1})
    assert list_checkpoints(tmp_path) == [BEST, LATEST]
    assert sorted(os.listdir(tmp_path)) == ["best.safetensors", "latest.safetensors"]

    path = save_checkpoint(tmp_path, LATEST, arrays, {"b": 1, "a": 2})
    first = path.read_bytes()
    assert save_checkpoint(tmp_path, LATEST, arrays, {"a": 2, "b": 1}).read_bytes() == first
    header = json.loads(first[8 : 8 + int.from_bytes(first[:8], "little")])
    assert list(header.pop("__metadata__")) == ["format", "version", "meta", "names", "sha256"]
    assert all(header[name]["data_offsets"][0] % array.itemsize == 0 for name, array in arrays.items())


def test_what_another_writes_at_the_same_time_is_left_alone(tmp_path):
    other = tmp_path / "best.safetensors.0badcafe.partial"
    other.write_bytes(b"half a checkpoint")
    save_checkpoint(tmp_path, LATEST, {}, {})
    assert other.read_bytes() == b"half a checkpoint"


def test_every_truncation_and_every_flipped_bit_of_the_content_is_noticed(tmp_path):
    arrays = {"a": np.arange(3, dtype=np.float32), "b": np.arange(2, dtype=np.uint32)}
    path = save_checkpoint(tmp_path, LATEST, arrays, {"step": 1})
    whole = path.read_bytes()
    spaces = [i for i, byte in enumerate(whole[:-20]) if byte == ord(" ")]  # padding and separators say nothing
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError, match="is damaged"):
            load_checkpoint(tmp_path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            loaded = load_checkpoint(tmp_path)
        except CheckpointError:
            continue
        assert place in spaces
        assert_identical(loaded.arrays, arrays)


def test_arrays_without_a_place_or_places_without_an_array_are_noticed(tmp_path, monkeypatch):
    for names in (["a"], ["a", "b", "c"], ["b", "a"], ["a", "b", ["c"]], 3):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "list", lambda _, names=names: names, raising=False)
            save_checkpoint(tmp_path, LATEST, {"a": np.zeros(1), "b": np.zeros(1)}, {})
        with pytest.raises(CheckpointError, match="checksum does not match"):
            load_checkpoint(tmp_path)


def test_damage_names_what_the_other_checkpoint_is_good_for(tmp_path):
    remedies = {LATEST: f"best beside it can be used as a model, and trained anew from: --from {tmp_path}"}
    remedies[BEST] = "or use another one in this folder: latest"
    for name in (BEST, LATEST):
        save_checkpoint(tmp_path, name, {"x": np.zeros(4)}, {})
    for name, remedy in remedies.items():
        path = checkpoint.checkpoint_path(tmp_path, name)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + b"1")
        with pytest.raises(CheckpointError, match="checksum does not match") as caught:
            load_checkpoint(tmp_path, name)
        assert caught.value.hint.endswith(remedy)
        path.write_bytes(whole)


def test_missing_checkpoints_are_told_apart(tmp_path):
    with pytest.raises(CheckpointError, match="no run folder"):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        load_checkpoint(tmp_path)
    save_checkpoint(tmp_path, BEST, {}, {})
    with pytest.raises(CheckpointError, match="hint: this folder has: best"):
        load_checkpoint(tmp_path)
    with pytest.raises(OSError, match="there is no checkpoint") as caught:
        load_checkpoint(tmp_path)
    assert isinstance(caught.value, GlassformerError)


def test_other_files_and_other_versions_are_refused(tmp_path, monkeypatch):
    save_file({"x": np.zeros(2)}, tmp_path / "latest.safetensors")
    with pytest.raises(CheckpointError, match="is not a Glassformer checkpoint"):
        load_checkpoint(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", "99")
        save_checkpoint(tmp_path, LATEST, {}, {})
    with pytest.raises(CheckpointError, match="has version 99, this program reads version 1"):
        load_checkpoint(tmp_path)


def test_what_cannot_be_saved_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DTypeError, match="the array x has type complex128"):
        save_checkpoint(tmp_path, LATEST, {"x": np.zeros(2, complex)}, {})
    with pytest.raises(DTypeError, match="meta cannot be written as JSON"):
        save_checkpoint(tmp_path, LATEST, {}, {"x": np.zeros(2)})
    with pytest.raises(ConfigError, match="cannot name a checkpoint"):
        save_checkpoint(tmp_path, "../latest", {}, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_previous_checkpoint_and_says_so(tmp_path, monkeypatch, function):
    save_checkpoint(tmp_path, LATEST, {"x": np.ones(2)}, {"step": 1})

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, full)
        with pytest.raises(CheckpointError, match="the disk is full; the previous one is unchanged") as caught:
            save_checkpoint(tmp_path, LATEST, {"x": np.ones(2_000_000)}, {"step": 2})
    assert "hint: free some space: it needs 16.0 MB" in str(caught.value)
    assert os.listdir(tmp_path) == ["latest.safetensors"]
    assert load_checkpoint(tmp_path).meta == {"step": 1}


def test_a_checkpoint_that_one_may_not_read_is_not_called_damaged(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, LATEST, {}, {})

    def forbidden(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(checkpoint, "safe_open", forbidden)
    with pytest.raises(CheckpointError, match=r"cannot be read: Permission denied(.|\n)*ask its owner"):
        load_checkpoint(tmp_path)


def test_what_a_checkpoint_says_is_read_without_its_arrays(tmp_path, arrays):
    assert checkpoint.read_meta(tmp_path) == {}
    path = save_checkpoint(tmp_path, LATEST, arrays, {"step": 3})
    assert checkpoint.read_meta(tmp_path) == {"step": 3}
    path.write_bytes(b"no checkpoint at all")
    assert checkpoint.read_meta(tmp_path) == {}


def test_ctrl_c_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, LATEST, {}, {"step": 1})

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, LATEST, {}, {"step": 2})
    assert partials(tmp_path) == []
    assert load_checkpoint(tmp_path).meta == {"step": 1}


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(CheckpointError, match="could not write the checkpoint"):
        save_checkpoint(tmp_path / "run", LATEST, {}, {})


LIMITED = """
import resource, sys, numpy as np
from glassformer.core.errors import CheckpointError
from glassformer.training import save_checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_checkpoint(sys.argv[1], "latest", {"x": np.ones(1_000_000)}, {"step": 2})
except CheckpointError as error:
    sys.exit(str(error))
"""


@needs_posix
def test_a_write_that_the_system_stops_halfway_leaves_the_previous_checkpoint(tmp_path):
    save_checkpoint(tmp_path, LATEST, {"x": np.ones(2)}, {"step": 1})
    result = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True)
    assert "File too large; the previous one is unchanged" in result.stderr
    assert os.listdir(tmp_path) == ["latest.safetensors"]
    assert load_checkpoint(tmp_path).meta == {"step": 1}


# Dies by SIGKILL at the n-th call that save_checkpoint makes to the system; halfway through the bytes for n = 0.
DOOMED = """
import os, signal, sys, numpy as np
from glassformer.training import checkpoint
place, calls = int(sys.argv[2]), [0]
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def counted(function):
    def call(*args):
        calls[0] += 1
        if calls[0] == place:
            die()
        return function(*args)
    return call
def half(path, arrays, metadata):
    write_tensors(path, arrays, metadata)
    if place == 0:
        os.truncate(path, os.path.getsize(path) // 2)
        die()
write_tensors, checkpoint.write_tensors = checkpoint.write_tensors, half
for name in ("open", "fsync", "close", "replace"):
    setattr(os, name, counted(getattr(os, name)))
checkpoint.save_checkpoint(sys.argv[1], "latest", {"x": np.full(1000, 2)}, {"step": 2})
print(calls[0])
"""
CALLS = 9  # open and close to begin it; open, fsync, close, replace; open, fsync, close of the folder


@needs_posix
@pytest.mark.parametrize("place", range(CALLS + 2))
def test_a_process_killed_between_any_two_calls_leaves_a_whole_checkpoint(tmp_path, place):
    save_checkpoint(tmp_path, LATEST, {"x": np.full(1000, 1)}, {"step": 1})
    result = subprocess.run([sys.executable, "-c", DOOMED, tmp_path, str(place)], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == ((-signal.SIGKILL, "") if place <= CALLS else (0, f"{CALLS}\n"))
    loaded = load_checkpoint(tmp_path)
    assert loaded.meta["step"] == (1 if place <= 6 else 2)
    assert np.all(loaded.arrays["x"] == loaded.meta["step"])
    assert len(partials(tmp_path)) == (1 if place in (0, 2, 3, 4, 5, 6) else 0)
