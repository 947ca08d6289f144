"""A classifier on an encoder that stays as it is: the vector of each text is computed once, not at every step.

logits = classifier(pooled(text))      d classifier alone is asked for, and pooled(text) never changes
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.arrays import Array, Tree
from ..core.reporting import report
from ..data.examples import Dataset, stack
from ..models import Encoder

ROWS = 32
"""Texts of about the same length that are read in one batch."""


@dataclass(frozen=True, eq=False)
class FrozenEncoder(Encoder):
    """An encoder without dropout whose classifier alone is trained; `params` need hold nothing else.

    base      the parameters of the whole model
    vectors   what the classifier reads, by the token ids of a text
    """

    base: Tree = None
    vectors: dict[bytes, Array] = field(default_factory=dict)

    def prepare(self, data: Iterable[Dataset | None]) -> None:
        """Compute the vectors of all texts, short ones first, so that little is padded."""
        texts: dict[bytes, Array] = {}
        for rows in (rows for part in data if part is not None for rows in part.batches(1024)):
            texts |= {ids.tobytes(): ids for ids in _texts(rows.tokens, rows.mask)}
        missing = sorted((ids for key, ids in texts.items() if key not in self.vectors), key=len)
        for start in range(0, len(missing), ROWS):
            report(start, len(missing), "texts")
            some = missing[start : start + ROWS]
            tokens, mask = stack(some)
            _, saved = super().forward(self.base, tokens, mask=None if mask.all() else mask)
            self.vectors.update(zip([ids.tobytes() for ids in some], saved["classifier"].x, strict=True))

    def forward(self, params: Tree, tokens: Array, *, mask: Array | None = None, **_: Any) -> tuple[Array, Tree]:
        """Return the logits (B, classes) of texts that were prepared, and what the classifier read."""
        x = np.stack([self.vectors[ids.tobytes()] for ids in _texts(tokens, mask)])
        logits, saved = self.classifier.forward(params["classifier"], x)
        return logits, {"classifier": saved}

    def backward(self, params: Tree, saved: Tree, dlogits: Array) -> Tree:
        """Return the gradients of the classifier."""
        _, grads = self.classifier.backward(params["classifier"], saved["classifier"], dlogits)
        return {"classifier": grads}


def _texts(tokens: Array, mask: Array | None) -> list[Array]:
    """Return the ids of each text, (T,), without padding."""
    tokens = np.asarray(tokens, dtype=np.int64)
    return list(tokens) if mask is None else [row[real] for row, real in zip(tokens, mask, strict=True)]
