"""The files of a published tokenizer: read with their many ways of saying the same, written in one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from ..files import explained

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")
"""What a special token can be for."""


def read_files(path: Path) -> tuple[str, dict[str, str], str | None]:
    """Return the content of a `tokenizer.json`, the roles of special tokens and the chat template beside it."""
    file = path / TOKENIZER if path.is_dir() else path
    if not file.is_file():
        raise CheckpointError(f"there is no {file}", hint=f"pass a {TOKENIZER}, or a folder that holds one")
    content = _read(file)
    config: Any = {}
    beside = file.with_name(CONFIG)
    if beside.is_file():
        try:
            config = json.loads(_read(beside))
        except ValueError as error:
            raise CheckpointError(f"{beside} is no JSON: {error}", hint="restore it from a copy") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{beside} holds no JSON object", hint="restore it from a copy")
    template = file.with_name(TEMPLATE)
    if template.is_file():
        return content, _roles(config), _read(template)
    return content, _roles(config), _template(config.get("chat_template"))


def write_files(folder: Path, content: str, roles: Mapping[str, str], template: str | None) -> None:
    """Write the tokenizer and what belongs to it."""
    config: dict[str, Any] = {f"{role}_token": name for role, name in roles.items()}
    if template is not None:
        config["chat_template"] = template
    # Without a class, `AutoTokenizer` of transformers does not know how to open the file.
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TOKENIZER).write_text(content + "\n", encoding="utf-8")
        (folder / CONFIG).write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}", hint="restore it from a copy") from None


def _roles(config: dict[str, Any]) -> dict[str, str]:
    """Return the special tokens by role; each is given by name, or as an object that holds the name."""
    found = {role: config.get(f"{role}_token") for role in ROLES}
    names = {role: token.get("content") if isinstance(token, dict) else token for role, token in found.items()}
    return {role: name for role, name in names.items() if isinstance(name, str) and name}


def _template(value: Any) -> str | None:
    """Return the chat template; of several with names, the one called default."""
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None
