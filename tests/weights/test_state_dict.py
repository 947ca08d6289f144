"""State dicts of PyTorch: every tensor as PyTorch has it, and no pickle that does more is ever run."""

import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from glassformer.core.errors import WeightsError
from glassformer.weights.foreign import read_arrays


def test_tensors_are_what_pytorch_reads(torch, tmp_path):
    shared = torch.arange(12, dtype=torch.float64)
    content = {
        "plain": torch.randn(3, 4),
        "nested": {"half": torch.randn(2).half(), "brain": torch.randn(5).bfloat16()},
        "view": shared.view(3, 4)[1:, ::2],
        "turned": torch.randn(2, 3).T,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "number": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "ids": torch.arange(4),
        "epoch": 7,
    }
    torch.save(content, tmp_path / "model.pt")
    found = read_arrays(tmp_path / "model.pt")
    want = {**content, "nested.half": content["nested"]["half"], "nested.brain": content["nested"]["brain"]}
    for name in ("nested", "ids", "epoch"):
        del want[name]
    assert found.keys() == want.keys()
    for name, tensor in want.items():
        assert np.array_equal(found[name], tensor.detach().double().numpy().astype(found[name].dtype)), name


def test_the_state_dict_of_a_module_is_read(torch, tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    torch.save(module.state_dict(), tmp_path / "model.pth")
    found = read_arrays(tmp_path / "model.pth")
    assert list(found) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert np.array_equal(found["0.weight"], module[0].weight.detach().numpy())


class Harm:
    """A pickle that makes a file when it is opened by anyone who runs it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_something_is_not_run(tmp_path):
    with zipfile.ZipFile(tmp_path / "evil.pt", "w") as archive:
        archive.writestr("evil/data.pkl", pickle.dumps({"w": Harm(tmp_path / "harm")}, protocol=2))
    with pytest.raises(WeightsError, match=r"it asks to call (posix|nt)\.mkdir") as caught:
        read_arrays(tmp_path / "evil.pt")
    assert "weights_only=True" in caught.value.hint
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([1, 2], "it holds a list"),
        ({"a": {1, 2}}, "it asks to call"),
        ({"a": object()}, "it has the instruction|asks to call"),
    ],
)
def test_what_is_no_dict_of_tensors_is_refused(tmp_path, content, why):
    with zipfile.ZipFile(tmp_path / "odd.pt", "w") as archive:
        archive.writestr("odd/data.pkl", pickle.dumps(content, protocol=2))
    with pytest.raises(WeightsError, match=why):
        read_arrays(tmp_path / "odd.pt")


def test_files_of_other_kinds_are_refused(tmp_path):
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(WeightsError, match="no zip archive"):
        read_arrays(tmp_path / "old.pt")
    with zipfile.ZipFile(tmp_path / "none.pt", "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(WeightsError, match=r"no data\.pkl"):
        read_arrays(tmp_path / "none.pt")
    with zipfile.ZipFile(tmp_path / "cut.pt", "w") as archive:
        archive.writestr("cut/data.pkl", pickle.dumps({"a": 1}, protocol=2)[:-3])
    with pytest.raises(WeightsError, match="cannot be read"):
        read_arrays(tmp_path / "cut.pt")


def test_a_tensor_beyond_its_numbers_is_refused(torch, tmp_path):
    torch.save({"w": torch.ones(4, dtype=torch.float32)}, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as old, zipfile.ZipFile(tmp_path / "short.pt", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name)[:8] if name.endswith("data/0") else old.read(name))
    with pytest.raises(WeightsError, match="reaches beyond its 2 numbers"):
        read_arrays(tmp_path / "short.pt")


def held_by_itself():
    tree = {}
    tree["a"] = tree
    return pickle.dumps(tree, 2)


def doubled(levels, make):
    tree = make(())
    for _ in range(levels):
        tree = make((tree, tree))
    return tree


def tensor(shape, strides):
    """The pickle of {"w": a tensor over storage 0}, as PyTorch would write it."""
    place = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQK\0"
    for numbers in (shape, strides):
        place += b"(" + b"".join(b"\x8a\x08" + n.to_bytes(8, "little") for n in numbers) + b"t"
    return b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" + place + b"tRs."


@pytest.mark.parametrize(
    ("content", "how"),
    [
        (held_by_itself(), zipfile.ZIP_STORED),
        (pickle.dumps(doubled(40, lambda parts: dict(enumerate(parts))), 2), zipfile.ZIP_STORED),
        (pickle.dumps(doubled(40, lambda parts: parts), 2)[:-1] + b"}q\xfeh\xfeK\1s.", zipfile.ZIP_STORED),
        (b"\x80\x02}" + pickle.dumps(doubled(40, tuple), 2)[2:-1] + b"K\1s.", zipfile.ZIP_STORED),
        (tensor((1 << 28,), (0,)), zipfile.ZIP_STORED),
        (tensor((16,), (1,)), zipfile.ZIP_DEFLATED),
    ],
    ids=["a dict in itself", "dicts in dicts", "tuples in tuples", "a key of tuples", "repeated numbers", "compressed"],
)
def test_a_small_file_takes_little_time_and_memory(tmp_path, content, how):
    with zipfile.ZipFile(tmp_path / "small.pt", "w", how) as archive:
        archive.writestr("a/data.pkl", content)
        archive.writestr("a/data/0", b"\0" * (64 if how == zipfile.ZIP_STORED else 1 << 24))
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError, match="is not opened"):
            read_arrays(tmp_path / "small.pt")
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()
