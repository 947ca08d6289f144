"""What a family of published models is: a table of names and a translation of its config, used in both directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig, config_from_dict
from ..errors import ConfigError, WeightsError, did_you_mean
from ..models import build
from ..tree import flatten, unflatten
from .fields import Fields
from .tensors import Tensors

TABLE, HEAD = "embedding.tokens.table", "head.w"


@dataclass(frozen=True)
class Tensor:
    """How one of our parameters is published.

    name         its name in the files of the class with the head
    transposed   stored as (outputs, inputs), where ours are (inputs, outputs)
    part         (i, n): it is the i-th of n equal parts of a fused matrix, side by side along the last axis
    skipped      rows at the top of the stored table that the model never looks up
    twin         a second name of the same values; it serves where the first is missing
    """

    name: str
    transposed: bool = False
    part: tuple[int, int] | None = None
    skipped: int = 0
    twin: str | None = None

    def published_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in the file of a parameter of ours."""
        if self.transposed:
            shape = shape[::-1]
        if self.part is not None:
            shape = (*shape[:-1], shape[-1] * self.part[1])
        return (shape[0] + self.skipped, *shape[1:])

    def read(self, stored: Array) -> Array:
        """Return our parameter as a view of what the file holds."""
        if self.part is not None:
            number, parts = self.part
            width = stored.shape[-1] // parts
            stored = stored[..., number * width : (number + 1) * width]
        stored = stored[self.skipped :]
        return stored.T if self.transposed else stored


@dataclass(frozen=True)
class Family:
    """One kind of published model.

    name           its `model_type`
    architecture   which of our three it is
    classes        the published classes it covers, each with the head of an encoder ("tokens" for all that write)
    prefix         of the names in files of a class with a head; files of the bare model leave it out
    table          our names to published ones for a config; it may hold more than a config has
    read, write    the fields of config.json to our settings, and back
    ignored        patterns of names that hold nothing our model needs
    kept           those of them that the bare published class has all the same, with their shapes for a config
    renamed        older spellings of names
    """

    name: str
    architecture: str
    classes: dict[str, str]
    prefix: str
    table: Callable[[TransformerConfig], dict[str, Tensor]]
    read: Callable[[Fields], dict[str, Any]]
    write: Callable[[Any], dict[str, Any]]
    ignored: tuple[str, ...] = ()
    kept: Callable[[Any], dict[str, tuple[int, ...]]] = lambda config: {}
    renamed: tuple[tuple[str, str], ...] = ()

    def bare(self, name: str) -> str:
        """Return a name without its prefix and in its newer spelling."""
        name = name.removeprefix(self.prefix)
        for old, new in self.renamed:
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name

    def config(self, values: Fields, head: str) -> TransformerConfig:
        """Return our config; `head` is that of an encoder."""
        values.only("quantization_config", None)
        settings = {"architecture": self.architecture, **self.read(values)}
        if self.architecture == "encoder":
            settings |= {"head": head, "head_bias": head == "tokens"}
            if head == "none":
                settings["tied_head"] = True  # there is no head to be untied
        try:
            return config_from_dict(settings)
        except ConfigError as error:
            raise WeightsError(f"{values.source}: {error.fact}", hint=error.hint) from None

    def head_of(self, values: Fields, names: Iterator[str] | None = None) -> str:
        """Return which head the published class has; without a class, the names of the tensors tell."""
        classes = values.get("architectures", None)
        if not classes:
            heads = {table.name for ours, table in self._heads().items() if ours.startswith("head.transform")}
            found = {self.bare(name) for name in names or ()}
            return "tokens" if not heads or any(self.bare(name) in found for name in heads) else "none"
        if not isinstance(classes, list) or classes[0] not in self.classes:
            word = str(classes[0] if isinstance(classes, list) else classes)[:80]
            raise WeightsError(
                f"{values.source} is about a {word}, which is not supported", hint=did_you_mean(word, self.classes)
            )
        return self.classes[classes[0]]

    def class_of(self, config: TransformerConfig) -> str:
        """Return the published class for a config of ours."""
        head = config.head if isinstance(config, EncoderConfig) else "tokens"
        return next((name for name, known in self.classes.items() if known == head), "")

    def names(self, config: TransformerConfig) -> dict[str, Tensor]:
        """Return where each parameter of a config is published."""
        table = self.table(config)
        wanted = flatten(build(config).specs())
        bare = isinstance(config, EncoderConfig) and config.head == "none"
        found = {ours: table[ours] for ours in wanted}
        return {k: _renamed(t, t.name.removeprefix(self.prefix)) for k, t in found.items()} if bare else found

    def _heads(self) -> dict[str, Tensor]:
        if self.architecture != "encoder":
            return {}
        sizes: dict[str, Any] = {"vocab": 1, "width": 1, "heads": 1, "layers": 1, "context": 1, "segments": 1}
        return self.table(EncoderConfig(**sizes, head="tokens", head_bias=True))


def read_params(
    family: Family, config: TransformerConfig, tensors: Tensors, dtype: Any = np.float32
) -> tuple[TransformerConfig, Tree]:
    """Return the parameters of a model, and its config with the head that the files really have.

    A tensor that is missing, is not known, or has another shape is named in the error.
    """
    found = _by_bare_name(family, tensors)
    config = _with_stored_head(family, config, tensors, found)
    names = family.names(config)
    specs = flatten(build(config).specs())
    places = {ours: _place(family, tensor, found) for ours, tensor in names.items()}
    _check_names(family, names, places, found)
    leaves = {}
    for ours, tensor in names.items():
        have, want = tensors.stored[places[ours]].shape, tensor.published_shape(specs[ours].shape)
        if have != want:
            raise WeightsError(
                f"the tensor {places[ours]} has shape {have}, but config.json asks for {want}",
                hint="the config belongs to other weights: get both from one place",
            )
        leaves[ours] = tensor.read(tensors.read(places[ours], dtype))
    return config, filled(leaves, build(config).specs())


