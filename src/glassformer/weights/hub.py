"""Models of the Hugging Face hub: downloaded by its own library, or found in the cache that it keeps."""

import re
from pathlib import Path

from ..errors import ConfigError, WeightsError

PREFIX = "hf:"
# No pickles, and no weights in other frameworks' formats.
_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja"]


def hub_folder(name: str) -> Path:
    """Return the folder of `hf:org/name`, or of `hf:org/name@revision`; what is not in the cache is downloaded."""
    match = re.fullmatch(r"hf:((?:[\w.-]+/)?[\w.-]+)(?:@([\w./-]+))?", name)
    if match is None:
        raise ConfigError(f"{name!r} is no model of the hub", hint="write hf:org/name, or hf:org/name@revision")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        hint = 'install it: pip install "glassformer[hub]"; or pass a folder that you downloaded yourself'
        raise ConfigError(f"{name} comes through huggingface_hub, which is not installed", hint=hint) from None
    try:
        return Path(snapshot_download(match[1], revision=match[2], allow_patterns=_FILES))
    except Exception as error:  # those of the library, and of the ones it downloads with, have no common class
        reason = str(error).strip().splitlines() or [type(error).__name__]
        hint = "check the name and the connection; HF_HUB_OFFLINE=1 uses what is in the cache"
        raise WeightsError(f"{name} cannot be had: {reason[0]}", hint=hint) from error
