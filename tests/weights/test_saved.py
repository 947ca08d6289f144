"""Every architecture comes back from a folder as it was, and from the commands' folders too."""

import json

import numpy as np
import pytest

import glassformer as gf
from fine_tuning import published
from glassformer.api.loading import load_config, load_tokenizer, read_model
from glassformer.core.errors import ConfigError, WeightsError
from runs import TINY, assert_same_bits, command, tiny_session, write_data

pytestmark = pytest.mark.usefixtures("numpy_engine")

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


def test_a_run_folder_comes_back_with_its_history_and_its_task(tmp_path):
    list(tiny_session("majority", tmp_path / "run", steps=4, eval_every=2).steps())
    model = gf.load(tmp_path / "run")
    assert len(model.history) == 4
    assert model.labels == ("0", "1", "2")
    assert model.evaluate().examples == 24
    assert model.plot()
    assert gf.load(gf.save(model, tmp_path / "copy")).evaluate() == model.evaluate()


def test_the_commands_read_what_was_saved(tmp_path):
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


def test_parameters_may_be_changed_after_loading(tmp_path):
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
