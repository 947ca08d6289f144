"""Let a model answer: the likeliest class, or one token after the other."""

from collections.abc import Callable

import numpy as np

from ..arrays import Array, Tree
from ..config import EncoderConfig, EncoderDecoderConfig
from ..models import Batch, Model
from .sampling import only_known


def answer(
    model: Model,
    params: Tree,
    batch: Batch,
    *,
    count: int,
    known: int | None = None,
    rng: np.random.Generator | None = None,
    temperature: float = 1.0,
) -> Array:
    """Return the answer to a batch of one: the class of an encoder, or up to `count` ids that follow the tokens.

    The likeliest id is taken, or, when an `rng` is given, one drawn by softmax(logits / temperature). A decoder that
    has filled its context goes on reading the last part of it. Ids are below `known`, where it is given.
    """
    if isinstance(model.config, EncoderConfig):
        logits, _ = model.predict(params, batch)
        return np.argmax(np.asarray(logits), axis=-1)

    def predict(tokens: Array) -> Array:
        logits, _ = model.predict(params, batch._replace(tokens=tokens))
        return logits if known is None else only_known(logits, known)

    context = model.config.context
    return continue_ids(predict, batch.tokens, count=count, context=context, rng=rng, temperature=temperature)[0]


def continue_ids(
    predict: Callable[[Array], Array],
    tokens: Array,
    *,
    count: int,
    context: int,
    rng: np.random.Generator | None = None,
    temperature: float = 1.0,
) -> Array:
    """Append `count` ids to each row of tokens (B, T), reading at most the last `context`; return the new ids."""
    start = tokens.shape[-1]
    for _ in range(count):
        logits = np.asarray(predict(tokens[:, -context:]))[:, -1]
        logits = logits / temperature
        if rng is not None:
            # Adding Gumbel noise to the logits and taking the largest draws with exactly the softmax probabilities.
            logits = logits + rng.gumbel(size=logits.shape)
        tokens = np.concatenate([tokens, np.argmax(logits, axis=-1)[:, None]], axis=-1)
    return tokens[:, start:]


def answer_length(model: Model, batch: Batch) -> int:
    """Return how many ids fit after the tokens."""
    room = model.config.context - batch.tokens.shape[-1]
    return room + (0 if isinstance(model.config, EncoderDecoderConfig) else 1)