def differences(family: Family, config: TransformerConfig) -> list[str]:
    """Return the settings of a config that a family has no field for: those that do not survive the translation."""
    if family.architecture != config.architecture:
        return ["architecture"]
    name = family.class_of(config)
    if not name:
        return ["head"]
    head = config.head if isinstance(config, EncoderConfig) else "tokens"
    try:
        back = family.config(Fields({**family.write(config), "architectures": [name]}), head)
    except WeightsError as error:
        return [error.fact]
    have, want = _effective(back), _effective(config)
    return [name for name in want if have.get(name) != want[name]]


def filled(leaves: dict[str, Array], specs: Tree) -> Tree:
    """Nest parameters as a model has them, parts without any (such as a tied head) included."""
    tree = unflatten(leaves)

    def fill(part: Tree, like: Tree) -> Tree:
        if isinstance(like, dict):
            return {
                name: fill(part.get(name, {}) if isinstance(part, dict) else {}, inner) for name, inner in like.items()
            }
        if isinstance(like, list):
            return [fill(one, inner) for one, inner in zip(part, like, strict=True)]
        return part

    return fill(tree, specs)


def linear(ours: str, theirs: str, *, transposed: bool = True) -> dict[str, Tensor]:
    """Return the names of a linear map."""
    return {f"{ours}.w": Tensor(f"{theirs}.weight", transposed), f"{ours}.b": Tensor(f"{theirs}.bias")}


def norm(ours: str, theirs: str) -> dict[str, Tensor]:
    """Return the names of a norm."""
    return {f"{ours}.gamma": Tensor(f"{theirs}.weight"), f"{ours}.beta": Tensor(f"{theirs}.bias")}


def _renamed(tensor: Tensor, name: str) -> Tensor:
    return Tensor(name, tensor.transposed, tensor.part, tensor.skipped, tensor.twin)


def _by_bare_name(family: Family, tensors: Tensors) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in tensors.stored:
        bare = family.bare(name)
        if bare in found:
            raise WeightsError(f"{found[bare]} and {name} are the same tensor", hint="get the files from one place")
        found[bare] = name
    return found


def _with_stored_head(
    family: Family, config: TransformerConfig, tensors: Tensors, found: dict[str, str]
) -> TransformerConfig:
    """Give a head of its own to a model that says it is tied, but whose files hold another matrix."""
    table = family.table(config)
    head, tokens = (found.get(family.bare(table[name].name)) for name in (HEAD, TABLE))
    if not config.tied_head or head is None or tokens is None:
        return config
    if isinstance(config, EncoderConfig) and config.head != "tokens":
        return config
    same = tensors.stored[head].shape == tensors.stored[tokens].shape
    if same and np.array_equal(tensors.read(head), tensors.read(tokens)):
        return config
    return config.replace(tied_head=False)


def _place(family: Family, tensor: Tensor, found: dict[str, str]) -> str:
    """Return the name in the file of a tensor, "" where it is missing."""
    twin = "" if tensor.twin is None else found.get(family.bare(tensor.twin), "")
    return found.get(family.bare(tensor.name), twin)


def _check_names(family: Family, names: dict[str, Tensor], places: dict[str, str], found: dict[str, str]) -> None:
    missing = sorted({names[ours].name for ours, place in places.items() if not place})
    used = {*places.values(), *(found.get(family.bare(t.twin), "") for t in names.values() if t.twin)}
    ignored = re.compile("|".join(f"(?:{pattern})" for pattern in family.ignored) or "(?!)")
    unexpected = sorted(name for bare, name in found.items() if name not in used and not ignored.fullmatch(bare))
    if missing or unexpected:
        raise WeightsError(
            f"the tensors do not fit a {family.name} model of this config: missing {_some(missing)}, "
            f"unexpected {_some(unexpected)}",
            hint="the config belongs to other weights, or the model has parts that are not supported",
        )


def _some(names: list[str]) -> str:
    shown = ", ".join(name[:80] for name in names[:4])
    return shown + (f" and {len(names) - 4:,} more" if len(names) > 4 else "") if names else "nothing"


_DERIVED = {
    "feed_forward": "hidden",
    "kv_heads": "key_heads",
    "head_width": "channels",
    "final_norm": "has_final_norm",
    "output_bias": "has_output_bias",
    "encoder_layers": "encoder_depth",
    "source_vocab": "source_size",
}
# They concern training or how something is computed, not what.
_NOT_MATHEMATICS = {"dropout", "attention_dropout", "embedding_dropout", "init_std", "attention_tile", "pooling"}


def _effective(config: TransformerConfig) -> dict[str, Any]:
    """Return the settings that decide what a model computes, each with the value that it takes effect with."""
    settings = {f.name: getattr(config, _DERIVED.get(f.name, f.name)) for f in fields(config)}
    unused = set(_NOT_MATHEMATICS)
    unused |= {"norm_bias"} if config.norm == "rms" else set()
    unused |= {n for n in settings if n.startswith("rotary_")} if config.positions != "rotary" else set()
    unused |= {n for n in settings if n.startswith("relative_")} if config.positions != "relative" else set()
    if isinstance(config, EncoderConfig) and config.head == "none":
        unused |= {"tied_head", "head_bias", "head_scale"}
    if isinstance(config, EncoderDecoderConfig) and config.shared_embedding:
        unused.add("source_vocab")
    return {name: value for name, value in settings.items() if name not in unused}
