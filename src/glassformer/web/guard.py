"""Who may ask: the page that this process served, and no other program or page.

Any program on this machine can reach one of its ports, and any page in the same browser can send requests there.
Therefore:

    the secret   everything lies below a path that cannot be guessed, as with notebooks; it is in the printed address
    the host     requests name 127.0.0.1 or localhost and our port, so no other name can be made to point here
    the origin   requests come from our own page; other pages may only link to it, which takes the secret
    the policy   the page loads nothing from elsewhere, and runs nothing inline

A wrong request is refused before its body is read.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..weights.registry import cache_folder

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
SECRET = re.compile(r"[\w-]{32}", re.ASCII)
LARGEST = 1 << 20
"""Most bytes of a question."""
ADVICE = "open the address that `glassformer explore` printed"


def new_secret() -> str:
    """Return a word that cannot be guessed."""
    return secrets.token_urlsafe(24)


def secret_of(port: int) -> str:
    """Return the secret of a port that the user chose, so that an open tab still works after a restart.

    It is kept in a file that only this user can read; if that is impossible, the secret is new.
    """
    path = cache_folder() / "explorer" / str(port)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists() and not path.stat().st_mode & 0o077:
            found = path.read_text(encoding="ascii")
            if SECRET.fullmatch(found):
                return found
        path.unlink(missing_ok=True)
        found = new_secret()
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(found)
    except (OSError, ValueError):
        return new_secret()
    return found


class Guard:
    """Passes on requests of our own page below the secret, and refuses all others."""

    def __init__(self, app: ASGIApp, secret: str, hosts: frozenset[str]) -> None:
        self.app, self.secret, self.hosts = app, secret, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no other protocol is served
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        prefix = f"/{self.secret}"
        inner = {**scope, "path": scope["path"][len(prefix) :], "root_path": "", "raw_path": b""}

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message.get("headers", [])}
                more = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in known]
                message = {**message, "headers": [*message.get("headers", []), *more]}
            await send(message)

        await self.app(inner, receive, with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return what is wrong about a request."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = headers.get("host", [])
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return 421, f"this server answers under its own address only: {ADVICE}"
        for origin in headers.get("origin", []):
            if origin.removeprefix("http://") not in self.hosts or not origin.startswith("http://"):
                return 403, f"requests of other pages are not answered: {ADVICE}"
        first, _, rest = scope["path"].removeprefix("/").partition("/")
        followed = (scope["method"], headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"), rest)
        is_link = followed == ("GET", ["navigate"], ["document"], "")
        if not is_link and any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return 403, f"requests of other pages are not answered: {ADVICE}"
        if not hmac.compare_digest(first.encode(), self.secret.encode()) or (not rest and scope["path"][-1:] != "/"):
            return 404, f"there is nothing here: {ADVICE}"
        length = headers.get("content-length", ["0"])[0]
        if not length.isdecimal() or int(length) > LARGEST:
            return 413, "the question is too long"
        return None


async def _refuse(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *((name.encode(), value.encode()) for name, value in HEADERS.items()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read_body(request: Any) -> bytes:
    """Return the body of a request; refuse one above the limit, whatever length it declared."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST:
            raise ValueError("the question is too long")
        parts.append(part)
    return b"".join(parts)
