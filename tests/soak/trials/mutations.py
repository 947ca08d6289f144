"""Spoiled files and command lines: each is read or refused with an error of ours, soon, and in little memory."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import warnings
from pathlib import Path

from glassformer.core.errors import GlassformerError

from . import arguments, forks
from .formats import FORMATS, write_all
from .trial import Trial

ARGUMENTS = "arguments"


def prepare(shared: Path) -> None:
    """Write whole files of every format."""
    forks.check(lambda: write_all(shared), shared / "written.txt")


def attempt(shared: Path, own: Path, seed: int) -> None:
    """Spoil one file, or one command line, and read it."""
    kind, rng = TRIAL.kind(seed), random.Random(seed)
    os.environ["GLASSFORMER_ENGINE"] = "numpy"
    warnings.simplefilter("ignore")  # of numbers that overflow
    if kind == ARGUMENTS:
        arguments.attempt(shared, own, rng)
        return
    form = FORMATS[kind]
    path = rng.choice(sorted(shared.glob(form.whole)))
    folder = own / path.parent.name
    shutil.copytree(path.parent, folder)
    content = form.spoil(path.read_bytes(), rng)
    (folder / path.name).unlink()
    (folder / path.name).write_bytes(content)
    if form.whole.startswith("gguf"):  # all of them lie in one folder
        for other in folder.glob("*.gguf"):
            if other.name != path.name:
                other.unlink()
    with contextlib.suppress(GlassformerError):
        form.read(folder)


TRIAL = Trial(
    name="mutations",
    title="spoiled weights, tokenizers, configs, catalogs, templates, metrics and command lines",
    kinds=(*FORMATS, ARGUMENTS),
    full=100_000,
    quick=1_000,
    prepare=prepare,
    attempt=attempt,
    limit=10.0,
    memory=300,
)
