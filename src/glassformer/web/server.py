"""The application, and the process that serves it on this machine."""

from __future__ import annotations

import json
import logging
import math
import socket
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import ConfigError, GlassformerError
from .answers import ask, load_answers
from .explorer import Explorer
from .guard import Guard, new_secret, read_body
from .tile_request import tile_bytes

PAGE = Path(__file__).parent / "page"
HOST = "127.0.0.1"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES = {path.name: path for path in sorted(PAGE.iterdir()) if path.suffix in TYPES}
"""What the page is made of: nothing else is ever read for it."""


def application(explorer: Explorer, secret: str, port: int) -> ASGIApp:
    """Return the application that serves an explorer below a secret path."""
    load_answers()

    async def answer(request: Request) -> Response:
        try:
            question = _question(await read_body(request))
            found = await run_in_threadpool(ask, explorer, request.path_params["word"], question)
            return _json(found)
        except Exception as error:  # the page must hear of everything, and the server go on
            return _refusal(error)

    async def tile(request: Request) -> Response:
        try:
            question = _question(await read_body(request))
            body = await run_in_threadpool(tile_bytes, explorer, question)
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
    return Guard(Starlette(routes=routes), secret, hosts)


async def _file(request: Request) -> Response:
    path = FILES.get(request.path_params.get("name", "index.html"))
    if path is None:
        return _refusal(ConfigError("there is no such file"), 404)
    return Response(path.read_bytes(), media_type=TYPES[path.suffix])


def _question(body: bytes) -> dict[str, Any]:
    try:
        question = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ConfigError("the question is no JSON") from None
    if not isinstance(question, dict):
        raise ConfigError("the question is no JSON object")
    return question


def _json(found: Any, status: int = 200) -> Response:
    """Return an answer; what is no number in JSON is sent as null, never as a word that JSON does not have."""
    body = json.dumps(_plain(found), allow_nan=False, separators=(",", ":"))
    return Response(body, status, media_type="application/json")


def _plain(found: Any) -> Any:
    """Return an answer in JSON's own types."""
    if isinstance(found, dict):
        return {str(name): _plain(part) for name, part in found.items()}
    if isinstance(found, list | tuple):
        return [_plain(part) for part in found]
    if hasattr(found, "tolist"):
        return _plain(found.tolist())
    return None if isinstance(found, float) and not math.isfinite(found) else found


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
        # One's own signal handlers, no log of every request, and no waiting for tabs that are still open.
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off",
                                timeout_graceful_shutdown=2)  # fmt: skip
        self.server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.port}/{self.secret}/"

    def serve(self) -> None:
        """Answer until Ctrl-C."""
        self.server.run(sockets=[self.socket])

    def end(self) -> None:
        """Stop answering, from another thread."""
        self.server.should_exit = True


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
