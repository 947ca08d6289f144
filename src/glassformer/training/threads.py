"""How many threads multiply matrices: handing a small product to several costs more than it gives."""

import contextlib
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

from ..config import TransformerConfig

WORTHWHILE = 5e8
"""Products of fewer FLOPs are computed by one thread."""


@contextlib.contextmanager
def suitable_threads(config: TransformerConfig, batch: int) -> Iterator[None]:
    """Let one thread do the matrix products of small models, as many as the library likes those of larger ones."""
    largest = 2 * batch * config.context * config.width * max(config.hidden, config.vocab)  # product in a step
    if largest >= WORTHWHILE:
        yield
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield
