"""`glassformer params`: the parameters, arithmetic and memory of a model."""

import json as json_module
from pathlib import Path

import click

from ..config import TransformerConfig, config_from_dict
from ..errors import ConfigError, did_you_mean
from ..models import PRESETS, preset
from ..models.accounting import Costs, costs
from ..setting import check_known
from .options import json_option, set_option
from .output import bytes_text, count_text, flops_text, plural, print_json, print_table
from .settings import parse_settings

_ITEMSIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_MEMORY = ("weights", "gradients", "optimizer", "activations", "training", "kv_cache")
config_argument = click.argument(
    "model", metavar="PRESET|CONFIG|MODEL", help="A preset, a JSON file with a config, or a model."
)


@click.command()
@config_argument
@click.option("--batch", type=click.IntRange(1), default=1, help="Sequences at a time.")
@click.option("--length", type=click.IntRange(1), help="Tokens per sequence (default: the whole context).")
@click.option("--dtype", default="float32", help="Type of weights and activations: " + ", ".join(_ITEMSIZES))
@set_option
@json_option
def params(model: str, batch: int, length: int | None, dtype: str, settings: tuple[str, ...], json: bool) -> None:
    """Count the parameters, arithmetic and memory of a model without allocating it."""
    config = read_config(model)
    if settings:
        config = config.replace(**parse_settings(settings))
    check_known("there is no dtype", dtype, _ITEMSIZES)
    if length is not None and length > config.context:
        raise ConfigError(
            f"the length is {length:,} but this model reads at most {config.context:,} tokens",
            hint="choose a shorter --length",
        )
    result = costs(config, batch=batch, length=length, itemsize=_ITEMSIZES[dtype])
    if json:
        print_json({"model": model, **_as_json(config, result, dtype)})
    else:
        _print(model, config, result, dtype)


def read_config(model: str) -> TransformerConfig:
    """Return the config of a preset, a JSON file, or a model."""
    path = Path(model)
    if model in PRESETS and not path.exists():
        return preset(model)
    from ..weights.places import HUB
    from ..weights.registry import REGISTRY

    known = model in REGISTRY or model.startswith(HUB)
    if known or path.is_dir() or (path.is_file() and path.suffix not in (".json", "")):
        from ..loading import load_config

        return load_config(model)
    if not path.is_file():
        raise ConfigError(
            f"{model!r} is neither a preset nor a file or folder",
            hint=did_you_mean(model, PRESETS) + ' (a file holds {"architecture": "decoder", "vocab": …})',
        )
    try:
        settings = json_module.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ConfigError(f"{model} cannot be read as JSON: {error}", hint="check the file") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{model} holds no JSON object", hint='it needs {"architecture": "decoder", "vocab": …}')
    return config_from_dict(settings)


def _as_json(config: TransformerConfig, result: Costs, dtype: str) -> dict:
    return {
        "config": config.to_dict(),
        "parameters": {"total": result.parameters, "parts": result.parts, "estimate_12LD2": result.estimate},
        "flops_per_token": {"forward": result.flops_forward, "training": result.flops_training},
        "batch": result.batch,
        "length": result.length,
        "dtype": dtype,
        "memory_bytes": {name: getattr(result, name) for name in _MEMORY},
    }


def _print(model: str, config: TransformerConfig, result: Costs, dtype: str) -> None:
    described = f"{config.architecture}, {plural(config.layers, 'layer')}, width {config.width:,}"
    parts = [(name, f"{number:,}", f"{number / result.parameters:.1%}") for name, number in result.parts.items()]
    parts += [
        ("total", f"{result.parameters:,}", count_text(result.parameters)),
        ("12 · L · D² (blocks only)", f"{result.estimate:,}", f"{result.estimate / result.parameters:.1%}"),
    ]
    title = f"{model}: {described}, {plural(config.heads, 'head')}"
    print_table(("part", ">parameters", ">share"), parts, title=title)
    labels = {"optimizer": "optimizer (Adam, float32)", "training": "training in all", "kv_cache": "KV cache"}
    work = [
        ("forward pass, per token", flops_text(result.flops_forward)),
        ("training, per token", flops_text(result.flops_training)),
        *((labels.get(name, name), bytes_text(getattr(result, name))) for name in _MEMORY),
    ]
    title = f"batch {result.batch}, {plural(result.length, 'token')}, {dtype}"
    print_table(("for", ">needs"), work, title=title)
