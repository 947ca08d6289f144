"""The vectors of chosen layers over many texts, with one batch in memory at a time.

    found = activations(model, texts, ["blocks.6"], out="vectors.npz")
    found["blocks.6"]                    (N, D): the vectors of all tokens of all texts, padding left out
    found.examples, found.positions      (N,): the text that each token belongs to, and its place there
    found.tokens, found.last             (N,): its id; (texts,): the row of each text's last token
    fit_probe(found["blocks.6"], labels[found.examples], classes=2)
    run.changed(mean("blocks.6", found))

`Activations(numpy.load("vectors.npz"))` opens the file again.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from operator import length_hint
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, DataError
from ..core.files import replacing
from ..core.settings import check_count
from ..core.show import NamedValues
from ..weights.loaded_model import LoadedModel
from .batched import Progress
from .names import check_name
from .reading import batch_of
from .run import Kept, watch
from .stream import real_tokens, token_rows
from .where import is_of_source

EXAMPLES, POSITIONS, TOKENS = PLACES = ("examples", "positions", "tokens")


@dataclass(frozen=True, eq=False, repr=False)
class Activations(NamedValues):
    """Vectors (N, D) of N tokens by the names of values; those in a file are read when they are asked for."""

    arrays: Mapping[str, Array]

    @property
    def known(self) -> dict[str, Any]:
        """The names of the values."""
        return dict.fromkeys(name for name in self.arrays if name not in PLACES)

    def __getitem__(self, name: str) -> Array:
        check_name(name, self.known)
        return self.arrays[name]

    @property
    def examples(self) -> Array:
        """The number of the text that each token belongs to, (N,)."""
        return self.arrays[EXAMPLES]

    @property
    def positions(self) -> Array:
        """The place of each token in its text, (N,)."""
        return self.arrays[POSITIONS]

    @property
    def tokens(self) -> Array:
        """The id of each token, (N,)."""
        return self.arrays[TOKENS]

    @property
    def last(self) -> Array:
        """The row of the last token of each text, (texts,)."""
        return np.flatnonzero(np.diff(self.examples, append=-1))

    def __repr__(self) -> str:
        return f"<activations of {len(self.positions):,} tokens: {', '.join(self)}>"


def activations(
    model: LoadedModel,
    texts: str | Iterable[str],
    names: Sequence[str],
    out: str | Path | None = None,
    *,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> Activations:
    """Return the vectors that a model has at some values for every token of many texts, padding left out.

    names      values with one vector per token; blocks after the last of them do not run
    out        an .npz file to write them to; None: they stay in memory
    progress   called with how many texts are done, and of how many: 0 where their number is not known
    """
    check_count("batch_size", batch_size, least=1)
    if not names:
        raise ConfigError("no value is named", hint='name some: activations(model, texts, ["blocks.0"])')
    texts = [texts] if isinstance(texts, str) else texts
    rest, done, total = iter(texts), 0, length_hint(texts)
    with ExitStack() as files:
        columns: dict[str, Any] = {
            name: BytesIO() if out is None else files.enter_context(TemporaryFile(dir=Path(out).parent))
            for name in (*names, *PLACES)
        }
        kept = None
        while some := list(islice(rest, batch_size)):
            batch = batch_of(model, some)._replace(targets=None)
            kept = kept.again(batch) if kept else watch(model.model, model.params, batch, names=names)
            vectors = _vectors(kept, names, done)
            for name, rows in vectors.items():
                columns[name].write(rows.tobytes())
            done += len(some)
            if progress is not None:
                progress(done, total)
        if not done:
            raise DataError("there are no texts", hint="give at least one")
        arrays = {name: _written(columns[name], rows) for name, rows in vectors.items()}
        if out is None:
            return Activations(arrays)
        with replacing(Path(out)) as path, path.open("wb") as target:
            np.savez(target, **arrays)
    return Activations(np.load(out))


def _written(file: Any, like: Array) -> Array:
    """Return the rows that were written to a file, or to memory."""
    flat = np.frombuffer(file.getbuffer(), like.dtype) if isinstance(file, BytesIO) else np.memmap(file, like.dtype)
    return flat.reshape(-1, *like.shape[1:])


def _vectors(kept: Kept, names: Sequence[str], done: int) -> dict[str, Array]:
    """Return the vectors of the tokens of one batch by name, with their places; `done` examples came before."""
    source = any(map(is_of_source, names))
    tokens = kept.batch.source if source and kept.batch.source is not None else kept.batch.tokens
    examples, positions = np.nonzero(real_tokens(kept, tokens.shape[1], source=source))
    found = {name: token_rows(kept, name) for name in names}
    for name, rows in found.items():
        if len(rows) != len(positions):
            hint = "choose values with one vector per token, all of the source or all of the target"
            raise ConfigError(f"{name} has {len(rows)} vectors for {len(positions)} tokens", hint=hint)
    return {**found, EXAMPLES: examples + done, POSITIONS: positions, TOKENS: np.asarray(tokens)[examples, positions]}
