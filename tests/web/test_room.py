"""Runs that do not fit into memory are refused before they begin."""

import numpy as np
import pytest

from browser import TEXTS, state, tiny_subject
from glassformer.errors import LengthError
from glassformer.interpret import watch
from glassformer.models import Batch
from glassformer.web import room
from glassformer.web.state import read_state


@pytest.mark.parametrize("architecture", TEXTS)
def test_the_count_is_what_a_run_keeps(architecture, numpy_engine):
    subject = tiny_subject(architecture)
    batch = subject.batch(TEXTS[architecture])
    run = watch(subject.model, subject.params, batch)
    kept = {id(a): a.nbytes for call in run.calls for a in call.outputs if isinstance(a, np.ndarray)}
    said = room.run_bytes(subject.model.config, batch, 8)
    assert 0.8 * sum(kept.values()) < said < 4 * sum(kept.values())


def test_what_does_not_fit_is_refused_with_both_numbers(monkeypatch, explorer):
    monkeypatch.setattr(room, "free_bytes", lambda: 3 * 2**30)
    config = tiny_subject("decoder").model.config
    assert room.kept_of(config, Batch(np.zeros((1, 64), int)), 8) == "everything"
    with pytest.raises(LengthError, match=r"into 65,536 tokens takes about .* GiB, and 3\.0 GiB of memory are free"):
        room.kept_of(config, Batch(np.zeros((1, 65_536), int)), 8)
    monkeypatch.setattr(room, "free_bytes", lambda: 1)
    with pytest.raises(LengthError, match="takes about"):
        explorer.seen(read_state(state("encoder", text="00000000")))


def test_a_system_that_does_not_say_what_is_free_is_believed_to_have_it(monkeypatch, tmp_path):
    monkeypatch.setattr(room, "MEMINFO", tmp_path / "nothing")
    assert room.free_bytes() is None
    assert room.kept_of(tiny_subject("decoder").model.config, Batch(np.zeros((1, 65_536), int)), 8) == "borders"
    (tmp_path / "nothing").write_text("MemTotal: 5 kB\nMemAvailable: 3 kB\n")
    assert room.free_bytes() == 3072


def test_a_run_that_would_keep_too_much_keeps_borders(monkeypatch, explorer, numpy_engine):
    whole = explorer.seen(read_state(state("decoder", text="for x in"))).run
    monkeypatch.setattr(room, "WHOLE", 1)
    run = explorer.seen(read_state(state("decoder", text="for y in"))).run
    assert (whole.keeps, run.keeps) == ("everything", "borders")
    again = explorer.seen(read_state(state("decoder", text="for x in"))).run
    assert again.keeps == "borders"  # runs of another kind were let go
    assert all(again[name].tobytes() == whole[name].tobytes() for name in whole)
