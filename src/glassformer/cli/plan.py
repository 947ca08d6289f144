"""`glassformer plan` and `params`: what training takes on each of many devices, and what a model costs."""

import re
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import click

from ..api.costs import params as count_params
from ..api.costs import read_config
from ..core.errors import ConfigError, did_you_mean
from ..core.execution import MeshShape, separated
from ..core.format import bytes_text
from ..engines.mesh.plan import PRECISIONS, SLOTS, Plan, better
from ..engines.mesh.plan import changes as changed
from ..engines.mesh.plan import plan as make_plan
from ..engines.mesh.rules import parse_rules
from ..models import PRESETS
from ..models.costs import ITEMSIZES, MEMORY
from ..progress.display import waiting
from .commands import command
from .devices import rules_option
from .options import Offers, gathered, json_option, set_option, trust_option
from .output import log, plural, print_json, print_table
from .settings import parse_settings

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
_PARTS = {"optimizer": "optimizer's memory", "average": "moving average"}
_PARTS |= {"in_use": "weights in use", "workspace": "workspace of a block"}


@dataclass(frozen=True)
class Training:
    """What is trained on each device, as it is asked for."""

    batch: int | None
    length: int | None
    accumulate: int
    precision: str | None
    optimizer: str
    remat: bool
    ema: bool


config_argument = click.argument(
    "model",
    type=Offers("models", "file", names=lambda: list(PRESETS)),
    metavar="PRESET|CONFIG|MODEL",
    help="A preset, a JSON file with a config, or a model.",
)


@command("Plan", "glassformer plan gpt3 --set vocab=50304 --mesh data=2,fsdp=64,tensor=8 --device-memory 80GB")
@config_argument
@click.option(
    "--mesh", required=True, metavar="AXES", help="Devices along each axis: for example data=8,fsdp=64,tensor=8."
)
@click.option("--device-memory", metavar="SIZE", help="Memory of one device: 80GB, 80GiB, or bytes.")
@click.option("--batch", type=click.IntRange(1), help="Sequences per step (default: one per device and microbatch).")
@click.option("--length", type=click.IntRange(1), help="Tokens per sequence (default: the whole context).")
@click.option("--accumulate", type=click.IntRange(1), default=1, help="Microbatches per step.")
@click.option("--precision", metavar="TYPE", help=f"Type of activations: {', '.join(PRECISIONS)} (default: bfloat16).")
@click.option("--optimizer", default="adamw", help="Optimizer: " + ", ".join(SLOTS) + ".")
@click.option("--remat", is_flag=True, help="Store only the inputs of blocks and recompute the rest.")
@click.option("--ema", is_flag=True, help="Keep a moving average of the parameters.")
@rules_option
@set_option
@json_option
@trust_option
@gathered(training=Training)
def plan(
    model: str,
    mesh: str,
    device_memory: str | None,
    training: Training,
    rules: str | None,
    settings: tuple[str, ...],
    json: bool,
) -> None:
    """Count the memory and messages of training on each device of a mesh without allocating anything.

    Exit code 0: it fits, or no --device-memory was given; 1: it does not fit; 2: the mesh or a setting is wrong.
    """
    shape = MeshShape.parse(mesh)
    changes, how = separated(parse_settings(settings))
    asked: dict[str, Any] = {name: value for name, value in asdict(training).items() if value not in (None, False)}
    for name in how.keys() & asked.keys():
        raise ConfigError(f"--{name} is also given by --set", hint="give it once")
    counted: dict[str, Any] = {"batch": shape.replicas * training.accumulate, "precision": "bfloat16"} | how | asked
    found = make_plan(
        read_config(model).replace(**changes),
        shape,
        device_memory=None if device_memory is None else parse_bytes(device_memory),
        rules=parse_rules(rules or ()),
        **counted,
    )
    with waiting("searching for a mesh that fits", compiles=False):
        other = better(found) if found.fits is False else None
    if json:
        advice = None
        if other is not None:
            figures = {"accumulate": other.accumulate, "remat": other.remat, "total": other.total}
            advice = {"changes": changed(found, other), "mesh": other.mesh.to_dict(), **figures}
        print_json({"model": model, **found.to_dict(), "advice": advice})
    else:
        _print(model, found, other)
    if found.fits is False:
        raise click.exceptions.Exit(1)


