"""Classes of texts or of token ids, with the probability of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import ops
from ..arrays import Array, check_length
from ..config import EncoderConfig
from ..data.examples import stack
from ..errors import ConfigError, LengthError
from ..models import Batch
from ..text import PublishedTokenizer
from ..trained_model import TrainedModel


@dataclass(frozen=True)
class Classification:
    """What a classifier says about one sequence.

    label           the name of the likeliest class
    index           its number
    probability     how likely it is
    probabilities   of all classes, by name
    """

    label: str
    index: int
    probability: float
    probabilities: dict[str, float]


def classify(model: TrainedModel, inputs: Any) -> Any:
    """Return a `Classification` of a text or a sequence of ids, or a list of them for several."""
    if not model.is_classifier:
        is_encoder = isinstance(model.config, EncoderConfig)
        what = "an encoder without a head for classes" if is_encoder else "no encoder"
        raise ConfigError(
            f"this is {what}, so it tells no classes apart",
            hint="use an encoder that was trained on classes, such as gf.train(None, 'majority')",
        )
    is_ordered = hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__") and not isinstance(inputs, Mapping)
    if not is_ordered or (len(inputs) == 0 and not isinstance(inputs, str)):
        fact = f"there is nothing to classify: this is a {type(inputs).__name__}"
        raise LengthError(fact, hint="pass a text, token ids, or a list of either")
    single = isinstance(inputs, str) or (np.ndim(inputs[0]) == 0 and not isinstance(inputs[0], str))
    tokens, mask = stack([_ids(model, one) for one in ([inputs] if single else inputs)])
    logits, _ = model.model.predict(model.params, Batch(tokens, mask=None if mask.all() else mask))
    found = [_classified(model, row) for row in np.asarray(ops.softmax(logits)[0])]
    return found[0] if single else found


def _ids(model: TrainedModel, given: Any) -> Array:
    """Return the ids of one text or sequence."""
    if isinstance(given, str):
        if model.tokenizer is None:
            raise ConfigError("this model has no tokenizer to read text with", hint="pass token ids")
        around = {"specials": True} if isinstance(model.tokenizer, PublishedTokenizer) else {}
        given = model.tokenizer.encode(given, **around)
    ids = np.asarray(given)
    if ids.size and (ids.ndim != 1 or ids.dtype.kind not in "iu"):
        raise LengthError(
            f"one input has shape {ids.shape} and type {ids.dtype}",
            hint=f"pass a text, or 1 to {model.config.context:,} token ids",
        )
    check_length(ids.size, model.config.context, what="the input")
    return ids


def _classified(model: TrainedModel, probabilities: Array) -> Classification:
    labels = model.labels or tuple(map(str, range(len(probabilities))))
    index = int(np.argmax(probabilities))
    named = {label: float(share) for label, share in zip(labels, probabilities, strict=True)}
    return Classification(labels[index], index, float(probabilities[index]), named)
