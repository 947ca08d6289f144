"""`glassformer tokenize` shows pieces, and `tokens` writes a file that training maps into memory."""

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


pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")

TEXT = "the cat sat on the mat. " * 60


@pytest.mark.parametrize("kind", ["chars", "bytes", "bpe"])
def test_a_token_file_can_be_trained_on(tmp_path, kind):
    source, out = tmp_path / "cats.txt", tmp_path / "cats.bin"
    source.write_text(TEXT, encoding="utf-8")
    done = command("tokens", str(source), "--out", str(out), "--tokenizer", kind, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["tokens"] > 0
    assert out.is_file()
    run = ["train", "text", "--data", str(out), "--steps", "2", "--out", str(tmp_path / "run"), "--json"]
    small = ["--set", "width=8", "--set", "heads=2", "--set", "layers=1", "--set", "context=8"]
    trained = command(*run, *small)
    assert trained.code == 0, trained.err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"]["vocab"] == told["vocab"]


def test_nothing_is_overwritten_and_bad_input_is_named(tmp_path):
    source, out = tmp_path / "cats.txt", tmp_path / "cats.bin"
    source.write_text(TEXT, encoding="utf-8")
    out.write_bytes(b"mine")
    done = command("tokens", str(source), "--out", str(out))
    assert done.code == 2
    assert "exists already" in done.err
    assert out.read_bytes() == b"mine"
    assert command("tokens", str(source), "--out", str(tmp_path / "o"), "--tokenizer", "word").code == 2
    missing = command("tokens", str(tmp_path / "no.txt"), "--out", str(tmp_path / "o"))
    assert missing.code == 1
    assert "no.txt" in missing.err
