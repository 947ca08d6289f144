"""Sequences of different lengths as one padded `Batch`, for each architecture."""

from collections.abc import Sequence

import numpy as np

from ..arrays import Array
from ..models.batch import Batch
from ..ops.loss import IGNORE
from ..text import CharTokenizer, Tokenizer
from .examples import Examples


def stack(sequences: Sequence[Array], *, pad: int = 0) -> tuple[Array, Array]:
    """Return the sequences as rows of one array, padded at the end, and the mask of what is real."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    mask = np.arange(max(lengths, default=0)) < lengths[:, None]
    ids = np.full(mask.shape, pad, dtype=np.int64)
    if len(sequences):
        ids[mask] = np.concatenate(sequences)
    return ids, mask


def encode_each(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Array]:
    """Encode many short texts; where one character is one id, all at once, cut again where the texts end."""
    if not isinstance(tokenizer, CharTokenizer):
        return [tokenizer.encode(text) for text in texts]
    ends = np.cumsum([len(text) for text in texts])
    return np.split(tokenizer.encode("".join(texts)), ends[:-1])


def decoder_examples(sequences: Sequence[Array], prompts: Sequence[int], *, pad: int = 0) -> Examples:
    """Stack texts for a decoder: each token is to be followed by the next, and only what follows the prompt counts.

    `prompts` are the lengths of the parts that are given, at least one token each.
    """
    spans, real = stack(sequences, pad=pad)
    tokens, targets, mask = spans[:, :-1].copy(), spans[:, 1:].copy(), real[:, 1:].copy()
    given = np.arange(1, spans.shape[1]) < np.asarray(prompts)[:, None]
    targets[given | ~mask] = IGNORE
    return Examples(Batch(tokens, targets, mask))


def translation_examples(sources: Sequence[Array], answers: Sequence[Array], *, bos: int, eos: int) -> Examples:
    """Stack pairs for an encoder-decoder: it reads the source, starts from <bos> and ends with <eos>."""
    source, source_mask = stack(sources)
    tokens, mask = stack([np.concatenate([[bos], answer]) for answer in answers])
    targets, _ = stack([np.concatenate([answer, [eos]]) for answer in answers], pad=IGNORE)
    return Examples(Batch(tokens, targets, mask, source, source_mask))
