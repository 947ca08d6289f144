"""Meshes of devices, and the table that says which axis of which parameter is split over which of theirs, by name.

A matrix is split twice. Along `tensor` the split stays while computing: query, key, value, up and gate are split by
their outputs, into whole heads or hidden features, and output and down by their inputs, so that each pair needs one sum
over the devices. Along `fsdp` the other axis is split for storage, and the matrix is gathered where it is used. Vectors
whose split would save next to nothing stay whole.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ...config import EncoderDecoderConfig, TransformerConfig
from ...core.errors import ConfigError, ShapeError
from ...core.execution import AXES, Execution, MeshShape
from ...core.settings import check_known
from ...core.tree import named_leaves
from ...models import build

Axes: TypeAlias = tuple[str | None, ...]


class Rule(NamedTuple):
    """The split of all parameters whose dotted name fits a pattern.

    pattern   * stands for any letters, dots included, and {up,gate} for either word
    axes      for each of the last axes of the array: the axis of the mesh, or None; () keeps the parameter whole
    sizes     the settings of the model that decide these axes, for messages
    """

    pattern: str
    axes: Axes
    sizes: tuple[str, ...] = ()


Rules: TypeAlias = tuple[Rule, ...]
OwnRules: TypeAlias = tuple[tuple[str, Axes], ...]
"""Your own patterns and axes, as a run keeps them among its settings."""

RULES: Rules = (
    Rule("embedding.tokens.table", ("tensor", "fsdp"), ("vocab", "width")),
    Rule("source_embedding.tokens.table", ("tensor", "fsdp"), ("source_vocab", "width")),
    Rule("*embedding.positions.table", (None, "fsdp"), ("context", "width")),
    Rule("*embedding.segments.table", (None, "fsdp"), ("segments", "width")),
    Rule("*attention.query.w", ("fsdp", "tensor"), ("width", "heads")),
    Rule("*attention.query.b", ("tensor",), ("heads",)),
    Rule("*attention.{key,value}.w", ("fsdp", "tensor"), ("width", "kv_heads")),
    Rule("*attention.{key,value}.b", ("tensor",), ("kv_heads",)),
    Rule("*attention.output.w", ("tensor", "fsdp"), ("heads", "width")),
    Rule("*attention.output.b", ()),  # added once, after the sum over the devices
    Rule("*feed_forward.{up,gate}.w", ("fsdp", "tensor"), ("width", "feed_forward")),
    Rule("*feed_forward.{up,gate}.b", ("tensor",), ("feed_forward",)),
    Rule("*feed_forward.down.w", ("tensor", "fsdp"), ("feed_forward", "width")),
    Rule("*feed_forward.down.b", ()),
    Rule("*relative.table", (None, "tensor"), ("relative_buckets", "heads")),
    Rule("head.transform.linear.w", ("fsdp", None), ("width", "width")),  # a norm follows, which needs all features
    Rule("head.transform.linear.b", ()),
    Rule("head.w", ("fsdp", "tensor"), ("width", "vocab")),
    Rule("head.b", ("tensor",), ("vocab",)),
    Rule("pooled_linear.w", ("fsdp", None), ("width", "width")),
    Rule("pooled_linear.b", ()),
    Rule("classifier.w", ("fsdp", None), ("width", "classes")),
    Rule("classifier.b", ()),
    Rule("cls", ()),
    Rule("*norm.{gamma,beta}", ()),
    Rule("*.{w,table}.{a,b}", ()),  # adapters of LoRA
)


def axes_for(name: str, shape: Sequence[int], mesh: MeshShape, rules: Rules = RULES) -> Axes:
    """Return the axis of the mesh that splits each axis of a parameter, or None.

    The first rule that fits counts, from the last axis backward: the layer axis in front of stacked blocks stays whole.
    A name without a rule, and an axis that does not divide evenly, are errors: nothing is replicated silently.
    """
    rule = rule_for(name, rules)
    if len(rule.axes) > len(shape):
        raise ShapeError(
            f"the rule {rule.pattern!r} splits {len(rule.axes)} axes, but {name} has shape {tuple(shape)}",
            hint="give a rule at most as many axes as its parameters have",
        )
    front = len(shape) - len(rule.axes)
    for index, axis in enumerate(rule.axes):
        if axis is not None and shape[front + index] % getattr(mesh, axis):
            raise _uneven(name, tuple(shape), front + index, axis, mesh, rule.sizes[index : index + 1])
    return (None,) * front + rule.axes


def rule_for(name: str, rules: Rules = RULES) -> Rule:
    """Return the first rule whose pattern fits a dotted name."""
    for rule in rules:
        if _regex(rule.pattern).fullmatch(name):
            return rule
    raise ConfigError(
        f"no rule says how to split {name} over a mesh",
        hint=f"add one, such as {name}=none, which keeps it whole on every device",
    )


def check_mesh(config: TransformerConfig, mesh: MeshShape, rules: Rules = RULES) -> None:
    """Refuse a mesh that this model cannot be split over, with the setting to change."""
    alone = config.replace(layers=1, **({"encoder_layers": 1} if isinstance(config, EncoderDecoderConfig) else {}))
    specs = dict(named_leaves(build(alone).specs()))  # blocks are alike: one of each kind is enough to look at
    for name in specs:
        # A user's rule does not say what it splits; the table does, for the same last axes.
        axes, settings = reversed(rule_for(name, rules).axes), reversed(rule_for(name).sizes)
        for axis, setting in zip(axes, settings, strict=False):
            heads = {"heads": config.heads, "kv_heads": config.key_heads}.get(setting)
            if axis is not None and heads is not None and heads % getattr(mesh, axis):
                raise _cut_heads(heads, setting, axis, mesh, config)
    for name, spec in specs.items():
        axes_for(name, spec.shape, mesh, rules)


def check_execution(config: TransformerConfig, execution: Execution, *, batch: int, accumulate: int = 1) -> None:
    """Refuse a model or a batch that cannot be split in this way, and devices that are not there."""
    mesh = execution.mesh
    check_mesh(config, mesh, parse_rules(execution.rules))
    if batch % accumulate:
        raise ConfigError(
            f"a batch of {batch} does not divide into {accumulate} microbatches",
            hint="the engine jax needs parts of the same size: change batch or accumulate",
        )
    part = batch // accumulate
    if part % mesh.replicas:
        raise ConfigError(
            f"{part} sequences cannot be shared evenly by {mesh.replicas} devices "
            f"(data={mesh.data} times fsdp={mesh.fsdp})",
            hint=f"make the batch (of each microbatch) a multiple of {mesh.replicas}",
        )
    if mesh.size > 1:
        build_mesh(mesh)


def parse_rules(rules: str | Path | Iterable[Any] = ()) -> Rules:
    """Return the user's rules, which come first, and then the table; see `own_rules`."""
    return (*(Rule(pattern, axes) for pattern, axes in own_rules(rules)), *RULES)


