"""Families of published models: a table of names and a translation of the config, used in both directions."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np

from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig, config_from_dict
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, WeightsError, did_you_mean, some
from ..core.tree import flatten, rebuilt
from ..models import build
from .fields import UNNAMED, Fields, Table, class_names, effective, read_table, write_table
from .tensors import Tensors

TABLE, HEAD = "embedding.tokens.table", "head.w"
HEADS = ("head.", "pooled_linear.", "classifier.")
"""The beginnings of names of a head's parameters, which have no prefix."""


@dataclass(frozen=True)
class Foreign:
    """An array of another program: its name, and how it becomes ours.

    name        a * stands for the number of a block
    axes        how its axes are called, an arrow, and the same words in our order: "heads width channels -> width heads
                channels"; "a b -> b a" is a transpose. Neighbors are joined until the shape is ours. "": as it is
    part        (i, n): the i-th of n equal pieces along its last axis; (0, 3) is the first third, such as a query
    change      what else is to be done to it, before all that: any function of an array
    transposed  stored as (outputs, inputs), where ours are (inputs, outputs): it is transposed before a part is taken
    heads       where the parts of each head follow each other, how many heads there are; 1: as a whole
    order       which of the stored channels of a head our channels are; empty: the same
    skipped     rows at the top of the stored table that the model never looks up
    twin        a second name of the same values, which serves where the first is missing; "": none
    """

    name: str
    axes: str = ""
    part: tuple[int, int] | None = None
    change: Callable[[Array], Array] | None = None
    transposed: bool = False
    heads: int = 1
    order: tuple[int, ...] = ()
    skipped: int = 0
    twin: str = ""

    def published_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in the file of a parameter of ours, for an array without `axes` and `change`."""
        if self.part is not None:
            shape = (*shape[:-1], shape[-1] * self.part[1])
        if self.transposed:
            shape = shape[::-1]
        return (shape[0] + self.skipped, *shape[1:])

    def read(self, stored: Array, shape: tuple[int, ...] | None = None) -> Array:
        """Return our array, of `shape` if it fits: a view of theirs, but for parts of several heads."""
        array = np.asarray(stored if self.change is None else self.change(np.asarray(stored)))
        array = array[self.skipped :] if self.skipped else array
        array = array.T if self.transposed else array
        array = array if self.part is None else self._piece(array, *self.part)
        if self.axes:
            array = array.transpose(self._order(array))
        if shape is None:
            return array
        # Neighboring axes are joined where their products are the sizes of ours: (D, H, C) is (D, H·C).
        ends, wanted = (set(accumulate(sizes, mul)) | {1} for sizes in (array.shape, shape))
        return array.reshape(shape) if array.size == prod(shape) and wanted <= ends else array

    def _piece(self, array: Array, index: int, count: int) -> Array:
        """Return one of several equal parts."""
        if not 0 <= index < count or array.ndim == 0 or array.shape[-1] % count:
            fact = f"{self.name} of shape {array.shape} has no part {index} of {count}"
            raise WeightsError(fact, hint="parts are counted from 0, along the last axis")
        if self.heads == 1:
            return np.split(array, count, axis=-1)[index]
        part = array.reshape(*array.shape[:-1], self.heads, count, -1)[..., index, :]
        return (part[..., self.order] if self.order else part).reshape(*array.shape[:-1], -1)

    def _order(self, array: Array) -> list[int]:
        """Return which of their axes comes first, second, …"""
        before, arrow, after = (side.split() for side in self.axes.replace("->", " -> ").partition(" -> "))
        if not arrow or sorted(before) != sorted(after) or len(set(before)) != len(before):
            raise WeightsError(
                f"the axes of {self.name} are {self.axes!r}",
                hint='name each axis once on both sides: "heads width channels -> width heads channels"',
            )
        if len(before) != array.ndim:
            raise WeightsError(
                f"{self.name} has shape {array.shape}, but {len(before)} axes are named: {self.axes!r}",
                hint="name as many as it has",
            )
        return [before.index(word) for word in after]


def joined(parts: list[tuple[Foreign, Array]]) -> Array:
    """Return what the file holds from all parts of a fused matrix, or from one that is whole: the inverse of `read`."""
    in_order = sorted(parts, key=lambda part: part[0].part or (0, 1))
    tensor, whole = in_order[0]
    if len(parts) > 1:
        heads = [array.reshape(*array.shape[:-1], t.heads, -1) for t, array in in_order]
        heads = [x[..., np.argsort(t.order)] if t.order else x for (t, _), x in zip(in_order, heads, strict=True)]
        whole = np.concatenate(heads, axis=-1).reshape(*whole.shape[:-1], -1)
    stored = whole.T if tensor.transposed else whole
    return np.ascontiguousarray(np.pad(stored, ((tensor.skipped, 0), (0, 0))) if tensor.skipped else stored)


def turning_first(channels: int, turning: int | None) -> tuple[int, ...]:
    """Return the order of a head's channels in which pairs (i, i + C/2) turn, the turning ones first.

    Where only some channels turn, they are published as halves of their own: (i, i + turning/2), then all others.
    """
    if turning is None:
        return ()
    half, middle = turning // 2, (channels + turning) // 2
    return (*range(half), *range(turning, middle), *range(half, turning), *range(middle, channels))


Names = Mapping[str, str | Foreign]
"""Our layers to published ones, with * for the number of a block; or one of our parameters to its tensor.

