"""Text from files and token files: read in pieces without a difference, or refused with the reason."""

import json
import os
import sys
import tracemalloc
import types

import numpy as np
import pytest

from glassformer.core.documents import crc32
from glassformer.core.errors import DataError, TokenError
from glassformer.data.corpus import (
    is_token_file,
    open_tokens,
    pydoc_topics,
    read_text,
    sidecar,
    stdlib_source,
    stream_text,
    text_files,
    write_tokens,
)
from glassformer.data.examples import Windows
from glassformer.text import ByteTokenizer, CharTokenizer, WordTokenizer


@pytest.fixture
def text(rng):
    return "".join(rng.choice(list("abcdé \n日"), size=5000))


@pytest.fixture
def source(tmp_path, text):
    path = tmp_path / "corpus.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("chunk", [7, 1024, 1 << 20])
@pytest.mark.parametrize("tokenizer", [None, ByteTokenizer(specials=("<eos>",))])
def test_a_token_file_equals_the_text_in_memory(tmp_path, source, text, tokenizer, chunk):
    write_tokens(source, tmp_path / "corpus.bin", tokenizer, chunk=chunk)
    ids, found = open_tokens(tmp_path / "corpus.bin")
    expected = tokenizer or CharTokenizer(text)
    assert isinstance(ids, np.memmap)
    assert ids.dtype == np.uint16
    assert found == expected
    assert np.array_equal(ids, expected.encode(text))
    assert found.decode(ids) == text


def test_windows_over_a_token_file_equal_windows_in_memory(tmp_path, source, text):
    ids, tokenizer = write_tokens(source, tmp_path / "corpus.bin")
    mapped, memory = Windows(ids[100:4000], 16), Windows(tokenizer.encode(text)[100:4000], 16)
    pairs = [(mapped.batch(step, 5, 1), memory.batch(step, 5, 1)) for step in range(5)]
    pairs += zip(mapped.batches(50), memory.batches(50), strict=True)
    for a, b in pairs:
        assert np.array_equal(a.tokens, b.tokens)
        assert np.array_equal(a.targets, b.targets)
        assert a.tokens.dtype == a.targets.dtype == np.int64
        assert not isinstance(a.tokens, np.memmap)


def test_writing_takes_memory_for_a_piece_not_for_the_corpus(tmp_path):
    source = tmp_path / "large.txt"
    source.write_bytes(b"abcdefgh" * (1 << 18))  # 2 MiB
    tracemalloc.start()
    try:
        ids, _ = write_tokens(source, tmp_path / "large.bin", chunk=1 << 14)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ids) == 1 << 21
    assert peak < 1 << 20


def test_large_vocabularies_take_four_bytes(tmp_path):
    source = tmp_path / "numbers.txt"
    source.write_text("1 70000 2")
    ids, _ = write_tokens(source, tmp_path / "numbers.bin", WordTokenizer([str(i) for i in range(70001)]))
    assert ids.dtype == np.uint32
    assert ids.tolist() == [1, 70000, 2]


def test_what_cannot_be_written_leaves_nothing_and_only_a_described_file_is_a_token_file(tmp_path, source):
    with pytest.raises(TokenError, match="unknown"):
        write_tokens(source, tmp_path / "corpus.bin", CharTokenizer("ab"))
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]
    with pytest.raises(DataError, match="cannot be written"):
        write_tokens(source, tmp_path / "nowhere" / "corpus.bin")
    write_tokens(source, tmp_path / "corpus.bin")
    assert is_token_file(tmp_path / "corpus.bin")
    assert not is_token_file(source)
    assert not is_token_file(tmp_path)


