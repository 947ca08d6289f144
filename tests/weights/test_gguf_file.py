"""The header of GGUF files: nothing a file says is believed, and whatever is wrong with it is refused at once."""

import struct

import gguf
import numpy as np
import pytest

import gguf_files as files
from glassformer.core.errors import WeightsError
from glassformer.weights import gguf_file
from glassformer.weights.gguf import open_gguf
from glassformer.weights.gguf_file import parse_header, read_header


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def setting(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def tensor(name, dims, kind=0, offset=0):
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def content(settings=(), tensors=(), data=0, *, version=3, magic=b"GGUF", counts=None):
    """The bytes of a file, as wrong as one likes."""
    counted = counts or (len(tensors), len(settings))
    header = magic + struct.pack("<IQQ", version, *counted) + b"".join(settings) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + bytes(data)


def test_the_header_says_what_the_library_says(tmp_path, rng):
    settings = files.llama_settings() | files.byte_tokenizer()
    path = files.write(tmp_path / "x.gguf", "llama", settings, files.llama_tensors(rng), {"token_embd.weight": "F16"})
    header, theirs = read_header(path), gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert header.settings.keys() == fields.keys()
    for key, value in header.settings.items():
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == fields[key], key
    assert list(header.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        ours = header.tensors[tensor.name]
        assert (ours.start, ours.stop - ours.start, ours.dtype) == (
            tensor.data_offset,
            tensor.n_bytes,
            tensor.tensor_type.name,
        )
        assert ours.shape == tuple(tensor.shape.tolist())[::-1]


@pytest.mark.parametrize("version", [2, 3])
def test_every_type_of_value_is_read(version):
    values = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
    numbers = [setting(f"n{kind}", kind, struct.pack("<" + code, 7)) for kind, code in values.items()]
    others = [
        setting("text", 8, string("größer")),
        setting("yes", 7, b"\1"),
        setting("no", 7, b"\0"),
        setting("array", 9, struct.pack("<IQ3f", 6, 3, 1.5, 2.5, -1)),
        setting("words", 9, struct.pack("<IQ", 8, 3) + string("a") + string("") + string("日")),
        setting("empty", 9, struct.pack("<IQ", 8, 0)),
    ]
    found = parse_header(content([*numbers, *others], version=version)).settings
    assert all(found[f"n{kind}"] == 7 for kind in values)
    assert type(found["n4"]) is int
    assert type(found["n6"]) is float
    assert (found["text"], found["yes"], found["no"]) == ("größer", True, False)
    assert found["array"].tolist() == [1.5, 2.5, -1.0]
    assert found["words"] == ["a", "", "日"]
    assert found["empty"] == []


def test_another_alignment_is_followed():
    settings = [setting("general.alignment", 4, struct.pack("<I", 64))]
    header = content(settings, [tensor("x", (4,)), tensor("y", (2, 3), 1, 64)], 64 + 64 + 12)
    found = parse_header(header).tensors
    assert found["x"].start % 64 == 0
    assert found["y"].start == found["x"].start + 64
    assert found["y"].shape == (3, 2)


def test_the_library_of_the_format_accepts_what_is_refused_here(tmp_path):
    """Why the header is parsed here: the library checks neither where tensors lie nor how long names are."""
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content((), [tensor("x", (16,)), tensor("y", (4,), 0, 32)], 64))
    assert [tensor.name for tensor in gguf.GGUFReader(path).tensors] == ["x", "y"]
    with pytest.raises(WeightsError, match="'x' and 'y' overlap"):
        read_header(path)
    path.write_bytes(content([setting("a", 8, struct.pack("<Q", 1 << 20))], data=99))
    assert len(gguf.GGUFReader(path).fields["a"].contents()) < 200
    with pytest.raises(WeightsError, match="ends too soon"):
        read_header(path)


HUGE = (1 << 64) - 1
DAMAGED = {
    "another magic": (content(magic=b"GGML"), "no GGUF file"),
    "nothing": (b"", "ends too soon"),
    "a cut header": (content()[:10], "ends too soon"),
    "version 1": (content(version=1), "has version 1"),
    "big-endian": (content(version=3 << 24), "big-endian"),
    "too many tensors": (content(counts=(HUGE, 0)), "claims 18,446,744,073,709,551,615 tensors"),
    "too many settings": (content(counts=(0, 1 << 20)), "claims 1,048,576 settings"),
    "more settings than fit": (content(counts=(0, 5000)), "ends too soon"),
    "a key without end": (content([struct.pack("<Q", HUGE)], counts=(0, 1), data=99), "bytes long"),
    "a text without end": (content([setting("a", 8, struct.pack("<Q", 1 << 40))], data=99), "ends too soon"),
    "a text past the end": (content([setting("a", 8, struct.pack("<Q", 1 << 20))], data=99), "ends too soon"),
    "no UTF-8": (content([setting("a", 8, string(b"\xff\xfe"))]), "not UTF-8"),
    "an unknown type": (content([setting("a", 13, bytes(8))]), "unknown type 13"),
    "an array of an unknown type": (content([setting("a", 9, struct.pack("<IQ", 99, 1))]), "unknown type 99"),
    "a third truth value": (content([setting("a", 7, b"\2")]), "neither 0 nor 1"),
    "the same key twice": (content([setting("a", 7, b"\1")] * 2), "'a' is there twice"),
    "an array without end": (content([setting("a", 9, struct.pack("<IQ", 0, HUGE))], data=99), "claims"),
    "an array past the end": (content([setting("a", 9, struct.pack("<IQ", 12, 1000))], data=99), "ends too soon"),
    "strings without end": (content([setting("a", 9, struct.pack("<IQ", 8, 1 << 40))], data=99), "claims"),
    "a string of an array past the end": (
        content([setting("a", 9, struct.pack("<IQQ", 8, 2, 1 << 40))], data=99),
        "ends too soon",
    ),
    "arrays of arrays": (content([setting("a", 9, struct.pack("<IQ", 9, 1) * 50)]), "unknown type 9"),
    "alignment 0": (content([setting("general.alignment", 4, bytes(4))]), "alignment is 0"),
    "alignment 24": (content([setting("general.alignment", 4, struct.pack("<I", 24))]), "alignment is 24"),
    "a vast alignment": (content([setting("general.alignment", 4, struct.pack("<I", 1 << 30))]), "alignment is"),
    "alignment in words": (content([setting("general.alignment", 8, string("32"))]), "alignment is '32'"),
    "no dimensions": (content((), [tensor("x", ())], 64), "'x' has 0 dimensions"),
    "nine dimensions": (content((), [tensor("x", (1,) * 9)], 64), "'x' has 9 dimensions"),
    "a size of 0": (content((), [tensor("x", (4, 0))], 64), r"'x' has shape \(0, 4\)"),
    "part of a block": (content((), [tensor("x", (33,), 8)], 64), "blocks of 32"),
    "an unsupported type": (content((), [tensor("x", (256,), 16)], 64), "'x' is stored as IQ2_XXS"),
    "an unheard-of type": (content((), [tensor("x", (256,), 999)], 64), "'x' is stored as 999"),
    "the same tensor twice": (content((), [tensor("x", (4,)), tensor("x", (4,), 0, 32)], 64), "'x' is there twice"),
    "data past the end": (content((), [tensor("x", (17,))], 64), "'x' ends at byte"),
    "a vast tensor": (content((), [tensor("x", (1 << 62, 1 << 62))], 64), "'x' ends at byte"),
    "a vast offset": (content((), [tensor("x", (4,), 0, 1 << 63)], 64), "'x' ends at byte"),
    "an odd offset": (content((), [tensor("x", (4,), 0, 8)], 64), "no multiple of 32"),
    "overlapping data": (content((), [tensor("x", (16,)), tensor("y", (4,), 0, 32)], 64), "'x' and 'y' overlap"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_refused(case, tmp_path):
    data, message = DAMAGED[case]
    path = tmp_path / "damaged.gguf"
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=message):
        open_gguf(path)


def test_a_header_larger_than_any_real_one_is_refused(monkeypatch):
    monkeypatch.setattr(gguf_file, "MOST_HEADER", 1000)
    words = setting("a", 9, struct.pack("<IQ", 8, 300) + string("abc") * 300)
    text = setting("a", 8, string("x" * 2000))
    numbers = setting("a", 9, struct.pack("<IQ", 0, 2000) + bytes(2000))
    for one in (words, text, numbers):
        with pytest.raises(WeightsError, match="larger than 1,000 bytes"):
            parse_header(content([one]))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(WeightsError, match=r"there.gguf cannot be read: No such file"):
        open_gguf(tmp_path / "there.gguf")
    with pytest.raises(WeightsError, match="cannot be read"):
        open_gguf(tmp_path)
