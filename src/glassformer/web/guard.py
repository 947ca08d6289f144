"""Who may ask: the page that this process served, and nobody else.

Any program on this machine can reach a port of it, and any page in the same browser can send requests there. So

    the secret   everything lies below a path that nobody can guess, as with notebooks; it is in the printed address
    the host     requests are for 127.0.0.1 or localhost at our port: no name that was made to point here
    the origin   requests come from our own page, or from the address bar
    the policy   the page loads nothing from elsewhere, and nothing inline

What is wrong about a request is answered before anything of it is read.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
LARGEST = 1 << 20
"""Bytes of a question, at most."""


def new_secret() -> str:
    """Return a word that nobody can guess."""
    return secrets.token_urlsafe(24)


class Guard:
    """Lets requests of our own page pass, below the secret, and answers all others with a refusal."""

    def __init__(self, app: ASGIApp, secret: str, hosts: frozenset[str]) -> None:
        self.app, self.secret, self.hosts = app, secret, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # nothing else is spoken here
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
            return 421, "this server answers under its own address only"
        for origin in headers.get("origin", []):
            if origin.removeprefix("http://") not in self.hosts or not origin.startswith("http://"):
                return 403, "requests of other pages are not answered"
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return 403, "requests of other pages are not answered"
        first, _, rest = scope["path"].removeprefix("/").partition("/")
        if not hmac.compare_digest(first.encode(), self.secret.encode()) or (not rest and scope["path"][-1:] != "/"):
            return 404, "there is nothing here: open the address that `glassformer explore` printed"
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
    """Return the body of a request, which may lie about its length; above the limit, it is refused."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST:
            raise ValueError("the question is too long")
        parts.append(part)
    return b"".join(parts)