def own_rules(rules: str | Path | Iterable[Any]) -> OwnRules:
    """Read the user's rules.

    Rules are text such as "*attention.key.w=fsdp,none; head.b=", an axis or none for each of the last axes of the
    array; or a list of such texts or of [pattern, [axes]]; or a JSON file with a list or an object {pattern: [axes]}.
    """
    entries: Any = rules
    if isinstance(entries, Path) or (isinstance(entries, str) and entries.endswith(".json")):
        entries = _read(Path(entries))
    if isinstance(entries, str):
        entries = [part.strip() for part in entries.split(";") if part.strip()]
    if isinstance(entries, dict):
        entries = entries.items()
    return tuple(_parse(entry) for entry in entries)


def _parse(entry: Any) -> tuple[str, Axes]:
    if isinstance(entry, Rule):
        pattern, axes = entry.pattern, list(entry.axes)
    elif isinstance(entry, str) and "=" in entry:
        pattern, _, text = (piece.strip() for piece in entry.partition("="))
        axes = [axis.strip() for axis in text.split(",")] if text else []
    elif isinstance(entry, list | tuple) and len(entry) == 2 and isinstance(entry[1], list | tuple):
        pattern, axes = str(entry[0]), list(entry[1])
    else:
        raise ConfigError(f"cannot read the rule {entry!r}", hint="write it as *attention.key.w=fsdp,none")
    try:
        _regex(pattern)
    except re.error:
        raise ConfigError(f"cannot read the pattern {pattern!r}", hint="close every brace: {up,gate}") from None
    if "blocks" in pattern.split("."):
        short = "*" + pattern.rpartition("blocks.")[2].lstrip("0123456789*.")
        raise ConfigError(f"the rule for {pattern} is about some blocks", hint=f"split all alike: {short}")
    if not pattern:
        raise ConfigError("a rule has no pattern", hint="write it as *attention.key.w=fsdp,none")
    for axis in [axis for axis in axes if axis not in ("none", None)]:
        check_known(f"the rule for {pattern} names the axis", axis, [*AXES, "none"])
        if axes.count(axis) > 1:
            raise ConfigError(f"the rule for {pattern} splits two axes over {axis}", hint="use every axis once")
    return pattern, tuple(None if axis == "none" else axis for axis in axes)


