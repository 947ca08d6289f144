"""A run without a folder: the bits of one with a folder, and no file."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from glassformer.core.errors import CheckpointError
from glassformer.runs.run import Ready
from glassformer.runs.start import start_session
from runs import assert_same_bits, tiny_session


def test_it_has_the_bits_of_a_run_with_a_folder(tmp_path, monkeypatch):
    written = tiny_session("majority", tmp_path / "run", steps=4, eval_every=2, ema=0.9)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    session = start_session(replace(written.run, folder=Path("majority"), ready=Ready(written.task)))
    assert session.run.recipe.shards == written.run.recipe.shards
    with pytest.raises(CheckpointError, match="no best parameters are kept yet"):
        session.load_params()
    list(session.steps())
    write = {"not_finite": lambda state: None, "save": lambda folder, state: folder.mkdir()}
    monkeypatch.setattr(session.trainer, "parts", SimpleNamespace(needed=True, **write))  # as on several devices
    session.save()
    assert sorted(tmp_path.rglob("*")) == before
    list(written.steps())
    assert_same_bits(session.load_params(), written.load_params())
    assert [line["loss"] for line in session.metrics()] == [line["loss"] for line in written.run.metrics()]
