"""Stores of models: every architecture comes back, and folders of strangers neither hang nor turn in rings."""

import json
import os
import sys

import numpy as np
import pytest

import glassformer as gf
from fine_tuning import published
from glassformer.api.loading import load_config, load_tokenizer, locate, read_model
from glassformer.core import reporting
from glassformer.core.errors import CheckpointError, ConfigError, WeightsError
from glassformer.runs.folder import checksum
from glassformer.runs.run import RUNS
from glassformer.runs.start import new_session
from glassformer.weights.export import export_folder
from glassformer.weights.gguf import export_gguf
from glassformer.weights.stores import store_at
from runs import TINY, assert_same_bits, command, finish, tiny_session, write_data

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


QUICK = {"steps": 2, "show": False}


@pytest.mark.parametrize("task", ["majority", "counting", "dates"])
def test_what_was_trained_comes_back(task, tmp_path):
    model = gf.train(task, **TINY[task], **QUICK)
    again = gf.load(gf.save(model, tmp_path / "model"))
    assert_same_bits(gf.tree.tree_map(np.ascontiguousarray, again.params), model.params)
    for name in ("config", "start_id", "end_ids", "labels", "origin", "family", "chat_template"):
        assert getattr(again, name) == getattr(model, name), name
    assert again.history.metrics == model.history.metrics
    assert again.evaluate() == pytest.approx(model.evaluate())
    prompt = model.task.prompts[0]
    assert again.ask(prompt) == model.ask(prompt)


@pytest.mark.parametrize("kind", ["gpt2", "t5", "bert"])
def test_published_models_come_back(kind, tmp_path):
    model = gf.load(published(kind, tmp_path / kind))
    again = gf.load(gf.save(model, tmp_path / "model"))
    assert_same_bits(again.params, model.params)
    assert again.tokenizer.to_dict() == model.tokenizer.to_dict()
    assert (again.start_id, again.end_ids, again.family) == (model.start_id, model.end_ids, model.family)
    assert again.extras.keys() == model.extras.keys()
    if kind == "bert":
        np.testing.assert_array_equal(again.embed(["a cat", "dog"]), model.embed(["a cat", "dog"]))
    else:
        assert again.generate("a", max_new_tokens=3, temperature=0) == model.generate(
            "a", max_new_tokens=3, temperature=0
        )


def test_a_run_folder_comes_back_with_its_history_for_commands_and_changes(tmp_path):
    list(tiny_session("majority", tmp_path / "run", steps=4, eval_every=2).steps())
    model = gf.load(tmp_path / "run")
    assert len(model.history) == 4
    assert model.labels == ("0", "1", "2")
    assert model.evaluate().examples == 24
    assert model.plot()
    assert gf.load(gf.save(model, tmp_path / "copy")).evaluate() == model.evaluate()

    path = write_data("text", tmp_path)
    model = gf.train(path, **TINY["text"], **QUICK)
    folder = gf.save(model, tmp_path / "model")
    done = command("generate", folder, "The ", "--max-new-tokens", 5, "--seed", 3)
    assert done.code == 0, done.err
    assert model.generate("The ", max_new_tokens=5, seed=3).text in done.out
    assert load_config(folder) == model.config
    assert load_tokenizer(folder).to_dict() == model.tokenizer.to_dict()
    tuned = command("train", "text", "--data", path, "--from", folder, "--steps", 1, "--out", tmp_path / "tuned")
    assert tuned.code == 0, tuned.err

    model = gf.load(published("bert", tmp_path / "bert"))
    for _, array in gf.tree.named_leaves(model.params):
        array *= 1.0
    gf.save(model, tmp_path / "model")
    again = gf.load(tmp_path / "model")
    again.params["blocks"][0]["attention"]["query"]["w"][:] = 0
    gf.save(again, tmp_path / "model")  # in the place of what it was read from
    assert not gf.load(tmp_path / "model").params["blocks"][0]["attention"]["query"]["w"].any()


def test_what_is_in_the_way_is_refused(tmp_path):
    model = gf.train("counting", **QUICK)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no saved model"):
        gf.save(model, tmp_path)
    with pytest.raises(ConfigError, match="holds no saved model"):
        gf.save(model, tmp_path / "notes.txt")
    with pytest.raises(ConfigError, match="this is a Decoder, not a trained model"):
        gf.save(model.model, tmp_path / "new")
    with pytest.raises(ConfigError, match="the folder for a model is None"):
        gf.save(model, None)
    with pytest.raises(ConfigError, match="kept in blocks"):
        gf.save(model.kept_as("int8"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_damaged_folders_are_refused(tmp_path):
    folder = gf.save(gf.train("counting", **QUICK), tmp_path / "model")
    description = folder / "glassformer.json"
    content = json.loads(description.read_text(encoding="utf-8"))
    del content["sha256"]  # as if it had been edited on purpose

    def refused(words, **changes):
        left = {name: value for name, value in {**content, **changes}.items() if value != "gone"}
        description.write_text(json.dumps(left), encoding="utf-8")
        with pytest.raises(gf.GlassformerError, match=words):
            gf.load(folder)

    refused("has the format 2", format=2)
    refused("is damaged: it has no 'end_ids'", end_ids="gone")
    refused(r"is damaged: end_ids is \['a'\]", end_ids=["a"])
    refused("is damaged: of its start and end tokens", end_ids=[2**64])
    refused("is damaged: labels is 3", labels=3)
    refused("is damaged: task is", task=[1])
    refused("is damaged: task is", task={"name": "text", "options": {"data": 5}})
    refused("is damaged: a field is of another kind", pooling=[1])
    refused("is damaged: it describes no model", model="decoder")
    refused("is damaged", tokenizer={"kind": "words"})
    refused("expects", model={**content["model"], "width": 64})
    refused("activation", model={**content["model"], "activation": "of_my_own"})
    description.write_text("{", encoding="utf-8")
    with pytest.raises(WeightsError, match="is damaged"):
        read_model(folder)


@pytest.mark.parametrize("name", ["glassformer.json", "model.safetensors", "metrics.jsonl"])
def test_one_changed_digit_of_a_saved_model_is_noticed(name, tmp_path):
    folder = gf.save(gf.train("counting", **QUICK), tmp_path / "model")
    content = (folder / name).read_bytes()
    place = next(i for i in reversed(range(len(content))) if content[i : i + 1].isdigit())
    (folder / name).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(WeightsError, match=f"{name} is damaged.*checksum") as caught:
        gf.load(folder)
    assert "to use an edited one, remove its line" in caught.value.hint
    (folder / name).write_bytes(content)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(WeightsError, match=r"metrics\.jsonl cannot be read"):
        gf.load(folder)


def test_weights_of_encoders_are_kept_as_they_are(tmp_path):
    folder = published("bert", tmp_path / "bert")
    assert gf.load(folder, weights="float32").embed("dog").shape == (16,)
    with pytest.raises(ConfigError, match="not kept as int8"):
        gf.load(folder, weights="int8")
