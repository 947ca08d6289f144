"""What each layer would have said in the place of every token that a model wrote."""

from collections.abc import Sequence

import numpy as np

from ..arrays import Array
from ..errors import ConfigError
from ..generation import Generation, LanguageModel
from ..interpret import lens, token_labels, watch
from ..interpret.stream import points
from ..models import Batch
from .output import console, table, visible

COLUMNS = 6
"""So many layers are shown, the last among them; of a deeper model, those spread evenly over its depth."""
WIDEST = 12


def check_lens(wanted: bool, *, alone: bool) -> None:
    """Refuse a lens beside anything but one answer that is printed as text."""
    if wanted and not alone:
        raise ConfigError(
            "--lens shows a table below one answer", hint="leave out --json, --n, --beams and --logprobs; or use `look`"
        )


def show_lens(loaded: LanguageModel, text: str, answer: Generation, *, truncate: bool) -> None:
    """Print what layers would have said in the place of every token of an answer to a prompt."""
    if answer.slid:
        raise ConfigError("the answer is longer than the context, so no run holds it", hint="--no-slide stops before")
    read, source = loaded.encoded(text, truncate=truncate)
    show_said(loaded, read, answer.ids, source)


def show_said(loaded: LanguageModel, read: Array, written: Sequence[int], source: Array | None = None) -> None:
    """Print, for every token that was written after others, what layers would have said there, and how surely."""
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
    label = token_labels(loaded.answer_tokenizer)
    rows = []
    for n, token in enumerate(written):
        cells = [f"{_word(label(int(ids[c, 0, n, 0])))} {100 * odds[c, 0, n, 0]:.0f} %" for c in range(len(chosen))]
        rows.append((_word(label(token)), *cells))
    console().print(table("wrote", *(f"after {blocks[n].label}" for n in chosen), rows=rows))


def _word(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= WIDEST else f"{shown[: WIDEST - 1]}…"