def parse_bytes(text: str) -> int:
    """Read a size: 80GB is 80 · 1000³ bytes, 80GiB is 80 · 1024³, and a plain number is bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text.strip())
    if found is None or found[2].lower() not in _UNITS:
        units = [unit.upper().replace("I", "i") for unit in _UNITS if unit.endswith("b")]
        hint = "write it as 80GB, 80GiB, or a number of bytes" if found is None else did_you_mean(found[2], units)
        raise ConfigError(f"cannot read the size {text!r}", hint=hint)
    size = round(Fraction(found[1]) * _UNITS[found[2].lower()])
    if size < 1:
        raise ConfigError(f"the size {text!r} is nothing", hint="give the memory of one device, such as 80GB")
    return size


def _print(model: str, found: Plan, other: Plan | None) -> None:
    rows = found.batch // (found.mesh.replicas * found.accumulate)
    memory = []
    for part, size in found.memory.items():
        known = "exact" if part in found.EXACT else "estimate"
        memory.append((_PARTS.get(part, part), bytes_text(size), f"{size / found.total:.1%}", known))
    title = (
        f"{model} on {plural(found.mesh.size, 'device')}: {found.mesh}; batch {found.batch:,}, {rows:,} at a time on "
        f"each, {plural(found.length, 'token')} each, {found.precision}, {found.optimizer}"
        f"{', remat' if found.remat else ''}"
    )
    columns = ("on each device", ">memory", ">share", "")
    print_table(columns, [*memory, ("total", bytes_text(found.total), "", "")], title=title)
    if found.messages:
        messages = [
            (m.axis, m.operation, m.what, bytes_text(m.size), f"{m.times:,}", bytes_text(m.sent))
            for m in found.messages
        ]
        heads = ("axis", "operation", "of", ">array", ">times", ">sent by each")
        print_table(heads, messages, title="messages per step")
    log(_verdict(found, other))


def _verdict(found: Plan, other: Plan | None) -> str:
    if found.device_memory is None:
        return "Add --device-memory, such as 80GB, to check whether it fits."
    share = found.total / found.device_memory
    against = f"{bytes_text(found.total)} of {bytes_text(found.device_memory)}, {share:.0%}"
    if found.fits:
        return f"It fits: {against}."
    largest = _PARTS.get(found.largest, found.largest)
    lines = [f"It does not fit: {against}. Most of it is the {largest}."]
    if other is None:
        lines.append("No other mesh fits either: use a larger batch with more devices, or a smaller model.")
    else:
        lines.append(f"This fits: {', '.join(changed(found, other))} ({bytes_text(other.total)}).")
    return "\n".join(lines)


@command("Plan", "glassformer params gpt2", "glassformer params llama-3.1-8b --length 4096 --dtype bfloat16")
@config_argument
@click.option("--batch", type=click.IntRange(1), default=1, help="Sequences per step.")
@click.option("--length", type=click.IntRange(1), help="Tokens per sequence (default: the whole context).")
@click.option("--dtype", default="float32", help="Type of weights and activations: " + ", ".join(ITEMSIZES) + ".")
@set_option
@json_option
@trust_option
def params(model: str, batch: int, length: int | None, dtype: str, settings: tuple[str, ...], json: bool) -> None:
    """Count the parameters, arithmetic and memory of a model without allocating it."""
    config = read_config(model).replace(**parse_settings(settings))
    found = count_params(config, batch=batch, length=length, dtype=dtype)
    if not json:
        for before, table in zip((f"{model}: ", ""), found.tables(), strict=True):
            print_table(table.columns, table.rows, title=before + table.title)
        return
    facts = {"model": model, "config": config.to_dict()}
    facts["parameters"] = {"total": found.parameters, "parts": found.parts, "estimate_12LD2": found.estimate}
    facts["flops_per_token"] = {"forward": found.flops_forward, "training": found.flops_training}
    memory = {name: getattr(found, name) for name in MEMORY}
    print_json({**facts, "batch": batch, "length": found.length, "dtype": dtype, "memory_bytes": memory})
