"""The HTTP application, and the process that serves it to its own page and to no other program or page.

Any program on this machine can reach one of its ports, and any page in the same browser can send requests there.
Therefore:

    the secret   everything lies below a path that cannot be guessed, as with notebooks; it is in the printed address
    the host     requests name 127.0.0.1 or localhost and our port, so no other name can be made to point here
    the origin   requests come from our own page; other pages may only link to it, which takes the secret
    the policy   the page loads nothing from elsewhere, and runs nothing inline

A wrong request is refused before its body is read."""

import asyncio
import contextlib
import contextvars
import hmac
import json
import logging
import os
import re
import secrets
import signal
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..core.errors import ConfigError, GlassformerError
from ..core.files import plain_json
from ..core.threads import one_thread_if_busy
from ..weights.catalog import cache_folder
from .derivations import html_of, pages
from .explorer import Explorer
from .page_export import PAGE, bundle, styles
from .router import Download, ask, load_routes

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
            status, text = refusal
            await Response(text, status, HEADERS, "text/plain")(scope, receive, send)
            return
        prefix = f"/{self.secret}"
        if scope["path"] == prefix:  # the page's own links are below it
            await RedirectResponse(f"{prefix}/", headers=HEADERS)(scope, receive, send)
            return
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
        if not hmac.compare_digest(first.encode(), self.secret.encode()):
            return 404, f"there is nothing here: {ADVICE}"
        if {"content-length", "transfer-encoding"} <= headers.keys():
            return 400, "the request has a length and is sent in chunks: two programs could read it differently"
        length = headers.get("content-length", ["0"])[0]
        if not length.isdecimal() or int(length) > LARGEST:
            return 413, "the question is too long"
        return None


HOST = "127.0.0.1"
PATIENCE = 10.0
"""Seconds within which a request must arrive, and something of an answer be read."""
FILES: dict[str, tuple[str, Callable[[], str]]] = {
    "index.html": ("text/html; charset=utf-8", lambda: (PAGE / "index.html").read_text(encoding="utf-8")),
    "all.js": ("text/javascript; charset=utf-8", bundle),
    "all.css": ("text/css; charset=utf-8", styles),
    "icon.svg": ("image/svg+xml", lambda: (PAGE / "icon.svg").read_text(encoding="utf-8")),
}
"""The files of the page with their types: no other file is ever read for it."""
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Glassformer</title>
<meta http-equiv="refresh" content="0; url={address}"></head>
<body><p><a href="{address}">Open the explorer</a></p></body></html>
"""


def application(explorer: Explorer, secret: str, port: int) -> ASGIApp:
    """Return the application that serves an explorer below a secret path."""
    load_routes()

    async def answer(request: Request) -> Response:
        found = await _asked(request, ask, explorer, request.path_params.get("word", "tile"))
        if isinstance(found, Response):
            return found
        if isinstance(found, Download):
            named = {"content-disposition": f'attachment; filename="{found.name}"'}
            return Response(found.body, headers=named, media_type="application/octet-stream")
        return Response(found, media_type="application/octet-stream") if isinstance(found, bytes) else _json(found)

    routes = [
        Route("/", _file, methods=["GET"]),
        Route("/page/{name}", _file, methods=["GET"]),
        Route("/derivations/{name}", _derivation, methods=["GET"]),
        Route("/ask/{word}", answer, methods=["POST"]),
        Route("/tile", answer, methods=["POST"]),
    ]
    hosts = frozenset(f"{name}:{port}" for name in (HOST, "localhost"))
    inner = Starlette(routes=routes, exception_handlers={404: _no_route, 405: _no_route})
    inner.router.redirect_slashes = False
    return Guard(inner, secret, hosts)


async def _asked(request: Request, function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function answers to the question of a request; whatever goes wrong becomes a response."""
    try:
        body = bytearray()
        async for part in request.stream():  # as long as it is, whatever length it declared
            body += part
            if len(body) > LARGEST:
                return _refusal(ConfigError("the question is too long"), 413)
        return await _aside(function, *args, _question(bytes(body)))
    except ClientDisconnect:
        return Response(status_code=400)  # it is gone, and reads nothing
    except Exception as error:  # the page must hear of everything, and the server go on
        return _refusal(error)


