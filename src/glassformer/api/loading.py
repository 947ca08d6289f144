"""Models by where they are: a run of our own, published weights in a file or folder, a pulled model, or the hub.

a folder              that `glassformer train` or `gf.save` wrote, or with config.json and model.safetensors
a file                in the format GGUF (.gguf) or of llama2.c (.bin)
smollm2, minilm       fetched by `glassformer pull`
hf:org/name           a model of the Hugging Face hub
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..config import EncoderConfig, TransformerConfig
from ..core import dispatch
from ..core.errors import ConfigError, WeightsError
from ..core.quantized import FORMS
from ..core.reporting import granted
from ..core.tree import tree_map
from ..generation.storage import AS_STORED
from ..text import PublishedTokenizer, Tokenizer
from ..text.published import TOKENIZER
from ..weights.family import Names
from ..weights.foreign import params_from, read_arrays
from ..weights.stores import Store, adapted_name, base_path, is_run, locate, split_adapter, store_at
from .trained_model import TrainedModel

__all__ = ["from_arrays", "is_run", "load", "load_config", "load_tokenizer", "locate", "read_model"]


def load(
    path: str | Path, *, adapter: str | Path | None = None, weights: str | None = None, trust: bool = False
) -> TrainedModel:
    """Return any model, ready to be used: one that `gf.save` or a run wrote, or published weights.

    path      a run folder (its best parameters), a folder of `gf.save` or of Hugging Face, a file in the format GGUF or
              of llama2.c, a name that `glassformer models` lists, such as "smollm2" or "minilm", or hf:org/name
    adapter   a folder of LoRA adapters that PEFT or `export(format="peft")` wrote, which are merged into the model; as
              `path`, such a folder is read with the model that it names
    weights   how those of decoders and encoder-decoders are kept: float32, float16, int8, int4, or as-stored: in the
              blocks of a GGUF file. The fewer bits, the sooner an answer. None: as a GGUF file stores them, and float32
              otherwise. The engine jax has float32 (unless told otherwise), bfloat16 and float16, on its device
    trust     let the Python files that a run was trained with run here, now and later; your own runs need no trust

    >>> import tempfile, glassformer as gf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = gf.save(gf.train("counting", show=False), folder + "/counting")
    ...     model = gf.load(place)
    >>> model.generate("1", temperature=0, max_new_tokens=5).text
    ' 2 3 4 5 6'
    """
    if not isinstance(path, str | Path):
        raise ConfigError(f"the place of a model is {path!r:.80}", hint="pass a path, a known name, or hf:org/name")
    if not isinstance(adapter, str | Path | None):
        raise ConfigError(f"the adapter is {adapter!r:.80}", hint="pass a folder that PEFT wrote")
    if adapter is not None:
        path = adapted_name(path, adapter)
    how = _storage(locate(path), weights)
    with granted(trust or None):
        model = read_model(path, blocks=how == AS_STORED)
    if not isinstance(model.config, EncoderConfig):
        model = model.kept_as(how)
    elif how != "float32":
        raise ConfigError(f"the weights of encoders are not kept as {how}", hint="leave out weights")

    def own(array: Any) -> Any:  # parameters may be changed, and those that are mapped from a file are copied for it
        return array.copy() if isinstance(array, np.ndarray) and not array.flags.writeable else array

    return replace(model, params=tree_map(own, model.params))


def read_model(source: str | Path, *, blocks: bool = False) -> TrainedModel:
    """Read the model at a path, a pulled one by its name, or one of the hub; its parameters are as its files have them.

    blocks    matrices of a GGUF file stay in the blocks in which it stores them
    """
    path = locate(source)
    if split_adapter(path) is not None:
        from ..runs.run import read_model as read_adapted

        return TrainedModel.of(read_adapted(source, blocks=blocks))
    return TrainedModel.of(replace(_store(path).model(path, FORMS if blocks else ()), source=str(source)))


def load_config(path: str | Path) -> TransformerConfig:
    """Return the config of any model; of a folder, nothing but its config.json is read."""
    base = base_path(path)
    return _store(base).config(base)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Return the tokenizer of any model, or the one in a tokenizer.json."""
    base = base_path(path)
    if base.suffix == ".json" or (base / TOKENIZER).is_file():
        return PublishedTokenizer.load(base)
    tokenizer = _store(base).tokenizer(base)
    if tokenizer is None:
        raise WeightsError(f"{path} has no tokenizer that can be read", hint=f"get its {TOKENIZER} as well")
    return tokenizer


def _store(path: Path) -> Store:
    """Return the reader of what is at a path."""
    if is_run(path):
        from ..runs.run import RUNS  # without what trains, others are loaded sooner

        return RUNS
    return store_at(path)


def from_arrays(
    config: TransformerConfig,
    arrays: Mapping[str, Any] | str | Path,
    table: Names,
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


def _storage(place: Path, weights: str | None) -> str:
    """Return how weights are to be kept."""
    if weights is None:
        # Without kernels, blocks would be turned into numbers again for every token.
        return AS_STORED if place.suffix == ".gguf" and dispatch.current().executor.keeps_blocks else "float32"
    dispatch.current().executor.check_storage(weights)
    if weights == AS_STORED and place.suffix != ".gguf":
        raise ConfigError(
            f"only GGUF files are used as they are stored, and {place} is none",
            hint="choose float32, float16, int8 or int4",
        )
    return weights
