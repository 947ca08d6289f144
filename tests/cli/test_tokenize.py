"""`glassformer tokenize`."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from glassformer.text import BPETokenizer, PublishedTokenizer
from runs import command, tiny_session
from tokenizer_files import word_piece


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bpe")
    BPETokenizer.train("hello world, hello " * 20, size=270, specials=("<bos>", "<eos>")).save(path)
    return path


def pieces(*args):
    result = command("tokenize", *args, "--json")
    assert result.code == 0, result.err
    return [(piece["text"], piece["id"], piece["special"]) for piece in json.loads(result.out)["pieces"]]


def test_a_file_or_its_folder_names_the_tokenizer_and_people_see_its_pieces(folder, tmp_path):
    found = pieces(folder, "hello hello")
    assert [text for text, _, _ in found] == ["hello", " hello"]
    assert found == pieces(folder / "tokenizer.json", "hello hello")
    report = json.loads(command("tokenize", folder, "hello", "--json").out)
    assert report["tokenizer"] == "tokenizer.json"
    assert (report["count"], report["size"]) == (1, PublishedTokenizer.load(folder).size)

    result = command("tokenize", folder, "hello [bold]\n€")
    assert result.code == 0
    for part in ("␣", "\\n", "\\xe2", "["):
        assert part in result.out
    assert "14 characters" in result.err

    assert not any(special for _, _, special in pieces(folder, "<eos>"))
    assert pieces(folder, "<eos>", "--parse-special") == [("<eos>", 1, True)]
    assert "<eos>  (special)" in command("tokenize", folder, "<eos>", "--parse-special").out
    word_piece().save(str(tmp_path / "tokenizer.json"))
    assert [text for text, _, _ in pieces(tmp_path, "The sea", "--specials")] == ["[CLS]", "the", "sea", "[SEP]"]
    assert "[CLS]  (special)" in command("tokenize", tmp_path, "The sea", "--specials").out


def test_stdin_is_read_without_its_last_line_end(folder, monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO("hello\né\n".encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert "".join(text for text, _, _ in pieces(folder, "-")) == "hello\n\\xc3\\xa9"


@pytest.mark.parametrize(
    ("settings", "text", "want"),
    [
        ({}, "fox", ["f", "o", "x"]),
        ({"tokenizer": "bytes"}, "é", ["\\xc3", "\\xa9"]),
        ({"tokenizer": "bpe", "tokenizer_size": 300}, " lazy", [" lazy"]),
    ],
)
def test_a_run_folder_brings_its_tokenizer(tmp_path, settings, text, want):
    run = tiny_session("text", tmp_path / "run", **settings).run
    assert [piece for piece, _, _ in pieces(run.folder, text)] == want


def test_what_cannot_be_done_is_said(tmp_path, folder):
    run = tiny_session("text", tmp_path / "run").run
    result = command("tokenize", run.folder, "Ω")
    assert result.code == 1
    assert "U+03A9" in result.err
    assert command("tokenize", run.folder, "fox", "--parse-special").code == 2
    for path, message in ((tmp_path / "nothing", "there is no"), (tmp_path, "not a run folder")):
        result = command("tokenize", path, "x")
        assert result.code == 1
        assert message in result.err
    assert command("tokenize", folder, "\ud800").code == 1
