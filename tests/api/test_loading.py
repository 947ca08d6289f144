"""One name for every kind of model: what a path, a pulled name or hf:org/name stands for, and how it comes back."""

import json
import sys
from pathlib import PurePosixPath, PureWindowsPath

import numpy as np
import pytest

import gguf_files
import glassformer as gf
from family_models import saved
from glassformer.api.loading import load, load_config, load_tokenizer, locate, read_model
from glassformer.core.dispatch import use_engine
from glassformer.core.errors import CheckpointError, ConfigError, WeightsError
from glassformer.core.quantized import Quantized
from glassformer.core.tree import flatten
from glassformer.generation import Sampling
from glassformer.generation.texts import encode_prompts
from glassformer.text import PublishedTokenizer
from glassformer.weights import catalog
from glassformer.weights.stores import hub_folder
from oracles import require
from runs import edit_config, tiny_session
from sequences import written
from tokenizer_files import PUBLISHED


def trained(task, folder):
    """A run of two steps."""
    session = tiny_session(task, folder, steps=2, eval_every=2)
    list(session.steps())
    return session


@pytest.mark.parametrize("task", ["text", "lines", "counting", "dates"])
def test_decoders_and_encoder_decoders_answer_as_in_training(task, tmp_path):
    session = trained(task, tmp_path / "run")
    model = gf.load(tmp_path / "run")
    prompt = session.task.prompts[0]
    answer = model.generate(prompt, temperature=0, max_new_tokens=6)
    batch = session.task.encode_input(prompt)
    greedy = {"max_new_tokens": len(answer.ids), "sampling": Sampling(temperature=0), "cache": False, "slide": True}
    sources = None if batch.source is None else list(batch.source)
    (expected,), _ = written(session.model, session.run.load_params(), list(batch.tokens), sources=sources, **greedy)
    assert list(answer.ids) == expected


def test_start_and_end_come_from_the_special_tokens(tmp_path):
    trained("lines", tmp_path / "lines")
    model = gf.load(tmp_path / "lines")
    assert (model.start_id, model.end_ids) == (0, (1,))
    trained("dates", tmp_path / "dates")
    model = gf.load(str(tmp_path / "dates"))
    assert (model.start_id, model.end_ids) == (1, (2,))
    assert model.answer_tokenizer is model.target_tokenizer
    trained("text", tmp_path / "text")
    model = gf.load(tmp_path / "text")
    assert (model.start_id, model.end_ids) == (None, ())


def test_a_name_that_no_system_takes_is_refused_like_others():
    with pytest.raises(CheckpointError, match="there is no mmm"):
        load("m" * 300)
    with pytest.raises(CheckpointError, match="there is no a"):
        load("a\0b")


def test_a_name_of_the_hub_is_one_as_a_path_of_windows_too(monkeypatch):
    monkeypatch.setattr("glassformer.weights.stores.hub_folder", lambda name: name)
    for name in ("hf:org/name", PureWindowsPath("hf:org/name"), PurePosixPath("hf:org/name")):
        assert locate(name) == "hf:org/name"


def test_a_damaged_tokenizer_is_refused(tmp_path):
    trained("lines", tmp_path / "run")
    edit_config(tmp_path / "run", lambda content: content.update(tokenizer={"kind": "chars"}))
    with pytest.raises(CheckpointError, match=r"the tokenizer in .* is damaged"):
        gf.load(tmp_path / "run")


TOKENIZERS = {"gpt2": "byte-level BPE", "llama": "sentencepiece BPE", "t5": "Unigram", "bert": "WordPiece"}


def with_tokenizer(name, folder):
    """A small model with a tokenizer of its kind. Its vocabulary is larger than the model's: only ids below fit."""
    saved(name, folder)
    make, config = PUBLISHED[TOKENIZERS[name]]
    make().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: with_tokenizer(name, tmp_path_factory.mktemp("models") / name) for name in TOKENIZERS}


def test_published_models_read_and_write_with_the_tokens_that_their_tokenizers_put_there(folders):
    model = gf.load(folders["gpt2"])
    assert model.start_id is None
    assert model.end_ids == (1,)
    answer = model.generate("!", max_new_tokens=5, temperature=0)
    assert len(answer.ids) == 5 or answer.finish == "stop"

    model = gf.load(folders["llama"])
    assert model.start_id == model.tokenizer.specials["<s>"]

    model = gf.load(folders["t5"])
    assert (model.start_id, model.source_end_id) == (0, 1)
    ids = model.tokenizer.encode("e")
    assert [source.tolist() for source in encode_prompts(model, ["e"])[1]] == [[*ids, 1]]
    assert model.generate("", max_new_tokens=3, temperature=0).ids


def test_an_encoder_and_a_model_without_a_tokenizer_do_not_write(folders, tmp_path):
    with pytest.raises(ConfigError, match="is an encoder") as caught:
        load(folders["bert"]).generate("e")
    assert "glassformer embed" in caught.value.hint
    model = gf.load(folders["bert"])
    with pytest.raises(ConfigError, match="does not write text"):
        model.generate("a")

    model = gf.load(saved("gpt2", tmp_path))
    with pytest.raises(WeightsError, match="has no tokenizer"):
        model.generate("a")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_config_and_tokenizer_are_had_without_the_weights(name, folders, tmp_path):
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((folders[name] / file).read_bytes())
    loaded = read_model(folders[name])
    assert load_config(tmp_path) == loaded.config
    assert load_tokenizer(tmp_path) == loaded.tokenizer
    assert isinstance(load_tokenizer(tmp_path / "tokenizer.json"), PublishedTokenizer)


