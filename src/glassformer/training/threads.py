"""How many threads multiply matrices: handing a small product to several costs more than it gives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

from ..config import TransformerConfig

WORTHWHILE = 5e8
"""Products of fewer FLOPs are computed by one thread."""


def largest_product(config: TransformerConfig, batch: int) -> int:
    """Return the FLOPs of the largest matrix product in a step on `batch` sequences of full length."""
    return 2 * batch * config.context * config.width * max(config.hidden, config.vocab)


@contextlib.contextmanager
def suitable_threads(config: TransformerConfig, batch: int) -> Iterator[None]:
    """Let one thread do the matrix products of small models, as many as the library likes those of larger ones."""
    if largest_product(config, batch) >= WORTHWHILE:
        yield
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield
