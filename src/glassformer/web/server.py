"""The HTTP application, and the process that serves it on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
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
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import ConfigError, GlassformerError
from .explorer import Explorer
from .guard import Guard, new_secret, read_body, secret_of
from .router import Download, ask, load_routes, plain_json
from .single import PAGE, bundle, styles

HOST = "127.0.0.1"
PATIENCE = 30.0
"""Seconds within which a request must arrive."""
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
        Route("/ask/{word}", answer, methods=["POST"]),
        Route("/tile", answer, methods=["POST"]),
    ]
    hosts = frozenset(f"{name}:{port}" for name in (HOST, "localhost"))
    inner = Starlette(routes=routes, exception_handlers={404: _nothing_there, 405: _not_so})
    inner.router.redirect_slashes = False
    return Guard(inner, secret, hosts)


async def _asked(request: Request, function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function answers to the question of a request; whatever goes wrong becomes a response."""
    try:
        async with asyncio.timeout(PATIENCE):
            body = await read_body(request)
        return await _aside(function, *args, _question(body))
    except ClientDisconnect:
        return Response(status_code=400)  # it is gone, and reads nothing
    except TimeoutError:
        return _refusal(ConfigError("the question did not arrive in time"), 408)
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
            told = partial(tell, done.set_result, function(*args))
        except Exception as error:
            told = partial(tell, done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the request is gone
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
    if isinstance(error, ValueError) and str(error) == "the question is too long":
        return _json({"error": str(error), "hint": None}, 413)
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
    """Closes a connection whose first request does not arrive in time; later ones are the keep-alive's business."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(PATIENCE, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if getattr(self, "cycle", None) is None and not self.transport.is_closing():
            self.transport.close()


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
        raise ConfigError(
            f"port {port} cannot be used: {error.strerror}", hint="leave out --port, or name another"
        ) from None
    return bound
