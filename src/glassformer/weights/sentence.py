"""One vector for a text: what encoders of sentences are for."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from .. import ops
from ..config import EncoderConfig, TransformerConfig
from ..core.arrays import Array
from ..core.dispatch import current
from ..core.errors import ConfigError, LengthError, WeightsError
from ..core.reporting import report
from ..core.settings import texts_of
from ..core.sources import check_once
from ..core.tree import tree_map
from ..data.examples import stack
from ..models import Batch, build
from ..models.costs import length_batches
from ..models.model import Pooling
from ..text import PublishedTokenizer
from .loaded_model import LoadedModel

NEW = ("pooled_norm", "classifier")
"""The parts that a new head for classes consists of."""


@check_once
def embed(loaded: LoadedModel, texts: str | Sequence[str]) -> Array:
    """Return one vector for each text, (N, D), or (D,) for one: its tokens' vectors, pooled as the model was trained.

    A classifier pools as it does before its classes are told apart; other models without a setting take the mean. The
    vectors of both are normalized. Texts of about the same length are read as one batch; padding changes nothing.
    """
    if isinstance(texts, str):
        return embed(loaded, [texts])[0]
    texts = texts_of(texts)
    if not all(texts):
        raise LengthError("a text is empty", hint="leave it out")
    ids = encode_texts(loaded, texts)
    for text, row in zip(texts, ids, strict=True):
        if not 1 <= len(row) <= loaded.config.context:
            fact = f"the text {text[:40]!r} has {len(row):,} tokens but this model reads 1 to {loaded.config.context:,}"
            raise LengthError(fact, hint="split it into parts")
    vectors: Any = np.zeros((len(ids), loaded.config.width), dtype=loaded.params["embedding"]["tokens"]["table"].dtype)
    done, turn = [0], Lock()

    def read(rows: list[int]) -> None:
        pooled = _pooled(loaded, [ids[i] for i in rows])
        with turn:
            vectors[rows] = pooled
            done[0] += len(rows)
            report(done[0], len(ids), "texts")

    current().executor.each(partial(read, rows) for rows in length_batches([len(row) for row in ids], loaded.config))
    return vectors


def encode_texts(loaded: LoadedModel, texts: Sequence[str]) -> list[Array]:
    """Return the ids of texts as an encoder reads them; refuse other models."""
    if not isinstance(loaded.config, EncoderConfig):
        fact = f"this is a {loaded.config.architecture}, and only encoders give vectors of texts"
        raise ConfigError(fact, hint="use an encoder, such as the one that `glassformer pull minilm` brings")
    if loaded.tokenizer is None:
        raise WeightsError(f"{loaded.source} has no tokenizer to read text with", hint="get its tokenizer.json as well")
    around = {"specials": True} if isinstance(loaded.tokenizer, PublishedTokenizer) else {}
    return [loaded.tokenizer.encode(text, **around) for text in texts]


def unit_vectors(vectors: Array) -> Array:
    """Return vectors of length 1, whose products are cosines; a vector of zeros stays one."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(vectors.dtype).tiny)


def similarities(vectors: Array) -> Array:
    """Return the cosine between every two vectors, (N, N)."""
    unit = unit_vectors(vectors)
    return unit @ unit.T


def without_head(config: TransformerConfig) -> TransformerConfig:
    """Return the config of an encoder that hands on its vectors."""
    settings: dict[str, Any] = {"head": "none", "classes": None, "pooling": "mean", "pooled_norm": False}
    return config.replace(**settings, pooled_activation=None, head_bias=False, tied_head=True)


def classes_config(config: TransformerConfig, classes: int, pooling: Pooling | None) -> TransformerConfig:
    """Return the config of an encoder with a head that tells classes apart by the vectors of `embed`."""
    pooling = pooling or Pooling()
    settings = {"head": "classes", "classes": classes, "pooling": pooling.kind, "pooled_norm": pooling.normalize}
    return without_head(config).replace(**settings)


def with_classes(loaded: LoadedModel, classes: int, seed: int) -> LoadedModel:
    """Return an encoder with such a head, drawn from a seed."""
    config = classes_config(loaded.config, classes, loaded.pooling)
    specs, rng = build(config).specs(), np.random.default_rng(seed)
    drawn = {name: tree_map(lambda spec: spec.draw(rng, np.float32), specs[name]) for name in specs if name in NEW}
    params = {name: drawn[name] if name in NEW else loaded.params[name] for name in specs}
    return replace(loaded, config=config, params=params, extras={})


def _pooled(loaded: LoadedModel, rows: list[Array]) -> Array:
    tokens, real = stack(rows)
    mask = None if real.all() else real
    pooling = Pooling() if loaded.pooling is None else loaded.pooling
    if loaded.is_classifier and loaded.pooling is None:
        _, saved = loaded.model.predict(loaded.params, Batch(tokens, mask=mask))
        pooled = saved["classifier"].x
    else:
        # The head, if there is one, is about tokens; the vectors are what it reads.
        encoder: Any = build(without_head(loaded.config))
        vectors, _ = encoder.forward(loaded.params, tokens, mask=mask)
        pooled = ops.mean_pool(vectors, mask=mask)[0] if pooling.kind == "mean" else vectors[:, 0]
    if not pooling.normalize:
        return pooled
    return pooled / np.maximum(np.linalg.norm(pooled, axis=-1, keepdims=True), 1e-12)
