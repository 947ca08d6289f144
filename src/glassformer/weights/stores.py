"""The registry of stores: readers of models, by what a path holds; and the names that stand for paths.

A name is a path, that of a pulled model, or hf:org/name. A model with an adapter is called MODEL+FOLDER, or by the
folder alone, which names its base. `locate` returns the path, and the first store that matches it reads the model.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

from ..config import TransformerConfig
from ..core import reporting
from ..core.errors import CheckpointError, ConfigError, WeightsError, first_line
from ..text import Tokenizer
from .loaded_model import LoadedModel

HUB = "hf:"
"""The beginning of names of models of the Hugging Face hub."""
ADAPTER = "adapter_config.json"
_followed: ContextVar[tuple[Path, ...]] = ContextVar("followed", default=())
"""The folders whose base models are being read."""
# No pickles, and no weights in other frameworks' formats.
_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja"]


def locate(model: str | Path) -> Path:
    """Return the file or folder that a path, the name of a pulled model or hf:org/name stands for.

    A model with an adapter has no path of its own: for it, this is MODEL+FOLDER, which `split_adapter` splits.
    """
    from ..models import PRESETS
    from .catalog import CATALOG, resolve

    # A path of Windows would have turned the slash of a name around.
    name = model.as_posix() if isinstance(model, PurePath) else model
    path = Path(model)
    if (parts := split_adapter(model)) is not None:
        base, folder = parts
        with following(folder):
            base = named_base(base, folder) if _is_adapter(path) else base
            locate(base)  # refused if it is not there
        return Path(f"{base}+{folder}")
    if name.startswith(HUB):
        return hub_folder(name)
    if os.path.exists(path):  # a name that no system takes stands for nothing
        if not (path.is_dir() or path.is_file()):
            raise WeightsError(f"{model} is a pipe or a device", hint="pass a folder or a file of weights")
        return path.parent if path.suffix == ".safetensors" else path
    if name in CATALOG:
        if (pulled := resolve(name)) is not None:
            return pulled
        hint = f"fetch it with `glassformer pull {name}` (in Python: gf.pull({name!r}))"
        raise WeightsError(f"{name} has not been fetched yet", hint=hint)
    if name in PRESETS:
        raise CheckpointError(
            f"{name} is a preset: a config without weights",
            hint="name weights instead: a folder or file of them, hf:org/name, or a model of `glassformer models`; or "
            f"train it: glassformer train text --preset {name}",
        )
    raise CheckpointError(
        f"there is no {model}: it is not a run folder, a file or folder of weights, or a known name",
        hint="pass the folder that `glassformer train` wrote, or one with config.json and model.safetensors; "
        "`glassformer models` lists the known names",
    )


def base_path(name: str | Path) -> Path:
    """Return the path of a model by its name; of one with adapters, that of its base model."""
    path = locate(name)
    while (adapted := split_adapter(path)) is not None:
        path = locate(adapted[0])
    return path


def split_adapter(path: str | Path) -> tuple[str, Path] | None:
    """Return the base model and the folder of a model with an adapter; None for any other model."""
    name, folder = str(path), Path(path)
    if _is_adapter(folder):
        return None if (folder / "config.json").is_file() else (_base_of(folder), folder)
    cuts = [i for i, letter in enumerate(name) if letter == "+" and _is_adapter(Path(name[i + 1 :]))]
    return (name[: cuts[0]], Path(name[cuts[0] + 1 :])) if cuts and cuts[0] else None


def _is_adapter(folder: Path) -> bool:
    return os.path.isfile(folder / ADAPTER)  # which a name that no system takes is not either


def adapted_name(model: str | Path, folder: str | Path) -> str:
    """Return what a model with an adapter is called."""
    if not _is_adapter(Path(folder)):
        raise WeightsError(
            f"{folder!s:.200} is no folder of an adapter: it has no {ADAPTER}",
            hint=f"pass a folder with {ADAPTER} and adapter_model.safetensors, as PEFT writes them",
        )
    return f"{model}+{folder}"


def _base_of(folder: Path) -> str:
    """Return the base model that the folder of an adapter names: a path, a pulled model, or one of the hub."""
    from .catalog import CATALOG
    from .fields import read_json

    name = read_json(folder / ADAPTER).get("base_model_name_or_path")
    known = {entry.hub: entry.name for entry in CATALOG.values() if entry.is_complete}
    if isinstance(name, str) and (os.path.exists(name) or name in CATALOG or name in known):
        return known.get(name, name)
    if isinstance(name, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return HUB + name
    raise WeightsError(
        f"the adapter in {folder} belongs to {str(name)[:200]!r}, which is not here",
        hint="name the model: gf.load(MODEL, adapter=FOLDER), or MODEL --adapter FOLDER",
    )


@contextmanager
def following(folder: Path) -> Iterator[None]:
    """Read the base model of a folder inside the block; refuse a base that leads back to its own folder."""
    chain, path = _followed.get(), folder.resolve()
    if path in chain:
        hint = "name another base model in it, or get the folder again"
        raise CheckpointError(f"the base model of {folder} leads back to {folder} itself", hint=hint)
    token = _followed.set((*chain, path))
    try:
        yield
    finally:
        _followed.reset(token)


def named_base(name: str, folder: Path) -> str:
    """Return where to read a base model that a file in `folder` names.

    One of the hub is read from the cache. What is not there is downloaded only if the user says so: a folder of someone
    else must not decide what this machine asks the network for.
    """
    if not _is_adapter(Path(name)) and (parts := split_adapter(name)) is not None:
        return f"{named_base(parts[0], folder)}+{parts[1]}"
    if not name.startswith(HUB):
        return name
    with suppress(WeightsError):
        return str(hub_folder(name, is_cached=True))
    if not reporting.ask(f"{folder} was made from {name}, which is not here. Download it from the Hugging Face hub?"):
        raise WeightsError(
            f"{folder} was made from {name}, which is not here, and nothing is downloaded because a file says so",
            hint=f"to allow it, fetch the model by its name first: glassformer tokenize {name} hello",
        )
    return str(hub_folder(name))


def hub_name(source: str) -> str:
    """Return what a model is called on the hub, where it is known to be there; else what it is called here."""
    from .catalog import CATALOG

    return CATALOG[source].hub if source in CATALOG else source.removeprefix(HUB)


def hub_folder(name: str, *, is_cached: bool = False) -> Path:
    """Return the folder of `hf:org/name`, or of `hf:org/name@revision`; what is not in the cache is downloaded.

    Its own library downloads, and keeps the cache. With `is_cached`, it asks no network.
    """
    match = re.fullmatch(r"hf:((?:[\w.-]+/)?[\w.-]+)(?:@([\w./-]+))?", name)
    if match is None:
        raise ConfigError(f"{name!r} is no model of the hub", hint="write hf:org/name, or hf:org/name@revision")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        hint = 'install it: pip install "glassformer[hub]"; or pass a folder that you downloaded yourself'
        raise ConfigError(f"{name} comes through huggingface_hub, which is not installed", hint=hint) from None
    settings = {"local_files_only": True} if is_cached else {}
    try:
        return Path(snapshot_download(match[1], revision=match[2], allow_patterns=_FILES, **settings))
    except Exception as error:  # those of the library, and of the ones it downloads with, have no common class
        hint = "check the name and the connection; HF_HUB_OFFLINE=1 uses what is in the cache"
        causes = (error, error.__cause__, error.__context__)
        offline = any("Connect" in f"{type(cause).__name__}: {cause}" for cause in causes if cause is not None)
        reason = "the Hugging Face hub cannot be reached" if offline else first_line(error)
        raise WeightsError(f"{name} cannot be downloaded: {reason}", hint=hint) from error


# --- the stores ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Store:
    """A reader of one kind of model.

    matches      whether it reads what is at a path
    model        the model; of a GGUF file, matrices of the types that are handed on stay in blocks
    config       the config alone
    tokenizer    the tokenizer alone; None where there is none that can be read
    """

    matches: Callable[[Path], bool]
    model: Callable[[Path, Collection[str]], LoadedModel]
    config: Callable[[Path], TransformerConfig]
    tokenizer: Callable[[Path], Tokenizer | None]


@cache
def published_stores() -> tuple[Store, ...]:
    """Return the readers of folders of `gf.save` and of Hugging Face, of GGUF files, and of files of llama2.c."""
    # To find a model, or to read a run, takes none of these.
    from .folder import is_published, open_folder, read_config
    from .gguf import SUFFIX, open_gguf, read_parts
    from .llama2c import is_llama2c, open_llama2c
    from .saved import is_saved, open_saved, read_saved_config

    return (
        Store(is_saved, lambda path, _: open_saved(path), read_saved_config, lambda path: open_saved(path).tokenizer),
        Store(is_published, lambda path, _: open_folder(path), read_config, lambda path: open_folder(path).tokenizer),
        Store(
            lambda path: path.suffix == SUFFIX and path.is_file(),
            lambda path, blocks: open_gguf(path, kept=blocks),
            lambda path: read_parts(path)[1],
            lambda path: read_parts(path)[0],
        ),
        Store(
            is_llama2c,
            lambda path, _: open_llama2c(path),
            lambda path: open_llama2c(path).config,
            lambda path: open_llama2c(path).tokenizer,
        ),
    )


def store_at(path: Path, others: Iterable[Store] = ()) -> Store:
    """Return the first store that reads what is at a path, `others` before those of published models."""
    from .tensors import PICKLES, refuse_pickle

    for store in (*others, *published_stores()):
        if store.matches(path):
            return store
    if path.suffix in PICKLES:
        refuse_pickle(path)
    fact = f"{path} is no file of weights of a known kind"
    raise WeightsError(fact, hint="known: a folder, .gguf, and .bin of llama2.c")


def is_run(path: Path) -> bool:
    """Return whether a folder is (or should be) a run of our own."""
    from .folder import is_published

    return path.is_dir() and not is_published(path)
