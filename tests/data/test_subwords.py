"""Texts over pieces of words: the text task with BPE, and token files with any tokenizer."""

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.data import build_task
from glassformer.data.corpus import cut_between_words, open_tokens, write_tokens
from glassformer.text import BPETokenizer, PublishedTokenizer
from tokenizer_files import PUBLISHED, TEXT


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_the_text_task_learns_its_pieces_from_nothing_that_is_held_out(source, tmp_path):
    task = build_task("text", data=str(source), tokenizer="bpe", tokenizer_size=300, context=16)
    assert task.tokenizer.size == task.settings["vocab"] == 300
    assert task.encode_input("the sea").tokens.shape[1] < 7
    ids = np.concatenate([task.train.tokens, task.held_out.tokens])
    assert task.tokenizer.decode(ids) == TEXT
    assert build_task("text", tokenizer="bpe").tokenizer.size == 512

    cut = int(len(TEXT) * 0.9)
    tokenizers = []
    for ending in ("zyx" * 1000, "qqq " * 750):
        path = tmp_path / "text.txt"
        path.write_text(TEXT[:cut] + ending[: len(TEXT) - cut], encoding="utf-8")
        tokenizers.append(build_task("text", data=str(path), tokenizer="bpe", tokenizer_size=300).tokenizer)
    assert tokenizers[0] == tokenizers[1] == BPETokenizer.train(TEXT[:cut], size=300)


def test_settings_that_make_no_sense_are_refused(source):
    with pytest.raises(ConfigError, match="learns nothing"):
        build_task("text", data=str(source), tokenizer_size=300)
    with pytest.raises(ConfigError, match="at least 256"):
        build_task("text", data=str(source), tokenizer="bpe", tokenizer_size=100)
    with pytest.raises(ConfigError, match="'bep'") as caught:
        build_task("text", data=str(source), tokenizer="bep")
    assert "did you mean 'bpe'" in caught.value.hint


@pytest.mark.parametrize("chunk", [7, 100, 1 << 20])
@pytest.mark.parametrize("name", ["trained here", *PUBLISHED])
def test_a_token_file_holds_what_the_whole_text_encodes_to(tmp_path, source, name, chunk):
    tokenizer = BPETokenizer.train(TEXT, size=300)
    if name != "trained here":
        tokenizer = PublishedTokenizer(PUBLISHED[name][0]().to_str())
    file = write_tokens(source, tmp_path / "corpus.bin", tokenizer, chunk=max(chunk, 50))
    if name not in ("sentencepiece BPE", "Unigram"):  # these put a space before whatever they are given
        assert file.ids.tolist() == tokenizer.encode(TEXT).tolist()
    again = open_tokens(tmp_path / "corpus.bin")
    assert again.tokenizer == tokenizer
    task = build_task("text", data=str(tmp_path / "corpus.bin"), context=8)
    assert task.tokenizer == tokenizer


def test_pieces_end_where_words_do():
    pieces = ["one tw", "o  thr", "ee", "\n\nfour", "xxxxxxxxxxxx", "x y "]
    found = list(cut_between_words(pieces, most=12))
    assert "".join(found) == "".join(pieces)
    assert found == ["one", " two", "  three", "\n\nfourxxxxxxxxxxxx", "x y", " "]
    assert list(cut_between_words(["a" * 30, "b"], most=12)) == ["a" * 30, "b"]
    assert list(cut_between_words([], most=12)) == []
