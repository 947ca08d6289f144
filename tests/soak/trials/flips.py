"""One flipped bit, or a missing end, in a file that we wrote: it is found, or what is read is the same to the last bit.

Of eleven cases, ten flip a bit and one cuts off an end. A case survives if reading is refused with an error of ours, or
if the proof succeeds that nothing has changed: all that can be read is compared with what the whole file says. The
metrics of a run, which no number of a training depends on, may lose lines, but the run must end with the same weights.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassformer.core.dispatch import use_engine
from glassformer.core.errors import GlassformerError

from . import forks, plans
from .trial import LostError, Trial

from runs import options, tiny_session, write_data  # isort: skip

PLAN = {"steps": 12, "save_every": 4, "eval_every": 4, "ema": 0.9}
HALFWAY = 8
TRUNCATED = 11
"""Every so many cases, the end of a file is cut off instead."""
CORPUS = "The quick brown fox jumps over the lazy dog. Größe zählt. " * 8


class Subject(NamedTuple):
    """A folder among those prepared, the files of it that may be damaged, and what can be read from it."""

    folder: str
    files: str
    read: Callable[[Path], Any]


def prepare(shared: Path) -> None:
    """Write one file of every kind."""
    forks.check(lambda: _write_runs(shared), shared / "runs.txt")
    forks.check(lambda: _write_models(shared), shared / "models.txt")
    write_data("lines", shared)
    how = ["--mesh", "data=2,fsdp=4", "--engine", "jax", "--out", shared / "sharded"]
    settings = options("lines", steps=2, save_every=1, **plans.FEW)
    lines = ["train", "lines", "--data", shared / "lines.txt", *settings, *how]
    plans.load_libraries({"sharded"})
    forks.succeed(forks.command(shared / "sharded.txt", *lines, **plans.environment("sharded", shared)))


def _write_runs(shared: Path) -> None:
    """Train a run to its end, and the same one halfway."""
    with use_engine("numpy"):
        for _ in tiny_session("lines", shared / "whole", **PLAN).steps():
            pass
        for record in tiny_session("lines", shared / "run", **PLAN).steps():
            if record.step == HALFWAY:
                break


def _write_models(shared: Path) -> None:
    """Save a model with a tokenizer of its own and one with a published one, and a token file."""
    import glassformer as gf
    from glassformer.data.corpus import write_tokens
    from glassformer.runs.start import new_session
    from tokenizer_files import chat_bpe

    gf.save(gf.load(shared / "whole"), shared / "own")
    gf.save(_with_tokenizer(chat_bpe()), shared / "published")
    large = chat_bpe()
    large.add_special_tokens([f"<extra {number}>" for number in range(1000)])
    source = gf.save(_with_tokenizer(large), shared / "large")
    (shared / "corpus.txt").write_text(CORPUS, encoding="utf-8")
    given = {"data": str(shared / "corpus.txt"), "settings": {**PLAN, "batch": 2, "context": 8}}
    with use_engine("numpy"):  # so large a tokenizer has a file of its own in the folder of a run
        for _ in new_session("text", shared / "tuned", source=str(source), **given).steps():
            break
    (shared / "tokens").mkdir()
    write_tokens(shared / "corpus.txt", shared / "tokens" / "corpus.bin")


def _with_tokenizer(tokenizer: Any) -> Any:
    """Return a small model with a published tokenizer."""
    import glassformer as gf
    from glassformer.text.published import PublishedTokenizer

    ours = PublishedTokenizer(tokenizer.to_str(), roles={"eos": "<|im_end|>"}, chat_template="{{ messages }}")
    config = gf.DecoderConfig(vocab=ours.size, width=8, heads=2, layers=1, context=16, feed_forward=8)
    return gf.TrainedModel(config, gf.build(config).init(0), tokenizer=ours)


def _bits(arrays: Any) -> Any:
    from glassformer.core.tree import flatten

    return [(name, a.dtype.str, a.shape, a.tobytes()) for name, a in flatten(arrays).items()]


def _checkpoint(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        from glassformer.training import load_checkpoint

        found = load_checkpoint(folder, name)
        return _bits(found.arrays), found.meta

    return read


def _config(folder: Path) -> Any:
    """What a run is, with its data: where these lie may be changed, and is no part of the checksum."""
    from glassformer.runs.run import open_run

    run = open_run(folder)
    run.check_data()
    run.task()
    return run.to_dict()


def _model(folder: Path) -> Any:
    import glassformer as gf

    model = gf.load(folder)
    tokenizers = [None if t is None else t.to_dict() for t in (model.tokenizer, model.target_tokenizer)]
    rest = [model.config.to_dict(), model.start_id, model.end_ids, model.chat_template, model.labels, model.family]
    return _bits(model.params), tokenizers, rest, model.history.metrics, model.origin


def _tokens(folder: Path) -> Any:
    from glassformer.data.corpus import open_tokens

    found = open_tokens(folder / "corpus.bin")
    return np.asarray(found.ids).tobytes(), found.ids.dtype.str, found.tokenizer.to_dict()


def _sharded(folder: Path) -> Any:
    """The checkpoints of all devices: what they hold is known by the checksums of their files."""
    from glassformer.engines.jax.sharded_checkpoint import check_files, list_sharded, sharded_path

    steps = list_sharded(folder)
    found = [check_files(sharded_path(folder, step), lambda names: names) for step in steps]
    return steps, [[manifest[part] for part in ("meta", "arrays", "files")] for manifest in found]


def _resumed(folder: Path) -> Any:
    """The weights of a run that was resumed: all that its metrics could spoil."""
    from glassformer.runs.start import resume_session
    from glassformer.training import load_checkpoint

    with use_engine("numpy"):
        for _ in resume_session(folder).steps():
            pass
    found = [load_checkpoint(folder, name) for name in ("latest", "best")]
    return [(_bits(checkpoint.arrays), checkpoint.meta) for checkpoint in found]


SUBJECTS = {
    "latest checkpoint": Subject("run", "latest.safetensors", _checkpoint("latest")),
    "best checkpoint": Subject("run", "best.safetensors", _checkpoint("best")),
    "sharded checkpoint": Subject("sharded", "sharded/*/**/*", _sharded),
    "config of a run": Subject("run", "config.json", _config),
    "tokenizers of a run": Subject("tuned", "tokenizers.json", _config),
    "metrics of a run": Subject("run", "metrics.jsonl", _resumed),
    "weights of a model": Subject("own", "model.safetensors", _model),
    "description of a model": Subject("own", "glassformer.json", _model),
    "tokenizer of a model": Subject("published", "tokenizer*.json", _model),
    "token file": Subject("tokens", "corpus.bin*", _tokens),
}


def attempt(shared: Path, own: Path, seed: int) -> None:
    """Damage one file and read it."""
    kind, rng = TRIAL.kind(seed), random.Random(seed)
    subject = SUBJECTS[kind]
    folder = own / subject.folder
    shutil.copytree(shared / subject.folder, folder)
    before = _read_whole(shared, own, kind)
    path = rng.choice(sorted(path for path in folder.glob(subject.files) if path.is_file()))
    how = _damage(path, rng, truncate=seed % TRUNCATED == 0)
    try:
        after = subject.read(folder)
    except GlassformerError:
        return
    if after != before:
        raise LostError(f"{path.relative_to(folder)} was read with {how}")


_whole: dict[str, Any] = {}


def _read_whole(shared: Path, own: Path, kind: str) -> Any:
    """Return what the undamaged file says; a copy is read, since reading may go on with a run."""
    if kind not in _whole:
        folder = SUBJECTS[kind].folder
        shutil.copytree(shared / folder, own / "whole" / folder)
        _whole[kind] = SUBJECTS[kind].read(own / "whole" / folder)
    return _whole[kind]


def _damage(path: Path, rng: random.Random, *, truncate: bool) -> str:
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data)) if data else 0
    if truncate or not data:
        del data[place:]
        how = f"its end cut off after {place:,} bytes"
    else:
        bit = rng.randrange(8)
        data[place] ^= 1 << bit
        how = f"bit {bit} of byte {place:,} flipped"
    path.write_bytes(data)
    return how


TRIAL = Trial(
    name="flips",
    title="bit flips and truncations of checkpoints, models, tokenizers, run and token files",
    kinds=tuple(SUBJECTS),
    full=11_000,
    quick=110,
    prepare=prepare,
    attempt=attempt,
    limit=20.0,
)