Layers that have one published name are the equal parts of a fused matrix, in their order.
"""
_SUFFIXES = {"w": "weight", "gamma": "weight", "table": "weight", "b": "bias", "beta": "bias"}
FIELDS: Table = {
    "vocab": ("vocab_size", Fields.size),
    "width": ("hidden_size", Fields.size),
    "heads": ("num_attention_heads", Fields.size),
    "layers": ("num_hidden_layers", Fields.layers),
    "context": ("max_position_embeddings", Fields.size),
    "feed_forward": ("intermediate_size", Fields.size),
    "activation": ("hidden_act", Fields.activation, "gelu"),
    "tied_head": ("tie_word_embeddings", Fields.flag, True),
    "init_std": ("initializer_range", Fields.number, 0.02),
}
"""The fields of config.json that most families have."""
_ATTENTION = ("attention_norm", "attention.query", "attention.key", "attention.value", "attention.output")
_FEED_FORWARD = ("feed_forward_norm", "feed_forward.up", "feed_forward.down", "feed_forward.gate")


def block_names(block: str, attention: str, feed_forward: str) -> Names:
    """Return the names of a block's layers.

    attention       norm, query, key, value, output
    feed_forward    norm, up, down, and gate if there is one
    """
    theirs = [*zip(_ATTENTION, attention.split(), strict=True)]
    theirs += zip(_FEED_FORWARD, feed_forward.split(), strict=False)
    return {f"blocks.*.{ours}": f"{block}.{name}" for ours, name in theirs}


@dataclass(frozen=True)
class Family:
    """One kind of published model.

    name           its `model_type`
    architecture   which of our three it is
    classes        the published classes it covers, each with the head of an encoder ("tokens" for all that write)
    prefix         of all names but those of the head; files of the bare model leave it out
    table          our names to published ones; it may hold more than a config has
    ungated        those that are different where the feed-forward layers have no gate
    transposed     whether linear maps are stored as (outputs, inputs)
    by_head        whether a fused matrix holds all parts of one head before those of the next
    fields         which field of config.json each of our settings is
    fixed          settings that all models of the family have
    only           fields with the values that are supported
    written        fields that every config.json has
    read, write    what the tables cannot say: they get the settings (or the fields), and return them completed
    ignored        patterns of names that hold nothing our model needs
    kept           those of them that the bare published class has all the same, with their shapes for a config
    renamed        older spellings of names
    """

    name: str
    classes: dict[str, str]
    prefix: str
    table: Names
    fields: Table
    architecture: str = "decoder"
    ungated: Names = field(default_factory=dict)
    transposed: bool = True
    by_head: bool = False
    fixed: dict[str, Any] = field(default_factory=dict)
    only: tuple[tuple[Any, ...], ...] = ()
    written: dict[str, Any] = field(default_factory=dict)
    read: Callable[[Fields, dict[str, Any]], dict[str, Any]] = lambda fields, settings: settings
    write: Callable[[Any, dict[str, Any]], dict[str, Any]] = lambda config, fields: fields
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
        for name, *allowed in (("quantization_config", None), *self.only):
            values.only(name, *allowed)
        settings = {"architecture": self.architecture, **self.fixed, **read_table(self.fields, values)}
        if self.architecture == "encoder":
            settings |= {"head": head, "head_bias": head == "tokens"}
            if head != "tokens":
                settings["tied_head"] = True  # there is no head to be untied
            if head == "classes":
                values.only("problem_type", None, "single_label_classification")
                settings["classes"] = len(class_names(values))
        settings = self.read(values, settings)
        try:
            return config_from_dict(settings)
        except ConfigError as error:
            raise WeightsError(f"{values.source}: {error.fact}", hint=error.hint) from None

    def config_fields(self, config: TransformerConfig) -> dict[str, Any]:
        """Return the fields of config.json for a config of ours."""
        fields = {**write_table(self.fields, config), **self.written}
        if isinstance(config, EncoderConfig) and config.classes is not None:
            fields["id2label"] = {str(i): f"{UNNAMED}{i}" for i in range(config.classes)}
        return self.write(config, fields)

    def head_of(self, values: Fields, names: Iterator[str] | None = None) -> str:
        """Return which head the published class has; without a class, the names of the tensors tell."""
        classes = values.get("architectures", None)
        if not classes:
            parts = {self.bare(name).rpartition(".")[0] for name in names or ()}
            layers = {"tokens": "head.transform.linear", "classes": "classifier"}
            heads = [head for head, layer in layers.items() if self.table.get(layer) in parts]
            return "tokens" if self.architecture != "encoder" else next(iter(heads), "none")
        first = str(classes[0] if isinstance(classes, list) else classes)
        if first not in self.classes:
            fact = f"{values.source} is about a {first[:80]}, which is not supported"
            raise WeightsError(fact, hint=did_you_mean(first[:80], self.classes))
        return self.classes[first]

    def class_of(self, config: TransformerConfig) -> str:
        """Return the published class for a config of ours."""
        head = config.head if isinstance(config, EncoderConfig) else "tokens"
        return next((name for name, known in self.classes.items() if known == head), "")

    def names(self, config: TransformerConfig) -> dict[str, Foreign]:
        """Return where each parameter of a config is published."""
        table = self.table if config.gated else {**self.table, **self.ungated}
        bare = isinstance(config, EncoderConfig) and config.head == "none"
        names = {}
        for ours in flatten(build(config).specs()):
            tensor = published(table, ours, transposed=self.transposed)
            prefix = "" if bare or ours.startswith(HEADS) else self.prefix
            heads = config.heads if self.by_head and tensor.part else 1
            turns = ".attention.query." in ours or ".attention.key." in ours
            order = turning_first(config.channels, config.rotary_channels) if turns else ()
            names[ours] = replace(tensor, name=prefix + tensor.name, heads=heads, order=order)
        return names


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def general_name(ours: str) -> str:
    """Return the name of a parameter with * for the number of its block."""
    return _NUMBER.sub("*", ours, count=1)


def numbered_name(theirs: str, ours: str) -> str:
    """Return a published name with the number of the block of a parameter for *."""
    number = _NUMBER.search(ours)
    return theirs if number is None else theirs.replace("*", number[0])


def published(table: Names, ours: str, *, transposed: bool = True) -> Foreign:
    """Return how a parameter is published by a table of names."""
    general = general_name(ours)
    entry = table.get(general)
    if isinstance(entry, Foreign):
        return entry
    part, leaf = general.rsplit(".", 1)
    name = numbered_name(f"{table[part]}.{_SUFFIXES[leaf]}", ours)
    same = [other for other in table if table[other] == table[part]]
    fused = (same.index(part), len(same)) if len(same) > 1 else None
    return Foreign(name, transposed=transposed and leaf == "w", part=fused)


def read_params(
    family: Family, config: TransformerConfig, tensors: Tensors, dtype: Any = np.float32
) -> tuple[TransformerConfig, Tree, dict[str, Array]]:
    """Return a model's config with the head that the files really have, its parameters, and further tensors to keep.

    A tensor that is missing, is not known, or has another shape is named in the error.
    """
    stored: dict[str, str] = {}
    for name in tensors.stored:
        bare = family.bare(name)
        if bare in stored:
            raise WeightsError(f"{stored[bare]} and {name} are the same tensor", hint="get the files from one place")
        stored[bare] = name
    config = _with_stored_head(family, config, tensors, stored)
    names, specs = family.names(config), flatten(build(config).specs())
    sources = {ours: stored.get(family.bare(t.name), stored.get(family.bare(t.twin), "")) for ours, t in names.items()}
    _check_names(family, names, sources, stored)
    leaves: dict[str, Any] = {}
    for ours, tensor in names.items():
        have, want = tensors.stored[sources[ours]].shape, tensor.published_shape(specs[ours].shape)
        if have != want:
            fact = f"the tensor {sources[ours]} has shape {have}, but the config asks for {want}"
            raise WeightsError(fact, hint="the config belongs to other weights: get both from one place")
        if (tensor.transposed or ours == TABLE) and tensors.keeps_blocks(sources[ours]):
            blocks = tensors.read_blocks(sources[ours], tensor.part)
            leaves[ours] = blocks.T if tensor.transposed else blocks
        else:
            leaves[ours] = tensor.read(tensors.read(sources[ours], dtype), specs[ours].shape)
    shapes = family.kept(config)
    extras = {name: tensors.read(stored[name], dtype) for name in shapes.keys() & stored.keys()}
    extras = {name: array for name, array in extras.items() if array.shape == shapes[name]}
    return config, rebuilt(build(config).specs(), leaves), extras


def differences(family: Family, config: TransformerConfig) -> dict[str, Any]:
    """Return what does not survive the translation into a family: settings, each with the value it would have there.

    Something else that is in the way, which no value would change, stands there with None.
    """
    if family.architecture != config.architecture:
        return {"architecture": None}
    name = family.class_of(config)
    if not name:
        return {"head": None}
    written = {**family.config_fields(config), "architectures": [name]}
    try:
        there = _effective(family.config(Fields(written), family.classes[name]))
    except WeightsError as error:
        return {error.fact: None}
    wanted = _effective(config)
    return {name: there.get(name) for name in wanted if there.get(name) != wanted[name]}


def _with_stored_head(
    family: Family, config: TransformerConfig, tensors: Tensors, stored: dict[str, str]
) -> TransformerConfig:
    """Give a head of its own to a model that says it is tied, but whose files hold another matrix."""
    head, tokens = (stored.get(published(family.table, name).name) for name in (HEAD, TABLE))
    headless = isinstance(config, EncoderConfig) and config.head != "tokens"
    if headless or not config.tied_head or head is None or tokens is None:
        return config
    same = tensors.stored[head].shape == tensors.stored[tokens].shape
    same = same and np.array_equal(tensors.read(head), tensors.read(tokens))
    return config if same else config.replace(tied_head=False)


def _check_names(family: Family, names: dict[str, Foreign], sources: dict[str, str], stored: dict[str, str]) -> None:
    missing = sorted({names[ours].name for ours, source in sources.items() if not source})
    used = {*sources.values(), *(stored.get(family.bare(t.twin)) for t in names.values())}
    ignored = re.compile("|".join(f"(?:{pattern})" for pattern in family.ignored) or "(?!)")
    unexpected = sorted(name for bare, name in stored.items() if name not in used and not ignored.fullmatch(bare))
    if not unexpected and HEAD in names and missing == [names[HEAD].name]:
        raise WeightsError(
            f"the files hold no {missing[0]}, and config.json does not tie it to the token table: "
            "this is a model without a head, which gives no logits",
            hint=f"get the files of {next(iter(family.classes))}; or, if the head is the table, "
            "set tie_word_embeddings to true in config.json",
        )
    if missing or unexpected:
        raise WeightsError(
            f"the tensors do not fit a {family.name} model of this config: missing {some(missing)}, "
            f"unexpected {some(unexpected)}",
            hint="the config belongs to other weights, or the model has parts that are not supported",
        )


def _effective(config: TransformerConfig) -> dict[str, Any]:
    """Return the settings that decide what a model computes, each with the value that it takes effect with."""
    settings = {f.name: effective(config, f.name) for f in fields(config)}
    unused = {"dropout", "attention_dropout", "embedding_dropout", "init_std"}
    unused |= {"norm_bias"} if config.norm in ("rms", "none") else set()
    unused |= {n for n in settings if n.startswith("rotary_")} if config.positions != "rotary" else set()
    unused |= {n for n in settings if n.startswith("relative_")} if config.positions != "relative" else set()
    if isinstance(config, EncoderConfig):
        unused |= {"pooling"} if config.head != "classes" else {"tied_head", "head_bias", "head_scale"}
        unused |= {"tied_head", "head_bias", "head_scale"} if config.head == "none" else set()
    if isinstance(config, EncoderDecoderConfig) and config.shared_embedding:
        unused.add("source_vocab")
    return {name: value for name, value in settings.items() if name not in unused}
