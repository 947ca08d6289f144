"""The words that decided, as the page asks for them."""

import pytest

from browser import TEXTS, state
from glassformer.core.errors import ConfigError
from glassformer.web.router import ask


def test_words_are_those_of_python(explorer):
    job = explorer.jobs.get(ask(explorer, "words", {"state": state("encoder")})["job"])
    assert job.ended.wait(20)
    expected = explorer.opened(state("encoder")["model"]).model.explain(TEXTS["encoder"])
    assert job.result["words"] == [word._asdict() for word in expected.words]
    assert (job.result["label"], job.result["difference"]) == (expected.label, expected.difference)
    assert job.done == job.total == len(expected.words)


def test_words_of_a_changed_run_and_of_a_decoder_are_refused(explorer):
    changed = state("encoder", changes=[{"word": "zero", "name": "blocks.0.attention"}])
    with pytest.raises(ConfigError, match="for the model as it is"):
        ask(explorer, "words", {"state": changed})
    job = explorer.jobs.get(ask(explorer, "words", {"state": state("decoder")})["job"])
    assert job.ended.wait(20)
    assert "tells no classes apart" in str(job.to_dict())
