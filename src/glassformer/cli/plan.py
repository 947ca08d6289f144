"""`glassformer plan`: the memory and messages of training on each of many devices."""

import re
from fractions import Fraction
from typing import Any

import click

from ..api.costs import read_config
from ..core.errors import ConfigError, did_you_mean
from ..core.execution import MeshShape, separated
from ..core.format import bytes_text
from ..engines.mesh.plan import PRECISIONS, SLOTS, Plan, better
from ..engines.mesh.plan import changes as changed
from ..engines.mesh.plan import plan as make_plan
from ..engines.mesh.rules import parse_rules
from ..progress.display import waiting
from .commands import command
from .devices import rules_option
from .options import json_option, set_option, trust_option
from .output import log, plural, print_json, print_table
from .params import config_argument
from .settings import parse_settings

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
_PARTS = {"optimizer": "optimizer's memory", "average": "moving average"}
_PARTS |= {"in_use": "weights in use", "workspace": "workspace of a block"}


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
def plan(
    model: str,
    mesh: str,
    device_memory: str | None,
    batch: int | None,
    precision: str | None,
    remat: bool,
    rules: str | None,
    settings: tuple[str, ...],
    json: bool,
    **others: Any,
) -> None:
    """Count the memory and messages of training on each device of a mesh without allocating anything.

    Exit code 0: it fits, or no --device-memory was given; 1: it does not fit; 2: the mesh or a setting is wrong.
    """
    shape = MeshShape.parse(mesh)
    changes, how = separated(parse_settings(settings))
    for name, given in (("precision", precision), ("remat", remat)):
        if given and name in how:
            raise ConfigError(f"--{name} is also given by --set", hint="give it once")
    found = make_plan(
        read_config(model).replace(**changes),
        shape,
        batch=shape.replicas * others["accumulate"] if batch is None else batch,
        precision=how.get("precision", precision or "bfloat16"),
        remat=remat or how.get("remat", False),
        tile=how.get("tile"),
        device_memory=None if device_memory is None else parse_bytes(device_memory),
        rules=parse_rules(rules or ()),
        **others,
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
