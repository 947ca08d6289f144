"""A table below an answer: what each layer would have predicted in the place of every generated token."""

from collections.abc import Sequence

import numpy as np

from ..arrays import Array
from ..errors import ConfigError
from ..generation import Generation
from ..generation.texts import encode_prompts
from ..interpret import lens, watch
from ..interpret.reading import labels_of
from ..interpret.stream import points
from ..models import Batch
from ..trained_model import TrainedModel
from .output import print_table, shorten, visible

COLUMNS = 6
"""At most this many layers are shown, the last one included, spread evenly over the depth."""
WIDTH = 12


def check_lens(wanted: bool, *, alone: bool) -> None:
    """Refuse a lens for anything but one answer that is printed as text."""
    if wanted and not alone:
        raise ConfigError(
            "--lens shows a table below one answer", hint="leave out --json, --n, --beams and --logprobs; or use `look`"
        )


def print_answer_lens(loaded: TrainedModel, text: str, answer: Generation, *, truncate: bool) -> None:
    """Print the lens of an answer to a prompt."""
    if answer.slid:
        raise ConfigError("the answer is longer than the context, so no run holds it", hint="--no-slide stops before")
    [read], sources = encode_prompts(loaded, [text], truncate=truncate)
    print_lens(loaded, read, answer.ids, None if sources is None else sources[0])


def print_lens(loaded: TrainedModel, read: Array, written: Sequence[int], source: Array | None = None) -> None:
    """Print, for every generated token, what the layers would have predicted in its place, with probabilities."""
    if not written:
        return
    tokens = np.concatenate([read, np.asarray(written[:-1], dtype=read.dtype)])
    batch = Batch(tokens[None], source=None if source is None else source[None])
    run = watch(loaded.model, loaded.params, batch)
    blocks = [point for point in points(run) if point.name.endswith(point.label.removeprefix("block "))]
    chosen = sorted({round(n) for n in np.linspace(0, len(blocks) - 1, min(COLUMNS, len(blocks)))})
    first = len(read) - 1
    seen = lens(run, at=[blocks[n].name for n in chosen], positions=range(first, first + len(written)))
    ids, odds = seen.top(1)
    label = labels_of(loaded).tokens
    rows = []
    for n, token in enumerate(written):
        cells = [f"{_word(label(int(ids[c, 0, n, 0])))} {100 * odds[c, 0, n, 0]:.0f} %" for c in range(len(chosen))]
        rows.append((_word(label(token)), *cells))
    print_table(("wrote", *(f"after {blocks[n].label}" for n in chosen)), rows)


def _word(text: str) -> str:
    return shorten(visible(text), WIDTH)
