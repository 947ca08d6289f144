"""The cost of a model, given itself, its config, or where either is."""

import json
from pathlib import Path
from typing import Any

from ..config import TransformerConfig, config_from_dict
from ..core.errors import ConfigError, did_you_mean
from ..core.execution import PLAIN
from ..models import PRESETS, preset
from ..models.costs import Costs, costs


def params(model: Any, *, batch: int = 1, length: int | None = None, dtype: str = "float32") -> Costs:
    """Count the parameters, arithmetic and memory of a model, before anything is allocated.

    model           a model, with its execution; a config, the name of a preset, a JSON file with a config, or a path
                    or name as for `load`
    batch, length   the sequences at a time and the tokens of each (None: the whole context)
    dtype           of weights and activations: float64, float32, float16 or bfloat16

    >>> import glassformer as gf
    >>> gf.params("gpt2").parameters
    124439808
    """
    execution = getattr(model, "execution", PLAIN)
    return costs(read_config(model), batch=batch, length=length, dtype=dtype, execution=execution)


def read_config(model: Any) -> TransformerConfig:
    """Return the config of a preset, a JSON file, or a model, by its name or itself."""
    if not isinstance(model, str | Path):
        config = getattr(model, "config", model)
        if not isinstance(config, TransformerConfig):
            raise ConfigError(f"{model!r:.80} is no model", hint="pass a model, a config, or the name of a preset")
        return config
    path, model = Path(model), str(model)
    if model in PRESETS and not path.exists():
        return preset(model)
    if path.is_file() and path.suffix in (".json", ""):
        return config_from_dict(_settings(path))
    # Presets and config files do without these.
    from ..weights.catalog import CATALOG
    from ..weights.stores import HUB, split_adapter
    from .loading import load_config

    if path.exists() or model in CATALOG or model.startswith(HUB) or split_adapter(model) is not None:
        return load_config(model)
    raise ConfigError(
        f"{model!r} is neither a preset nor a file or folder",
        hint=did_you_mean(model, PRESETS) + ' (a file holds {"architecture": "decoder", "vocab": …})',
    )


def _settings(path: Path) -> dict[str, Any]:
    """Return the settings in a JSON file."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}", hint="check the file") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} holds no JSON object", hint='it needs {"architecture": "decoder", "vocab": …}')
    return settings