def _read(path: Path) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the rules in {path}: {error}", hint="check the file") from None
    if not isinstance(content, list | dict):
        raise ConfigError(f"{path} holds no list of rules", hint='write [["*attention.key.w", ["fsdp", null]], …]')
    return content


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """Translate a pattern, whose letters mean themselves apart from * and {one,other}."""
    pieces = {r"\*": ".*", r"\{": "(?:", r"\}": ")", ",": "|"}
    return re.compile(re.sub(r"\\\*|\\\{|\\\}|,", lambda match: pieces[match.group()], re.escape(pattern)))


def _uneven(
    name: str, shape: tuple[int, ...], index: int, axis: str, mesh: MeshShape, setting: tuple[str, ...]
) -> ConfigError:
    size, parts = shape[index], getattr(mesh, axis)
    remedy = f"choose {axis} so that it divides {size:,}"
    if setting in (("vocab",), ("source_vocab",)):
        more = -(-size // parts) * parts
        remedy = f"pad the vocabulary, {setting[0]}={more} (the added ids are never used), or {remedy}"
    elif setting:
        remedy = f"{remedy}, or change {setting[0]} of the model"
    return ConfigError(
        f"{name} has shape {shape}, and {size:,} does not divide evenly over {axis}={parts}", hint=remedy
    )


def _cut_heads(heads: int, setting: str, axis: str, mesh: MeshShape, config: TransformerConfig) -> ConfigError:
    parts = getattr(mesh, axis)
    what = "key/value heads" if setting == "kv_heads" else "heads"
    fact = f"{heads} {what} cannot be shared evenly by {axis}={parts}"
    able = [n for n in range(1, heads + 1) if heads % n == 0 and config.heads % n == 0]
    hint = f"choose {axis} among {', '.join(map(str, able))}"
    if setting == "kv_heads" and config.heads % parts == 0:
        hint += f", or set kv_heads to a multiple of {parts}"
    return ConfigError(fact, hint=hint)


# --- meshes ----------------------------------------------------------------------------------------------------------


def shape_of(mesh: Any) -> MeshShape:
    """Return the shape of a `jax.sharding.Mesh` that `build_mesh` made."""
    return MeshShape.from_dict({str(name): int(devices) for name, devices in mesh.shape.items()})


def build_mesh(shape: MeshShape, devices: Sequence[Any] | None = None) -> Any:
    """Return a `jax.sharding.Mesh` of this shape over the devices: all that JAX sees, on all hosts, unless given."""
    jax = require_jax()
    from jax.experimental.mesh_utils import create_device_mesh

    available = jax.devices() if devices is None else list(devices)
    if len(available) != shape.size:
        raise ConfigError(
            f"the mesh {shape} needs {shape.size:,} devices, but there are {len(available):,}",
            hint=f"choose axes whose product is {len(available):,}, such as fsdp={len(available)}",
        )
    sizes = tuple(shape.to_dict().values())
    return jax.sharding.Mesh(create_device_mesh(sizes, devices=available), AXES)


def require_jax() -> Any:
    """Return the module `jax`, or say how to get it."""
    try:
        import jax
    except ImportError:
        raise ConfigError(
            "devices in a mesh need JAX, which is not installed",
            hint='pip install "glassformer[jax]"; for a GPU see the JAX documentation',
        ) from None
    return jax
