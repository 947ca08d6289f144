"""What a run says about where it began."""

import hashlib
import json
import platform

import numpy as np
import pytest

import glassformer
from glassformer.core.dispatch import use_engine
from glassformer.core.errors import DataError
from glassformer.data import write_tokens
from glassformer.runs.provenance import Provenance, data_provenance, versions
from glassformer.runs.run import open_run
from glassformer.runs.start import resume_session
from runs import command, tiny_session


def test_a_run_says_by_whom_and_with_what_it_was_begun(tmp_path):
    with use_engine("numpy"):
        run = tiny_session("majority", tmp_path / "run").run
    record = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["record"]
    assert record["engine"] == "numpy"
    assert record["versions"] == {
        "python": platform.python_version(),
        "glassformer": glassformer.__version__,
        "numpy": np.__version__,
    }
    assert record["cores"] >= 1
    assert record["platform"]
    assert record["started"].endswith("+00:00")
    assert "data" not in record  # it is drawn from the seed
    assert open_run(tmp_path / "run").provenance == run.provenance == Provenance.from_dict(record)


def test_versions_are_those_of_the_engine_and_hashes_those_that_others_print(tmp_path):
    assert "numba" in versions("cpu")
    assert "numba" not in versions("numpy")
    assert "jax" not in versions("cpu")

    run = tiny_session("lines", tmp_path / "run").run
    path = tmp_path / "data" / "lines.txt"
    data = run.provenance.data
    assert (data.source, data.files, data.bytes) == (str(path.resolve()), 1, path.stat().st_size)
    assert data.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_folder_a_carried_text_and_a_token_file_have_hashes(tmp_path):
    for name in ("a.txt", "b.md"):
        (tmp_path / name).write_text(f"the text of {name} " * 20)
    (tmp_path / "picture.png").write_bytes(b"no text")
    first = data_provenance("text", str(tmp_path))
    assert first.files == 2
    (tmp_path / "picture.png").write_bytes(b"another")
    assert data_provenance("text", str(tmp_path)) == first
    (tmp_path / "b.md").rename(tmp_path / "c.md")
    assert data_provenance("text", str(tmp_path)).sha256 != first.sha256

    assert data_provenance("text", None).source == "pydoc"
    assert len(data_provenance("text", "pydoc").sha256) == 64
    (tmp_path / "a.txt").write_text("one two three " * 20)
    write_tokens(tmp_path / "a.txt", tmp_path / "a.bin")
    found = data_provenance("text", str(tmp_path / "a.bin"))
    assert found.sha256 == hashlib.sha256((tmp_path / "a.bin").read_bytes()).hexdigest()


def test_changed_data_is_refused_where_a_run_goes_on_or_is_measured(tmp_path):
    session = tiny_session("text", tmp_path / "run", steps=4, save_every=1)
    next(session.steps())
    path = tmp_path / "data" / "text.txt"
    content = path.read_text()
    path.write_text(content[10:] + content[:10])  # the same letters, elsewhere
    with pytest.raises(DataError, match=r"the data of .* has changed: .*text\.txt is not what it was trained on"):
        resume_session(tmp_path / "run")
    result = command("eval", tmp_path / "run")
    assert result.code == 1
    assert "has changed" in result.err
    path.write_text(content)
    assert len(list(resume_session(tmp_path / "run").steps())) == 3
