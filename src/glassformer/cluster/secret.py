"""The secret that all workers of a run share."""

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError
from ..files import refusal

SECRET, FILE = "GLASSFORMER_SECRET", "GLASSFORMER_SECRET_FILE"
SHORTEST = 16
"""Characters of a secret: fewer could be guessed."""
VISIBLE = 5.0
"""Seconds until a file that another machine has just made must be visible on shared storage."""
MAKE_ONE = 'python -c "import secrets; print(secrets.token_hex(32))" makes one'
HINT = f"give all workers the same {SECRET}, or {FILE}; {MAKE_ONE}"


def find_secret(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the secret of this run: GLASSFORMER_SECRET, the file GLASSFORMER_SECRET_FILE, or the user's own.

    The user's own is made when it is first asked for. Machines that share the user's home share it too.
    """
    text, where = environ.get(SECRET), SECRET
    if not text:
        path = Path(environ[FILE]).expanduser() if environ.get(FILE) else _made(own_file(environ))
        where = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            fact = f"the secret of this run cannot be read from {path}: {refusal(error)}"
            raise ConfigError(fact, hint=HINT) from error
    if len(text.strip()) < SHORTEST:
        fact = f"the secret in {where} has {len(text.strip())} characters, and {SHORTEST} are the least"
        raise ConfigError(fact, hint=MAKE_ONE)
    return text.strip().encode()


def own_file(environ: Mapping[str, str]) -> Path:
    """Return where a user's own secret is kept."""
    base = environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(base) if base else Path.home() / ".config") / "glassformer" / "secret"
    except RuntimeError as error:
        raise ConfigError("this user has no home to keep a secret in", hint=HINT) from error


def _made(path: Path) -> Path:
    """Make the user's own secret, readable by its owner alone, where there is none."""
    if not path.exists():
        try:
            _make(path)
        except FileExistsError:
            pass  # another worker was faster, perhaps on another machine
        except OSError as error:
            fact = f"the secret of this run cannot be kept in {path}: {refusal(error)}"
            raise ConfigError(fact, hint=HINT) from error
    deadline = time.monotonic() + VISIBLE
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return path


def _make(path: Path) -> None:
    """Write a new secret; it has its name only when it is complete, and never replaces another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(32) + "\n")
        os.link(partial, path)
    finally:
        partial.unlink(missing_ok=True)
