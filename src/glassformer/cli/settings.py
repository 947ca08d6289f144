"""Settings as they are typed: KEY=VALUE."""

import json
from typing import Any

from ..errors import ConfigError

_WORDS = {"none": None, "true": True, "yes": True, "false": False, "no": False}


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Read settings; a value is a number, true, false, none, JSON, or else text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"cannot read the setting {pair!r}", hint="write it as KEY=VALUE, such as width=64")
        if name in settings:
            raise ConfigError(f"the setting {name!r} is given twice", hint="give it once")
        settings[name] = parse_value(value)
    return settings


def parse_value(text: str) -> Any:
    """Read one value."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
