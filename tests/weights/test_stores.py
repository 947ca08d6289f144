"""One registry of readers of models; base models that folders of strangers name neither hang, nor turn in rings, nor
are downloaded.
"""

import json
import os
import sys

import pytest

import glassformer as gf
from glassformer.api.loading import load_config, load_tokenizer, locate, read_model
from glassformer.core import reporting
from glassformer.core.errors import CheckpointError, WeightsError
from glassformer.runs.folder import checksum
from glassformer.runs.run import RUNS
from glassformer.runs.start import new_session
from glassformer.weights.export import export_folder
from glassformer.weights.gguf import export_gguf
from glassformer.weights.stores import store_at
from runs import finish, tiny_session, write_data

pytestmark = pytest.mark.usefixtures("numpy_engine")


class Hub:
    """A stand-in for huggingface_hub, which has one model, in the cache or not."""

    def __init__(self, folder, *, is_cached):
        self.folder, self.is_cached, self.asked = folder, is_cached, []

    def snapshot_download(self, name, *, local_files_only=False, **settings):
        if local_files_only and not self.is_cached:
            raise OSError("not in the cache")
        self.asked += [] if local_files_only else [name]
        return str(self.folder)


def adapter(folder, base):
    """Write a folder of an adapter that names its base."""
    folder.mkdir()
    content = {"peft_type": "LORA", "lora_alpha": 8, "r": 2, "base_model_name_or_path": str(base)}
    (folder / "adapter_config.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def tuned(tmp_path):
    """A run with adapters beside a run."""
    finish(tiny_session("lines", tmp_path / "base", steps=1))
    of = {"source": str(tmp_path / "base"), "data": write_data("lines", tmp_path / "data"), "adapters": True}
    finish(new_session("lines", tmp_path / "tuned", settings={"steps": 1, "lora_rank": 2}, **of))
    return tmp_path / "tuned"


def with_base(run, source):
    """Let a run name another base, with a checksum that is right."""
    path = run / "config.json"
    content = json.loads(path.read_text())
    content["base"]["source"] = str(source)
    content.pop("sha256")
    path.write_text(json.dumps({**content, "sha256": checksum(content)}))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.timeout(30)
def test_a_base_that_is_a_pipe_does_not_hang(tuned, tmp_path):
    os.mkfifo(tmp_path / "pipe.bin")
    with_base(tuned, tmp_path / "pipe.bin")
    for read in (lambda: gf.load(tuned), lambda: gf.load(adapter(tmp_path / "adapter", tmp_path / "pipe.bin"))):
        with pytest.raises(WeightsError, match=r"pipe\.bin is a pipe or a device"):
            read()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["glassformer.json", "tokenizers.json", "model.safetensors"])
def test_a_file_of_a_folder_that_is_a_pipe_does_not_hang(name, tmp_path):
    finish(tiny_session("lines", tmp_path / "run", steps=1))
    folder = gf.save(gf.load(tmp_path / "run"), tmp_path / "saved") if name != "tokenizers.json" else tmp_path / "run"
    if name == "tokenizers.json":
        content = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**content, "tokenizer": "tokenizers.json"}))
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(gf.GlassformerError):
        read_model(folder)


def test_a_base_that_leads_back_is_named(tuned, tmp_path):
    with_base(tuned, tuned)
    with pytest.raises(CheckpointError, match=r"base model of .*tuned leads back to(.|\n)*hint: name another base"):
        gf.load(tuned)
    one = adapter(tmp_path / "one", tmp_path / "two")
    adapter(tmp_path / "two", one)
    with pytest.raises(CheckpointError, match=r"base model of .*one leads back"):
        load_config(one)
    with_base(tuned, adapter(tmp_path / "three", tuned))
    with pytest.raises(CheckpointError, match=r"base model of .*tuned leads back"):
        read_model(tmp_path / "three")


@pytest.mark.parametrize("kind", ["run", "adapter"])
def test_a_base_of_the_hub_is_asked_about_before_the_network_is(kind, tuned, tmp_path, monkeypatch):
    if kind == "run":
        with_base(tuned, "hf:org/name")
    folder = tuned if kind == "run" else adapter(tmp_path / "adapter", "org/name")
    hub = Hub(tmp_path / "base", is_cached=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(WeightsError, match=r"made from hf:org/name, which is not here(.|\n)*tokenize hf:org/name"):
        gf.load(folder)
    assert hub.asked == []
    questions = []
    monkeypatch.setattr(reporting, "ask", lambda question: questions.append(question) or True)
    read = (lambda: read_model(folder)) if kind == "run" else (lambda: locate(folder))
    read()
    assert (hub.asked, len(questions)) == (["org/name"], 1)
    hub.is_cached = True
    monkeypatch.setattr(reporting, "ask", questions.append)
    read()
    assert (hub.asked, len(questions)) == (["org/name"], 1)
    with pytest.raises(gf.GlassformerError):
        gf.load("hf:org/name", adapter=adapter(tmp_path / "typed", "elsewhere/name"))
    assert hub.asked[1:]  # the user named it


def test_what_a_store_reads_apart_is_what_it_reads_with_the_model(tmp_path):
    finish(tiny_session("text", tmp_path / "run", steps=1))
    model = gf.load(tmp_path / "run")
    kinds = {
        "run": tmp_path / "run",
        "saved": gf.save(model, tmp_path / "saved"),
        "folder": export_folder(model, tmp_path / "folder")[0].parent,
        "gguf": export_gguf(model, tmp_path / "model.gguf"),
    }
    chosen = {kind: store_at(path, [RUNS]) for kind, path in kinds.items()}
    assert len(set(chosen.values())) == len(kinds)
    for kind, store in chosen.items():
        loaded = store.model(kinds[kind], ())
        assert store.config(kinds[kind]) == loaded.config == load_config(kinds[kind]), kind
        assert store.tokenizer(kinds[kind]) == loaded.tokenizer == load_tokenizer(kinds[kind]), kind


def test_parts_of_a_model_with_an_adapter_are_those_of_its_base(tmp_path):
    finish(tiny_session("lines", tmp_path / "base", steps=1))
    folder = adapter(tmp_path / "adapter", tmp_path / "base")
    for name in (folder, f"{tmp_path / 'base'}+{folder}"):
        assert load_config(name) == load_config(tmp_path / "base")
        assert load_tokenizer(name) == load_tokenizer(tmp_path / "base")
        assert gf.params(name).parameters == gf.params(tmp_path / "base").parameters
