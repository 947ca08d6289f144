"""The secret that all workers of a run share, and how they prove that they know it without telling it.

    worker 0 → worker    {"challenge": a}                        drawn anew for every connection
    worker → worker 0    {"hello": …, "challenge": b, "proof": HMAC(secret, "worker", a, b, hello)}
    worker 0 → worker    {"start": …, "proof": HMAC(secret, "worker 0", a, b, start)}

Worker 0 sends away who does not know the secret: a stranger can neither join a run nor end one. A worker goes on trying
where something else answers in place of worker 0. What follows on a connection is neither signed nor encrypted: this
keeps strangers out, not someone who can change what others send.
"""

import hmac
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..files import refusal

SECRET, FILE = "GLASSFORMER_SECRET", "GLASSFORMER_SECRET_FILE"
SHORTEST = 16
"""Characters of a secret: fewer could be guessed."""
VISIBLE = 5.0
"""Seconds until a file that another machine has just made must be visible on shared storage."""
MAKE_ONE = 'python -c "import secrets; print(secrets.token_hex(32))" makes one'

WORKER, LEADER = "worker", "worker 0"
"""Who proves; a proof of one is none of the other, so nobody's own can be sent back."""


def find_secret(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the secret of this run: GLASSFORMER_SECRET, the file GLASSFORMER_SECRET_FILE, or the user's own.

    The user's own is made when it is first asked for. Machines that share the user's home share it too.
    """
    given, file = environ.get(SECRET), environ.get(FILE)
    if given:
        return _checked(given, SECRET)
    if file:
        return _checked(_read(Path(file).expanduser()), file)
    path = own_file(environ)
    return _checked(_own(path), str(path))


def own_file(environ: Mapping[str, str]) -> Path:
    """Return where a user's own secret is kept."""
    base = environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(base) if base else Path.home() / ".config") / "glassformer" / "secret"
    except RuntimeError as error:
        raise ConfigError("this user has no home to keep a secret in", hint=_hint()) from error


def new_challenge() -> str:
    """Return what nobody has been asked before."""
    return secrets.token_hex(32)


def proved(message: dict[str, Any], secret: bytes, who: str, challenges: tuple[str, str]) -> dict[str, Any]:
    """Return a message with the proof that its sender knows the secret."""
    return {**message, "proof": _proof(message, secret, who, challenges)}


def is_proved(message: Mapping[str, Any], secret: bytes, who: str, challenges: tuple[str, str]) -> bool:
    """Tell whether a message comes from someone who knows the secret and was asked this."""
    content = {name: value for name, value in message.items() if name != "proof"}
    proof = message.get("proof")
    if not isinstance(proof, str) or not proof.isascii():
        return False
    try:
        return hmac.compare_digest(proof, _proof(content, secret, who, challenges))
    except RecursionError:  # deeper than anything that workers say
        return False


def _proof(message: Mapping[str, Any], secret: bytes, who: str, challenges: tuple[str, str]) -> str:
    text = json.dumps([who, *challenges, message], sort_keys=True)
    return hmac.new(secret, text.encode(), "sha256").hexdigest()


def _checked(text: str, where: str) -> bytes:
    if len(text.strip()) < SHORTEST:
        fact = f"the secret in {where} has {len(text.strip())} characters, and {SHORTEST} are the least"
        raise ConfigError(fact, hint=MAKE_ONE)
    return text.strip().encode()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        fact = f"the secret of this run cannot be read from {path}: {refusal(error)}"
        raise ConfigError(fact, hint=_hint()) from error


def _own(path: Path) -> str:
    """Read the user's own secret; make it, readable by nobody else, where there is none."""
    if not path.exists():
        try:
            _make(path)
        except FileExistsError:
            pass  # another worker was faster, perhaps on another machine
        except OSError as error:
            fact = f"the secret of this run cannot be kept in {path}: {refusal(error)}"
            raise ConfigError(fact, hint=_hint()) from error
    deadline = time.monotonic() + VISIBLE
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return _read(path)


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


def _hint() -> str:
    return f"give all workers the same {SECRET}, or {FILE}; {MAKE_ONE}"
