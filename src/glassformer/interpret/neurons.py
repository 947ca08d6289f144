"""Neurons with the inputs that excite them most, over a data set.

A neuron is a hidden feature of a feed-forward layer: act(x up), or act(x gate) · x up, before the last matrix, for each
token. What a neuron stands for is most easily seen in the tokens, of many, on which it is largest.

    found = exciting_inputs(model, batches, layer=1, count=5)
    found.values[7], found.tokens[7]        the five largest values of neuron 7, and the tokens they are at
    found.window(7, 0, batches, before=4)   the tokens that led to the first of them
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import LengthError
from ..core.settings import check_count
from ..core.show import Result, Tabled
from ..models import Batch, EncoderDecoder, Model
from ..text.tokenizer import NUMBERS, Labels
from ..weights.loaded_model import trained_or_pair
from .batched import Progress
from .run import watch
from .stream import chosen_stack, neurons_of, stack_tokens


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