async def _aside(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a daemon thread, so that neither the server nor Python waits for it at exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(settle: Callable[[Any], None], found: Any) -> None:
        if not done.cancelled():
            settle(found)

    def work() -> None:
        try:
            with one_thread_if_busy():
                told = partial(tell, done.set_result, function(*args))
        except Exception as error:
            told = partial(tell, done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the request is gone
            loop.call_soon_threadsafe(told)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()
    return await done


async def _no_route(request: Request, error: Any) -> Response:
    nothing, wrong = "there is nothing at this address", f"this address cannot be asked by {request.method}"
    return _refusal(ConfigError(nothing if error.status_code == 404 else wrong), error.status_code)


async def _file(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    if name not in FILES:
        return _refusal(ConfigError("there is no such file"), 404)
    kind, read = FILES[name]
    return Response(read(), media_type=kind)


async def _derivation(request: Request) -> Response:
    if (name := request.path_params["name"]) not in pages():
        return _refusal(ConfigError("there is no such derivation"), 404)
    return Response(await _aside(html_of, name), media_type="text/html; charset=utf-8")


def _question(body: bytes) -> dict[str, Any]:
    try:
        question = json.loads(body or b"{}")
        json.dumps(question, ensure_ascii=False).encode()  # refuse unpaired surrogates, which are no text
    except (ValueError, RecursionError):
        raise ConfigError("the question is no JSON") from None
    if not isinstance(question, dict):
        raise ConfigError("the question is no JSON object")
    return question


def _json(found: Any, status: int = 200) -> Response:
    """Return an answer as JSON; NaN and infinities are sent as null."""
    body = json.dumps(plain_json(found), allow_nan=False, separators=(",", ":"))
    return Response(body, status, media_type="application/json")


def _refusal(error: Exception, status: int = 400) -> Response:
    if isinstance(error, GlassformerError):
        return _json({"error": error.fact, "hint": error.hint}, status)
    logging.getLogger("glassformer").exception("the explorer could not answer")
    return _json({"error": f"that failed: {type(error).__name__}", "hint": "the terminal says more"}, 500)


class Server:
    """An explorer at an address of this machine, until it is told to end."""

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        self.socket = _bound(port)
        self.port = int(self.socket.getsockname()[1])
        self.secret = secret_of(port) if port else new_secret()
        self.explorer = explorer
        # Plain HTTP, no access log, and no waiting for open tabs. The logging of others stays as it is: setting it up
        # again would close their handlers.
        config = uvicorn.Config(application(explorer, self.secret, self.port), http=_Impatient, ws="none",
                                lifespan="off", log_config=None, log_level="critical", access_log=False,
                                server_header=False, timeout_graceful_shutdown=1)  # fmt: skip
        self.server = _Ended(config)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.port}/{self.secret}/"

    def serve(self, *, browser: bool = False) -> None:
        """Answer until Ctrl-C, SIGTERM or `end`, then stop all jobs; with `browser`, open the page in it first."""
        threading.Thread(target=self._open_first, daemon=True).start()
        with open_page(self.address) if browser else contextlib.nullcontext():
            try:
                self.server.run(sockets=[self.socket])
            finally:
                self.explorer.jobs.stop_all()

    def _open_first(self) -> None:
        """Open the first model while the browser starts."""
        if self.explorer.first is not None:
            with contextlib.suppress(Exception):  # the page asks again, and shows the error
                self.explorer.opened(self.explorer.first)

    def end(self) -> None:
        """Stop answering, from another thread."""
        self.server.should_exit = True


@contextlib.contextmanager
def open_page(address: str) -> Iterator[None]:
    """Open an address in the browser by way of a private file, which goes at the end.

    Every user of a machine can list the arguments of its processes, so the secret address must not be one.
    """
    with tempfile.TemporaryDirectory(prefix="glassformer-") as folder:  # readable by this user only
        page = Path(folder) / "open.html"
        page.write_text(REDIRECT.format(address=address), encoding="utf-8")
        webbrowser.open(page.as_uri())
        yield


class _Impatient(H11Protocol):
    """Closes a connection whose client is slow: no part of an answer goes out, no request arrives whole.

    A request that is being answered may take any time.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look(None)

    def _look(self, before: tuple[Any, int] | None) -> None:
        """Close the connection if it waits for its client as `before`, PATIENCE seconds ago."""
        if self not in self.connections:
            return  # it is closed
        latest: Any = self.cycle  # the latest request whose head has arrived; None: there was none
        unread = self.transport.get_write_buffer_size()
        now = (latest, unread)
        if now == before and (unread or latest is None or latest.more_body or latest.response_complete):
            self.transport.abort()
        else:
            self.loop.call_later(PATIENCE, self._look, now)


class _Ended(uvicorn.Server):
    """A server that ends quietly on a signal."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End the server on Ctrl-C and SIGTERM."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _bound(port: int) -> socket.socket:
    """Return a socket at a port of this machine; 0 takes one that is free."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
        bound.listen()  # connections wait until the server answers
    except OSError as error:
        bound.close()
        hint = "leave out --port, or name another"
        raise ConfigError(f"port {port} cannot be used: {error.strerror}", hint=hint) from None
    return bound
