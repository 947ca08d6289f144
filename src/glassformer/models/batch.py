"""One batch of examples, for all three architectures."""

from typing import NamedTuple

from ..arrays import Array


class Batch(NamedTuple):
    """What a model reads and what it should answer; unused parts are None.

    tokens        (..., T) ids that the encoder, or the decoder, reads
    targets       (..., T) the id that should follow each token (decoder, encoder-decoder, token head of an encoder),
                  or (...) the class of each sequence (encoder); IGNORE where nothing is asked
    mask          (..., T) True for real tokens, False for padding
    source        (..., S) ids that the encoder of an encoder-decoder reads
    source_mask   (..., S) True for real source tokens
    segments      (..., T) which of several texts a token belongs to (BERT)
    """

    tokens: Array
    targets: Array | None = None
    mask: Array | None = None
    source: Array | None = None
    source_mask: Array | None = None
    segments: Array | None = None