def _flip(path):
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def _describe(path, **changes):
    about = {**json.loads(sidecar(path).read_text()), **changes}
    del about["checksum"]
    sidecar(path).write_text(json.dumps({**about, "checksum": crc32(about)}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_flip, "checksum"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "has 9,999 bytes"),
        (lambda path: path.unlink(), "there is no token file"),
        (lambda path: sidecar(path).unlink(), "no description"),
        (lambda path: sidecar(path).write_text("{"), "is damaged: Expecting"),
        (lambda path: sidecar(path).write_bytes(b"\xff"), "is damaged: 'utf-8' codec"),
        (lambda path: sidecar(path).write_text("[]"), "holds no JSON object"),
        (
            lambda path: sidecar(path).write_text(sidecar(path).read_text().replace("16", "32")),
            "its checksum does not match",
        ),
        (lambda path: sidecar(path).write_text("[" * 100_000), "nested too deeply"),
        (lambda path: _describe(path, format="other"), "not the description"),
        (lambda path: _describe(path, count=4999), "speaks of 4,999 tokens"),
        (lambda path: _describe(path, dtype="uint32"), "of 4 bytes"),
        (lambda path: _describe(path, tokenizer={"kind": "chars"}), "no usable tokenizer"),
        (lambda path: _describe(path, tokenizer=None), "no usable tokenizer"),
    ],
)
def test_a_damaged_token_file_is_refused(tmp_path, source, damage, message):
    path = tmp_path / "corpus.bin"
    write_tokens(source, path)
    damage(path)
    with pytest.raises(DataError, match=message):
        open_tokens(path)


def test_every_python_carries_prose_and_source():
    text = pydoc_topics()
    assert len(text) > 100_000
    assert "assert" in text
    text = stdlib_source()
    assert len(text) > 1_000_000
    assert "class OrderedDict" in text


@pytest.mark.parametrize("layout", [{}, {"topics": []}, {"topics": {}}, {"topics": {"a": 1}}])
def test_an_unknown_layout_of_the_prose_is_refused(monkeypatch, layout):
    module = types.ModuleType("pydoc_data.topics")
    vars(module).update(layout)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", module)
    monkeypatch.setattr("pydoc_data.topics", module, raising=False)
    with pytest.raises(DataError, match="layout"):
        pydoc_topics()


def test_missing_prose_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    with pytest.raises(DataError, match="carries no pydoc_data"):
        pydoc_topics()


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
def test_pieces_of_any_size_join_to_the_same_text(tmp_path, chunk):
    text = "grüße 日本語 🙂\r\nline\rlast\n"
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert "".join(stream_text(path, chunk=chunk)) == "grüße 日本語 🙂\nline\nlast\n"


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.md").write_text("first")
    (tmp_path / "sub" / "c.PY").write_text("third")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "picture.png").write_bytes(b"\xff\xfe")
    (tmp_path / ".hidden" / "d.txt").write_text("never")
    assert [path.name for path in text_files(tmp_path)] == ["a.md", "b.txt", "empty.txt", "c.PY"]
    assert read_text(tmp_path) == "first\nsecond\nthird"


@pytest.mark.parametrize("chunk", [1, 4, 1000])
@pytest.mark.parametrize(("data", "offset"), [(b"abc\xffdef", 3), ("é日".encode() + b"\x80", 5), (b"ok \xc3", 3)])
def test_another_encoding_is_refused_with_its_first_wrong_byte(tmp_path, data, offset, chunk):
    path = tmp_path / "latin.txt"
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"latin\.txt, line 1, offset {offset}: not UTF-8: byte 0x{data[offset]:02x}"):
        list(stream_text(path, chunk=chunk))


def test_a_wrong_byte_behind_the_first_piece_has_its_place_in_the_file(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"x" * 3000 + b"\xe9" + b"y")
    with pytest.raises(DataError, match="offset 3,000"):
        list(stream_text(path, chunk=1024))


def test_missing_empty_and_textless_paths_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no file or folder"):
        read_text(tmp_path / "nowhere.txt")
    with pytest.raises(DataError, match="holds no file that ends in"):
        read_text(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"empty\.txt holds no text"):
        read_text(tmp_path / "empty.txt")
    with pytest.raises(DataError, match="holds no text"):
        read_text(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="pipes in the manner of POSIX")
def test_an_empty_path_pipes_and_devices_are_refused():
    with pytest.raises(DataError, match="path of the data is empty"):
        text_files("")
    reader, writer = os.pipe()
    for path in (os.devnull, f"/dev/fd/{reader}"):
        with pytest.raises(DataError, match="pipe or a device"):
            text_files(path)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("path", [0, True, None, ["notes.txt"]])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(DataError, match="which is no path"):
        text_files(path)
