"""`glassformer tokens` writes a file that training maps into memory."""

import json

import pytest

from runs import command

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
