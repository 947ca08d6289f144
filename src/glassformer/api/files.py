"""Models into folders and back: of any architecture, trained here or published."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Tree
from ..config import EncoderConfig, TransformerConfig
from ..data import Task
from ..errors import ConfigError, GlassformerError
from ..loading import load_stored, task_of
from ..runs.run import open_run, takes_lexicon
from ..runs.trust import granted
from ..text.tokenizer import Tokenizer
from ..training import History
from ..tree import tree_map
from ..weights.foreign import Table, params_from, read_arrays
from ..weights.loaded import Loaded
from ..weights.places import is_run, locate
from ..weights.saved import save_folder
from .tasks import class_labels
from .trained_model import TrainedModel


def load(path: str | Path, *, weights: str | None = None, trust: bool = False) -> TrainedModel:
    """Return any model, ready to be used: one that `gf.save` or a run wrote, or published weights.

    path      a run folder (its best parameters), a folder of `gf.save` or of Hugging Face, a file in the format GGUF or
              of llama2.c, a name that `glassformer models` lists, such as "smollm2" or "minilm", or hf:org/name
    weights   how those of decoders and encoder-decoders are kept: float32, float16, int8, int4, or as-stored: in the
              blocks of a GGUF file. The fewer bits, the sooner an answer. None: as a GGUF file stores them, and float32
              otherwise. The engine jax has float32 (unless told otherwise), bfloat16 and float16, on its device
    trust     let the Python files that a run was trained with run here, now and later; your own runs need no trust

    >>> import tempfile, glassformer as gf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = gf.save(gf.train(None, "counting", show=False), folder + "/counting")
    ...     model = gf.load(place)
    >>> model.generate("1", temperature=0, max_new_tokens=5).text
    ' 2 3 4 5 6'
    """
    if not isinstance(path, str | Path):
        raise ConfigError(f"the place of a model is {path!r:.80}", hint="pass a path, a known name, or hf:org/name")
    place = locate(path)
    if trust and is_run(place):
        with granted(True):
            open_run(place)
    loaded = load_stored(path, weights=weights)
    origin = loaded.notes.get("task")
    history = History.from_metrics(loaded.notes.get("metrics", ()))
    labels: tuple[str, ...] = loaded.labels
    maker: Callable[[], Task] | None = None if origin is None else partial(task_of, loaded)
    if is_run(place):
        run = open_run(place)
        maker, origin = run.task, {"name": run.task_name, "options": run.task_options}
        origin["lexicon"] = run.base is not None and takes_lexicon(run.task_name)
        history = History.from_metrics(run.metrics())
        labels = _labels(loaded, run.task)
    return TrainedModel(
        config=loaded.config,
        params=_writeable(loaded.params),
        tokenizer=loaded.tokenizer,
        target_tokenizer=loaded.target_tokenizer,
        start_id=loaded.start_id,
        end_ids=loaded.end_ids,
        chat_template=loaded.chat_template,
        pooling=loaded.pooling,
        family=loaded.family,
        labels=labels,
        history=history,
        source=str(path),
        extras=loaded.extras,
        execution=loaded.execution,
        origin=origin,
        task_maker=maker,
    )


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
    return save_folder(model.loaded, path)


def _labels(loaded: Loaded, maker: Callable[[], Task]) -> tuple[str, ...]:
    """Return what the classes of a run are called: by their numbers where its data is gone."""
    if not isinstance(loaded.config, EncoderConfig):
        return ()
    try:
        return class_labels(maker(), loaded.config)
    except GlassformerError:
        return ()


def _writeable(params: Tree) -> Tree:
    """Return parameters that may be changed: arrays that are mapped from a file are copied."""

    def own(array: Any) -> Any:
        return array.copy() if isinstance(array, np.ndarray) and not array.flags.writeable else array

    return tree_map(own, params)
