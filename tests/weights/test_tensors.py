"""Safetensors files: mapped instead of read, and refused quickly when something is wrong with them."""

import json
import struct
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save_file

from glassformer.core.errors import WeightsError
from glassformer.weights.tensors import INDEX, SINGLE, open_tensors, read_header


def file_of(path, header, data=b"", *, length=None):
    """Write a file with any header, a dict or bytes."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(content) if length is None else length) + content + data)
    return path


def entry(shape, start, stop, kind="F32"):
    return {"dtype": kind, "shape": shape, "data_offsets": [start, stop]}


def index_of(folder, places):
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")


@pytest.fixture
def shards(tmp_path):
    """Two files with a tensor each."""
    for number in (1, 2):
        save_file({f"t{number}": np.full((2, 3), number, np.float32)}, tmp_path / f"part-{number}.safetensors")
    return tmp_path


def test_float32_is_mapped_and_not_copied(tmp_path):
    big = np.arange(4_000_000, dtype=np.float32).reshape(2000, 2000)
    save_file({"big": big}, tmp_path / SINGLE)
    tracemalloc.start()
    found = open_tensors(tmp_path).read("big")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000
    assert not found.flags.owndata
    assert not found.flags.writeable
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, big)


@pytest.mark.parametrize("kind", ["F64", "F32", "F16", "BF16"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_other_types_are_converted_when_asked_for(kind, dtype, tmp_path):
    values = np.array([[1.5, -2.25], [3e-5, 1e4]])
    if kind == "BF16":
        data = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        expected = (data.astype(np.uint32) << 16).view(np.float32).astype(dtype)
    else:
        data = values.astype({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[kind])
        expected = data.astype(dtype)
    file_of(tmp_path / SINGLE, {"x": entry([2, 2], 0, data.nbytes, kind)}, data.tobytes())
    found = open_tensors(tmp_path).read("x", dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_bytes_that_are_not_aligned_are_copied_and_many_files_read_through_their_index(tmp_path, shards):
    data = np.arange(3, dtype=np.float32)
    header = json.dumps({"x": entry([3], 0, 12)}).encode()
    file_of(tmp_path / SINGLE, header + b" " * ((3 - len(header)) % 4), data.tobytes())
    found = open_tensors(tmp_path).read("x")
    assert found.flags.aligned
    np.testing.assert_array_equal(found, data)

    index_of(shards, {"t1": "part-1.safetensors", "t2": "part-2.safetensors"})
    tensors = open_tensors(shards)
    assert [tensors.read(name)[0, 0] for name in ("t1", "t2")] == [1, 2]


GOOD = {"x": entry([3], 0, 12)}
TWELVE = b"\0" * 12


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (GOOD, b"\0" * 11, "is damaged"),
        (GOOD, b"\0" * 13, "is damaged"),
        ({"x": entry([3], 0, 12), "y": entry([2], 4, 12)}, TWELVE, "is damaged"),
        ({"x": entry([2], 0, 8), "y": entry([1], 12, 16)}, b"\0" * 16, "is damaged"),
        ({"x": entry([4], 0, 12)}, TWELVE, "is damaged"),
        ({"x": entry([3], 12, 0)}, TWELVE, "is damaged"),
        ({"x": entry([1 << 62, 1 << 62], 0, 12)}, TWELVE, "is damaged"),
        ({"x": entry([-3], 0, 12)}, TWELVE, "is damaged"),
        ({"x": entry([3.0], 0, 12)}, TWELVE, "is damaged"),
        ({"x": entry([True] * 3, 0, 4)}, b"\0" * 4, "is damaged"),
        ({"x": entry([1] * 99, 0, 4)}, b"\0" * 4, "has 99 axes"),
        ({"x": entry([3], 0, 12, "F31")}, TWELVE, "is damaged"),
        ({"x": entry([3], 0, 12, ["F32"])}, TWELVE, "is damaged"),
        ({"x": {"dtype": "F32"}}, TWELVE, "is damaged"),
        ({"x": 5}, TWELVE, "is damaged"),
        (b"[]", b"", "is damaged"),
        (b"{", b"", "is damaged"),
        (b"\xff\xfe", b"", "is damaged"),
        (b"{" * 4000, b"", "is damaged"),
        (b'{"a":' + b"[" * 100_000, b"", "is damaged"),
        (b'{"x":' + b"9" * 5000 + b"}", b"", "is damaged"),
        (b'{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}',
         TWELVE, "is damaged|stands there twice"),
        (b'{"x":{"dtype":"F32","shape":[3],"shape":[3],"data_offsets":[0,12]}}', TWELVE, "is damaged|twice"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(header, data, message, tmp_path):
    path = file_of(tmp_path / SINGLE, header, data)
    with pytest.raises(WeightsError, match=message):
        read_header(path)


@pytest.mark.parametrize("length", [0, 1, 1 << 22, 1 << 40, (1 << 64) - 1])
def test_a_header_of_an_absurd_length_is_refused_at_once(length, tmp_path):
    path = file_of(tmp_path / SINGLE, GOOD, TWELVE, length=length)
    with pytest.raises(WeightsError, match="its header would be"):
        read_header(path)


def test_a_huge_header_is_not_even_read(tmp_path):
    path = tmp_path / SINGLE
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 1 << 33))
        file.truncate(1 << 34)  # a sparse file: it takes no room on the disk
    tracemalloc.start()
    with pytest.raises(WeightsError, match="at most 4,194,304 are allowed"):
        read_header(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"\0", b"\0" * 7])
def test_a_file_without_a_header_is_refused(content, tmp_path):
    (tmp_path / SINGLE).write_bytes(content)
    with pytest.raises(WeightsError, match="is damaged"):
        open_tensors(tmp_path)


def test_integers_are_not_weights(tmp_path):
    save_file({"x": np.arange(3)}, tmp_path / SINGLE)
    with pytest.raises(WeightsError, match="holds I64"):
        open_tensors(tmp_path).read("x")


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "a\\b", "a\0b"]
)
def test_an_index_cannot_point_outside_its_folder(name, shards):
    index_of(shards, {"t1": name})
    with pytest.raises(WeightsError, match="points outside its folder"):
        open_tensors(shards)


def test_only_the_links_of_the_hub_cache_are_followed(shards):
    inner = shards / "model"
    inner.mkdir()
    (inner / "linked.safetensors").symlink_to(shards / "part-1.safetensors")
    index_of(inner, {"t1": "linked.safetensors"})
    with pytest.raises(WeightsError, match="a link that leads outside its folder"):
        open_tensors(inner)

    (shards / "blobs").mkdir()
    (shards / "part-1.safetensors").rename(shards / "blobs" / "abc")
    snapshot = shards / "snapshots" / "123"
    snapshot.mkdir(parents=True)
    (snapshot / "one.safetensors").symlink_to("../../blobs/abc")
    index_of(snapshot, {"t1": "one.safetensors"})
    assert open_tensors(snapshot).read("t1")[0, 0] == 1


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"t1": "part-9.safetensors"}, "names part-9.safetensors, which is not there"),
        ({"t1": "part-2.safetensors"}, "says that t1 is in part-2.safetensors, but it is not"),
        ({"t1": 5}, "no weight_map"),
        ([], "no weight_map"),
        ({"t1": "model.bin"}, "is a pickle file"),
        ({f"t{i}": f"part-{i}.safetensors" for i in range(2000)}, "it names 2,000 files"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(places, message, shards):
    index_of(shards, places)
    with pytest.raises(WeightsError, match=message):
        open_tensors(shards)


def test_an_index_with_doubles_is_refused(shards):
    (shards / INDEX).write_text('{"weight_map": {"t1": "part-1.safetensors", "t1": "part-2.safetensors"}}')
    with pytest.raises(WeightsError, match="'t1' stands there twice"):
        open_tensors(shards)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_pickles_are_refused_with_the_reason_and_the_remedy(name, tmp_path):
    (tmp_path / name).write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(WeightsError, match="opening one can run any program") as caught:
        open_tensors(tmp_path)
    assert "safe_serialization" in caught.value.hint


def test_a_folder_without_weights_says_so(tmp_path):
    with pytest.raises(WeightsError, match=r"there is no model\.safetensors"):
        open_tensors(tmp_path)
