"""The three models, each a configuration of the same layers."""

from typing import Any

from ..config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..core.errors import ConfigError
from ..core.execution import PLAIN, Execution, separated
from ..core.sources import snapshot
from .decoder import Decoder
from .encoder import Encoder
from .encoder_decoder import EncoderDecoder
from .model import Batch, Model, check_params
from .presets import PRESETS, preset

__all__ = ["PRESETS", "Batch", "Decoder", "Encoder", "EncoderDecoder", "Model", "build", "check_params", "preset"]


def build(config: TransformerConfig | str, execution: Execution | None = None, **changes: Any) -> Model:
    """Return the model of a config, or of a preset by name, with some settings changed.

    `execution` says how it runs; settings of it (attention_tile, compute, remat) are taken among the changes too.
    """
    changes, how = separated(changes)
    if not isinstance(config, str | TransformerConfig):
        raise ConfigError(f"{config!r:.80} is no model", hint="pass the name of a preset, or a config")
    if isinstance(config, str):
        config = preset(config, **changes)
    elif changes:  # each replaced config is checked again
        config = config.replace(**changes)
    execution = (PLAIN if execution is None else execution).replace(**how)
    if isinstance(config, EncoderDecoderConfig):
        return EncoderDecoder(config, execution)
    if isinstance(config, EncoderConfig):
        return Encoder(config, execution)
    assert isinstance(config, DecoderConfig)
    return Decoder(config, execution)


snapshot(__name__)
