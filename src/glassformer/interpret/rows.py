"""The vectors of a value, one row per real token: what probes learn from and similarity compares."""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..errors import ConfigError
from .names import check_name
from .run import Run
from .where import is_of_source


def token_rows(run: Run, name: str) -> Array:
    """Return a value (B, T, D) as rows (N, D), padding left out; of one vector per example, (B, D) as it is."""
    check_name(name, run)
    x = run[name]
    if x.ndim == 2:
        return x
    if x.ndim != 3:
        raise ConfigError(f"{name} has shape {x.shape}", hint="choose a value with one vector per token, (B, T, D)")
    return x[real_tokens(run, x.shape[1], source=is_of_source(name))]


def real_tokens(run: Run, length: int, *, source: bool = False) -> Array:
    """Return which places are tokens and not padding, (B, length); a learned first vector is none."""
    source = source and run.batch.source is not None
    mask = run.batch.source_mask if source else run.batch.mask
    tokens = np.asarray(run.batch.source if source else run.batch.tokens).shape
    real = np.ones(tokens, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    return np.pad(real, ((0, 0), (length - tokens[1], 0)), constant_values=False)
