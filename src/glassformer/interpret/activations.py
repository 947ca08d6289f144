"""Values over many texts: the vectors of chosen layers, and the inputs that excite each neuron most.

    found = activations(model, texts, ["blocks.6"], out="vectors.npz")
    found["blocks.6"]                    (N, D): the vectors of all tokens of all texts, padding left out
    found.examples, found.positions      (N,): the text that each token belongs to, and its place there
    found.tokens, found.last             (N,): its id; (texts,): the row of each text's last token
    fit_probe(found["blocks.6"], labels[found.examples], classes=2)
    run.changed(mean("blocks.6", found))

`Activations(numpy.load("vectors.npz"))` opens the file again.

A neuron is a hidden feature of a feed-forward layer: act(x up), or act(x gate) · x up, before the last matrix, for each
token. What a neuron stands for is most easily seen in the tokens, of many, on which it is largest.

    found = exciting_inputs(model, batches, layer=1, count=5)
    found.values[7], found.tokens[7]        the five largest values of neuron 7, and the tokens they are at
    found.window(7, 0, batches, before=4)   the tokens that led to the first of them
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from operator import length_hint
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, DataError, LengthError
from ..core.files import replacing
from ..core.settings import check_count
from ..core.show import NamedValues, Result, Tabled
from ..models import Batch, EncoderDecoder, Model
from ..text.tokenizer import NUMBERS, Labels
from ..weights.loaded_model import LoadedModel, trained_or_pair
from .names import check_name, is_of_source
from .reading import batch_of
from .run import Kept, watch
from .stream import chosen_stack, neurons_of, real_tokens, stack_tokens, token_rows
from .sweep import Progress

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


# --- neurons ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class ExcitingInputs(Tabled):
    """Where each neuron is largest, (F, count) each, the largest first; fewer where the data have fewer tokens.

    values      of the neuron
    tokens      the token that it is at
    batches, examples, positions    where that token stands
    share       (F,) of all tokens on which the neuron is above zero
    of_source   whether the tokens are those of the source
    label       what a token is called
    """

    values: Array
    tokens: Array
    batches: Array
    examples: Array
    positions: Array
    share: Array
    of_source: bool = False
    label: Callable[[int], str] = str

    def window(self, neuron: int, rank: int, data: Sequence[Batch], *, before: int = 8, after: int = 0) -> Array:
        """Return the tokens around one of the inputs of a neuron."""
        if not (0 <= neuron < len(self.values) and 0 <= rank < self.values.shape[1]):
            raise LengthError(f"there is no input {rank} of neuron {neuron}", hint=f"there are {self.values.shape}")
        batch, example, position = (int(x[neuron, rank]) for x in (self.batches, self.examples, self.positions))
        tokens = np.asarray(data[batch].source if self.of_source else data[batch].tokens)
        return tokens[example][max(0, position - before) : position + after + 1]

    def result(self) -> Result:
        """Return a row for each neuron."""
        word = str if self.label is str else lambda token: repr(self.label(token))
        rows = [
            [n, float(self.share[n]), *(f"{word(i)}: {x:.3g}" for i, x in zip(own, values, strict=True))]
            for n, (own, values) in enumerate(zip(self.tokens, self.values, strict=True))
        ]
        columns = ("neuron", "above zero on", *(f"token {n + 1}" for n in range(self.tokens.shape[1])))
        return Result("the tokens that excite each neuron most", columns, rows)


@trained_or_pair
def exciting_inputs(
    model: Model,
    params: Tree,
    data: Iterable[Batch],
    *,
    layer: int,
    count: int = 5,
    stack: str | None = None,
    progress: Progress | None = None,
    labels: Labels = NUMBERS,
) -> ExcitingInputs:
    """Return for every neuron of a feed-forward layer the tokens of the data on which it is largest.

    A trained model stands for `model` and `params`, and knows the labels of its tokens.
    """
    check_count("count", count, least=1)
    batches = list(data)
    if not batches:
        raise LengthError("there is no data to look at", hint="give at least one batch")
    best: Array | None = None  # (F, ≤ count, 5): value, token, batch, example, position
    above: Array | float = 0.0
    seen = 0
    for number, batch in enumerate(batches):
        run = watch(model, params, batch)
        ids, real = stack_tokens(run, chosen_stack(run, stack))
        values = run[neurons_of(run, layer, stack)][real]  # (N, F)
        examples, positions = np.nonzero(real)
        positions -= ids[0, 0] < 0  # a learned first vector is no token
        places = np.stack((ids[real], examples, positions), axis=-1)  # (N, 3)
        above, seen = above + (values > 0).sum(axis=0), seen + len(values)
        order = np.argsort(-values, axis=0, kind="stable")[:count].T  # (F, ≤ count)
        largest = np.take_along_axis(values.T, order, axis=1)
        own = np.dstack([largest, places[order][..., 0], np.full(order.shape, number), places[order][..., 1:]])
        together = own if best is None else np.concatenate((best, own), axis=1)
        ranks = np.argsort(-together[..., 0], axis=1, kind="stable")[:, :count]
        best = np.take_along_axis(together, ranks[..., None], axis=1)
        if progress is not None:
            progress(number + 1, len(batches))
    assert best is not None
    token, number_of, example, position = (best[..., n].astype(np.int64) for n in range(1, 5))
    of_source = stack == "encoder" and isinstance(model, EncoderDecoder)
    label = (labels.source or labels.tokens) if of_source else labels.tokens
    share = np.asarray(above) / seen
    return ExcitingInputs(best[..., 0], token, number_of, example, position, share, of_source, label)
