"""Byte-pair encoding trained here: lossless, repeatable, quick on hostile input, readable by others."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glassformer.core.errors import ConfigError, TokenError
from glassformer.data.corpus import pydoc_topics
from glassformer.text import BPETokenizer, ByteTokenizer, CharTokenizer, PublishedTokenizer, tokenizer_from_dict
from oracles import require
from tokenizer_files import TEXT

BPE = BPETokenizer.train(TEXT, size=400, specials=("<bos>", "<eos>"))
EMOJI = [
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈",
    "🇩🇪🇯🇵",
    "👍🏽",
    "1️⃣",
    "e\u0301\u0323",
    "\u200d\ufe0f",
    "\U000e0067\U000e007f",
    "\U0010ffff",
    "\0\x7f\x80",
]
MEGABYTE = 1 << 20


@given(st.text(alphabet=st.characters(), max_size=80))
@example("".join(EMOJI))
@example(" \t\n\r\n  x  y\u00a0\u2003z \ufeff")
@example("it's we'LL 'S ''''re")
@example("<bos><eos> <|endoftext|> \ufffd\ufdd0")
@example("a" * 1000 + "1" * 1000 + "!" * 1000 + " " * 1000)
def test_every_text_comes_back_unchanged(text):
    ids = BPE.encode(text)
    assert ids.dtype == np.int64
    assert BPE.decode(ids) == text
    assert ByteTokenizer().decode(ByteTokenizer().encode(text)) == text


@given(st.lists(st.integers(0, 255), max_size=30))
def test_lone_bytes_decode_like_python_decodes_them(ids):
    letters = {BPE.piece(i): i for i in range(2, 258)}
    of_byte = [letters[bytes([byte]).decode("utf-8", "backslashreplace")] for byte in range(256)]
    assert BPE.decode([of_byte[byte] for byte in ids]) == bytes(ids).decode("utf-8", "replace")


@pytest.mark.parametrize(("text", "name", "position"), [("a\ud800", "D800", 1), ("\udcff", "DCFF", 0)])
def test_half_a_pair_of_surrogates_is_refused(text, name, position):
    with pytest.raises(TokenError, match=rf"U\+{name} at position {position}"):
        BPE.encode(text)
    with pytest.raises(TokenError, match=name):
        BPETokenizer.train([text])


def test_special_tokens_come_first_and_text_never_becomes_one():
    assert BPE.specials == {"<bos>": 0, "<eos>": 1}
    assert BPE.roles == {"bos": "<bos>", "eos": "<eos>"}
    assert (BPE.role_id("eos"), BPE.role_id("pad")) == (1, None)
    assert not set(BPE.encode("<bos>a<eos>").tolist()) & {0, 1}
    assert BPE.decode(BPE.encode("<bos>a<eos>")) == "<bos>a<eos>"
    parsed = BPE.encode("<bos>a<eos>", parse_special=True).tolist()
    assert (parsed[0], parsed[-1], len(parsed)) == (0, 1, 3)
    assert BPE.decode(parsed, skip_specials=True) == "a"
    assert not set(BPE.encode("<bos>").tolist()) & {0, 1}, "parsing once does not change later calls"


def test_frequent_words_become_single_tokens_each_time():
    assert [piece for piece, _ in BPE.pieces(" the sea")] == [" the", " sea"]
    assert [piece for piece, _ in BPE.pieces("€")] == ["\\xe2", "\\x82", "\\xac"]
    assert BPETokenizer.train(TEXT, size=300).size == 300
    assert BPETokenizer.train(TEXT, size=400, specials=("<bos>", "<eos>")) == BPE
    assert BPETokenizer.train(iter(TEXT.splitlines(keepends=True)), size=300).size == 300
    assert BPETokenizer.train("", size=256).size == 256
    assert BPETokenizer.train("abab", size=1000).size == 257, "no pair is left that occurs twice"


@pytest.mark.parametrize("size", [257, 0, -1, 300.0, True, None])
def test_a_vocabulary_holds_at_least_the_bytes(size):
    with pytest.raises(ConfigError, match="at least 258"):
        BPETokenizer.train("text", size=size, specials=("<bos>", "<eos>"))


def test_it_survives_json_pickle_and_files_that_transformers_reads(tmp_path):
    assert tokenizer_from_dict(json.loads(json.dumps(BPE.to_dict()))) == BPE
    assert pickle.loads(pickle.dumps(BPE)) == BPE
    BPE.save(tmp_path)
    again = PublishedTokenizer.load(tmp_path / "tokenizer.json")
    assert again.encode(TEXT).tolist() == BPE.encode(TEXT).tolist()
    assert (again.roles, again.specials) == (BPE.roles, BPE.specials)
    assert again != BPE, "the kind is another"

    BPE.save(tmp_path)
    theirs = require("transformers").AutoTokenizer.from_pretrained(tmp_path)
    text = TEXT[:300] + "".join(EMOJI)
    assert theirs.encode(text) == BPE.encode(text).tolist()
    assert (theirs.bos_token, theirs.eos_token) == ("<bos>", "<eos>")


@pytest.mark.parametrize("unit", ["a", " ", "\n", "ab", "1", "!?", "é", "😀"])
@pytest.mark.parametrize("kind", ["chars", "bytes", "bpe"])
def test_a_megabyte_of_one_word_is_tokenized_and_read_back(kind, unit):
    tokenizers = {
        "chars": CharTokenizer,
        "bytes": lambda unit: ByteTokenizer(),
        "bpe": lambda unit: BPETokenizer.train([pydoc_topics()[:100_000], (unit * 100 + " ") * 20], size=512),
    }
    tokenizer = tokenizers[kind](unit)
    text = unit * (MEGABYTE // len(unit.encode()))
    assert tokenizer.decode(tokenizer.encode(text)) == text
