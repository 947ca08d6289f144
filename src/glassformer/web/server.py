"""The application, and the process that serves it on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import ConfigError, GlassformerError
from .explorer import Explorer
from .guard import Guard, new_secret, read_body
from .router import Download, ask, load_routes, plain_json
from .single import PAGE, bundle, styles
from .tile_request import tile_bytes

HOST = "127.0.0.1"
FILES: dict[str, tuple[str, Callable[[], str]]] = {
    "index.html": ("text/html; charset=utf-8", lambda: (PAGE / "index.html").read_text(encoding="utf-8")),
    "all.js": ("text/javascript; charset=utf-8", bundle),
    "all.css": ("text/css; charset=utf-8", styles),
    "icon.svg": ("image/svg+xml", lambda: (PAGE / "icon.svg").read_text(encoding="utf-8")),
}
"""What the page is made of, with its types: nothing else is ever read for it."""


def application(explorer: Explorer, secret: str, port: int) -> ASGIApp:
    """Return the application that serves an explorer below a secret path."""
    load_routes()

    async def answer(request: Request) -> Response:
        try:
            question = _question(await read_body(request))
            found = await _aside(ask, explorer, request.path_params["word"], question)
            return _download(found) if isinstance(found, Download) else _json(found)
        except Exception as error:  # the page must hear of everything, and the server go on
            return _refusal(error)

    async def tile(request: Request) -> Response:
        try:
            question = _question(await read_body(request))
            body = await _aside(tile_bytes, explorer, question)
            return Response(body, media_type="application/octet-stream")
        except Exception as error:
            return _refusal(error)

    routes = [
        Route("/", _file, methods=["GET"]),
        Route("/page/{name}", _file, methods=["GET"]),
        Route("/ask/{word}", answer, methods=["POST"]),
        Route("/tile", tile, methods=["POST"]),
    ]
    hosts = frozenset(f"{name}:{port}" for name in (HOST, "localhost"))
    inner = Starlette(routes=routes, exception_handlers={404: _nothing_there, 405: _not_so})
    inner.router.redirect_slashes = False
    return Guard(inner, secret, hosts)


async def _aside(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a thread of its own, for which neither a server that ends nor Python waits."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(settle: Callable[[Any], None], found: Any) -> None:
        if not done.cancelled():
            settle(found)

    def work() -> None:
        try:
            told = partial(tell, done.set_result, function(*args))
        except Exception as error:
            told = partial(tell, done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(told)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()
    return await done


async def _nothing_there(request: Request, error: Exception) -> Response:
    return _refusal(ConfigError("there is nothing at this address"), 404)


async def _not_so(request: Request, error: Exception) -> Response:
    return _refusal(ConfigError(f"this address cannot be asked by {request.method}"), 405)


async def _file(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    if name not in FILES:
        return _refusal(ConfigError("there is no such file"), 404)
    kind, read = FILES[name]
    return Response(read(), media_type=kind)


def _question(body: bytes) -> dict[str, Any]:
    try:
        question = json.loads(body or b"{}")
        json.dumps(
            question, ensure_ascii=False
        ).encode()  # halves of characters are no text, and nobody could read them
    except (ValueError, RecursionError):
        raise ConfigError("the question is no JSON") from None
    if not isinstance(question, dict):
        raise ConfigError("the question is no JSON object")
    return question


def _json(found: Any, status: int = 200) -> Response:
    """Return an answer; what is no number in JSON is sent as null, never as a word that JSON does not have."""
    body = json.dumps(plain_json(found), allow_nan=False, separators=(",", ":"))
    return Response(body, status, media_type="application/json")


def _download(found: Download) -> Response:
    named = {"content-disposition": f'attachment; filename="{found.name}"'}
    return Response(found.body, headers=named, media_type="application/octet-stream")


def _refusal(error: Exception, status: int = 400) -> Response:
    if isinstance(error, GlassformerError):
        return _json({"error": error.fact, "hint": error.hint}, status)
    if isinstance(error, ValueError) and str(error) == "the question is too long":
        return _json({"error": str(error), "hint": None}, 413)
    logging.getLogger("glassformer").exception("the explorer could not answer")
    return _json({"error": f"that failed: {type(error).__name__}", "hint": "the terminal says more"}, 500)


class Server:
    """An explorer at an address of this machine, until it is told to end."""

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        self.socket = _bound(port)
        self.port = int(self.socket.getsockname()[1])
        self.secret = new_secret()
        app = application(explorer, self.secret, self.port)
        self.explorer = explorer
        # Plain HTTP and nothing else, no word about every request, and no waiting for tabs that are still open. How
        # others log is left alone: setting it up anew would close their handlers, and with some what they write to.
        config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, log_level="critical",
                                access_log=False, server_header=False, timeout_graceful_shutdown=1)  # fmt: skip
        self.server = _Ended(config)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.port}/{self.secret}/"

    def serve(self) -> None:
        """Answer until Ctrl-C, SIGTERM or `end`; what still goes on then is stopped."""
        threading.Thread(target=self._open_first, daemon=True).start()
        try:
            self.server.run(sockets=[self.socket])
        finally:
            self.explorer.jobs.stop_all()

    def _open_first(self) -> None:
        """Open the model that the page will ask for, while the browser is still on its way."""
        if self.explorer.first is not None:
            with contextlib.suppress(Exception):  # the page asks again, and says what is wrong
                self.explorer.opened(self.explorer.first)

    def end(self) -> None:
        """Stop answering, from another thread."""
        self.server.should_exit = True


class _Ended(uvicorn.Server):
    """A server for which a signal to end is no failure: it ends, and nothing is raised."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM end the server, while it runs."""
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
        bound.listen()  # whoever follows the address at once waits, instead of finding nobody
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"port {port} cannot be used: {error.strerror}", hint="leave out --port, or name another"
        ) from None
    return bound
