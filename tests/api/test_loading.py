"""A trained model comes back from its folder ready to write, or it is said why not."""

from pathlib import PurePosixPath, PureWindowsPath

import pytest

import glassformer as gf
from glassformer.api.loading import load, locate
from glassformer.core.errors import CheckpointError
from glassformer.generation import Sampling
from runs import edit_config, tiny_session
from sequences import written


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