def test_a_gguf_file_and_one_of_llama2c_go_to_their_readers(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUX")
    with pytest.raises(WeightsError, match="this is no GGUF file"):
        read_model(tmp_path / "a.gguf")
    (tmp_path / "a.bin").write_bytes(np.zeros(3, np.int32).tobytes())
    with pytest.raises(WeightsError, match=r"a\.bin"):
        read_model(tmp_path / "a.bin")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pytorch_model.bin", b"PK\x03\x04rest"),
        ("old.bin", b"\x80\x02}q\x00."),
        ("model.pt", b"anything"),
        ("model.pth", b""),
        ("model.ckpt", b"anything"),
    ],
)
def test_pickles_are_refused(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match="is a pickle file: opening one can run any program"):
        read_model(tmp_path / name)


def test_a_width_that_looks_like_a_pickle_is_none(tmp_path):
    (tmp_path / "a.bin").write_bytes(np.array([640, 1, 1, 1, 1, 1, 1], np.int32).tobytes())
    with pytest.raises(WeightsError) as caught:
        read_model(tmp_path / "a.bin")
    assert "pickle" not in str(caught.value)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"x")
    with pytest.raises(WeightsError, match="no file of weights of a known kind"):
        read_model(tmp_path / "a.onnx")


def test_a_pulled_model_is_known_by_its_name(folders, monkeypatch):
    monkeypatch.setattr(catalog, "resolve", lambda name: folders["gpt2"] if name == "smollm2" else None)
    assert locate("smollm2") == folders["gpt2"]
    with pytest.raises(WeightsError, match="minilm has not been fetched yet") as caught:
        locate("minilm")
    assert "glassformer pull minilm" in caught.value.hint


class Hub:
    """A stand-in for huggingface_hub that never goes anywhere."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def snapshot_download(self, *args, **settings):
        self.asked.append((args, settings))
        if isinstance(self.answer, Exception):
            raise self.answer
        return str(self.answer)


def test_a_model_of_the_hub_is_had_through_its_library(folders, monkeypatch):
    hub = Hub(folders["gpt2"])
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert read_model("hf:openai-community/gpt2@main").family == "gpt2"
    ((args, settings),) = hub.asked
    assert (args, settings["revision"]) == (("openai-community/gpt2",), "main")
    assert not any(pattern.endswith((".bin", ".pt")) for pattern in settings["allow_patterns"])


@pytest.mark.parametrize("error", [OSError("no connection"), ValueError("no such repository")])
def test_what_the_hub_refuses_is_passed_on(error, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(error))
    with pytest.raises(WeightsError, match=f"cannot be downloaded: {error}"):
        hub_folder("hf:org/name")


def test_a_hub_that_cannot_be_reached_is_said_in_words(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(OSError("Got: ConnectError: [Errno -3] try again")))
    with pytest.raises(WeightsError, match="hub cannot be reached"):
        hub_folder("hf:org/name")


def test_without_the_library_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="which is not installed") as caught:
        hub_folder("hf:org/name")
    assert "glassformer[hub]" in caught.value.hint


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:../x", "hf:org/na me"])
def test_a_name_that_is_none_is_refused(name):
    if name == "hf:../x":
        require("huggingface_hub")
        with pytest.raises((ConfigError, WeightsError)):
            hub_folder(name)
        return
    with pytest.raises(ConfigError, match="is no model of the hub"):
        hub_folder(name)


def kinds_of(model):
    return {leaf.form for leaf in flatten(model.params).values() if isinstance(leaf, Quantized)}


def small_gguf(folder):
    arrays = gguf_files.llama_tensors(np.random.default_rng(0), width=32, hidden=64)
    settings = gguf_files.llama_settings(embedding_length=32, feed_forward_length=64, **{"rope.dimension_count": 8})
    types = {name: "Q4_1" for name, array in arrays.items() if array.ndim == 2}
    return gguf_files.write(folder / "model.gguf", "llama", {**settings, **gguf_files.byte_tokenizer()}, arrays, types)


@pytest.mark.parametrize(("weights", "kinds"), [(None, set()), ("float16", {"F16"}), ("int4", {"Q4_1", "Q8_0"})])
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_weights_are_kept_as_asked_for(folders, name, weights, kinds):
    model = gf.load(folders[name], weights=weights)
    assert kinds_of(model) == kinds
    assert model.generate("!" if name == "gpt2" else "", max_new_tokens=3, temperature=0).ids
    assert kinds_of(model.kept_as("float32")) == set()


def test_a_gguf_file_is_used_as_it_is_stored_and_storages_that_make_no_sense_are_refused(tmp_path, folders):
    path = small_gguf(tmp_path)
    model = gf.load(path)
    assert kinds_of(model) == kinds_of(gf.load(path, weights="as-stored")) == {"Q4_1"}
    full = gf.load(path, weights="float32")
    assert kinds_of(full) == kinds_of(read_model(path)) == set()
    answers = [one.generate("!", max_new_tokens=6, temperature=0).ids for one in (model, full)]
    assert answers[0] == answers[1]
    with use_engine("numpy"):  # which would turn blocks into numbers again for every token
        assert kinds_of(gf.load(path)) == set()

    with pytest.raises(ConfigError, match="only GGUF files are used as they are stored"):
        gf.load(folders["gpt2"], weights="as-stored")
    with pytest.raises(ConfigError, match="weights cannot be kept as 'int'"):
        gf.load(folders["gpt2"], weights="int")
