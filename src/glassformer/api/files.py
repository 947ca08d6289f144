"""Models into folders, and from the arrays of other programs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import TransformerConfig
from ..core.errors import ConfigError
from ..text.tokenizer import Tokenizer
from ..trained_model import TrainedModel
from ..weights.foreign import Table, params_from, read_arrays
from ..weights.saved import save_folder


def from_arrays(
    config: TransformerConfig,
    arrays: Mapping[str, Any] | str | Path,
    table: Table,
    *,
    ignored: Sequence[str] = (),
    tokenizer: Tokenizer | None = None,
) -> TrainedModel:
    """Return a model with the weights of another program, by a table of names.

    arrays    by name; or a file of them: .safetensors, .npz, or a state dict of PyTorch, whose pickle is not run
    table     our dotted names to theirs; a `gf.Foreign` where an array has another layout. A * stands for the number
              of a block
    ignored   patterns of names that the model does not need, such as "blocks.*.attn.mask"

    >>> import numpy as np, glassformer as gf
    >>> config = gf.DecoderConfig(
    ...     vocab=3,
    ...     width=2,
    ...     heads=1,
    ...     layers=1,
    ...     context=4,
    ...     positions="none",
    ...     norm="none",
    ...     block="attention_only",
    ...     attention_bias=False,
    ... )
    >>> theirs = {"E": np.eye(3, 2), **{f"layer0.{name}": np.eye(2)[None] for name in ("Q", "K", "V", "O")}}
    >>> table = (
    ...     {"embedding.tokens.table": "E"}
    ...     | {
    ...         f"blocks.*.attention.{ours}.w": gf.Foreign(f"layer*.{name}", "heads a b -> a heads b")
    ...         for ours, name in (("query", "Q"), ("key", "K"), ("value", "V"))
    ...     }
    ...     | {"blocks.*.attention.output.w": "layer*.O"}
    ... )
    >>> gf.from_arrays(config, theirs, table)
    TrainedModel(decoder, 22 parameters)
    """
    source = "" if isinstance(arrays, Mapping) else str(arrays)
    found = arrays if isinstance(arrays, Mapping) else read_arrays(arrays)
    return TrainedModel(config, params_from(config, found, table, ignored=ignored), tokenizer, source=source)


def save(model: TrainedModel, path: str | Path) -> Path:
    """Write a model into a folder, exactly as it is, and return the folder; `gf.load` reads it.

    A folder that holds a saved model already is replaced, any other one that is not empty refused. The commands read it
    too: `glassformer generate FOLDER`. For other programs, see `TrainedModel.export`.

    >>> import tempfile, glassformer as gf
    >>> model = gf.train(None, "majority", steps=1, show=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = gf.load(gf.save(model, folder + "/majority"))
    >>> again.config == model.config, again.labels, len(again.history)
    (True, ('0', '1', '2'), 1)
    """
    if not isinstance(model, TrainedModel):
        raise ConfigError(
            f"this is a {type(model).__name__}, not a trained model",
            hint="save what gf.train or gf.load returned, or gf.TrainedModel(model.config, params)",
        )
    if not isinstance(path, str | Path):
        raise ConfigError(f"the folder for a model is {path!r:.80}", hint="pass a path")
    return save_folder(model, path)
