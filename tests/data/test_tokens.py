"""Token files: equal to the text in memory, written in bounded memory, and refused when damaged."""

import json
import tracemalloc

import numpy as np
import pytest

from glassformer.core.documents import crc32
from glassformer.core.errors import DataError, TokenError
from glassformer.data.corpus import is_token_file, open_tokens, sidecar, write_tokens
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
