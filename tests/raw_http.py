"""HTTP byte by byte: requests that no client library would send, and whole answers."""

import contextlib
import json
import socket
from typing import Any, NamedTuple

from glassformer.web.server import HOST, Server


class Answered(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> str:
        """The sentence of a refusal."""
        if self.headers.get("content-type") == "application/json":
            return json.loads(self.body)["error"]
        return self.body.decode()


class Line:
    """A connection to a server, opened again whenever the server closes it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.socket: socket.socket | None = None

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def send(self, raw: bytes) -> Answered:
        """Send bytes as they are and return the answer to them."""
        if self.socket is None:
            self.socket = socket.create_connection((HOST, self.server.port), timeout=60)
        self.socket.sendall(raw)
        answered = self._read()
        if answered.headers.get("connection") == "close":
            self.close()
        return answered

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"", *, secret: bool = True
    ) -> Answered:
        """Send a request below the secret, with the headers of an honest page unless some are given."""
        own = {"host": f"{HOST}:{self.server.port}", "content-length": str(len(body)), **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in own.items() if value is not None)
        place = f"/{self.server.secret}{path}" if secret else path
        return self.send(f"{method} {place} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)

    def ask(self, word: str, question: Any) -> Answered:
        """Ask as a page does; `tile` for a tile."""
        path = "/tile" if word == "tile" else f"/ask/{word}"
        return self.request("POST", path, body=json.dumps(question).encode())

    def _read(self) -> Answered:
        assert self.socket is not None
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._more()
        head, _, body = got.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        while len(body) < int(headers.get("content-length", "0")):
            body += self._more()
        if "content-length" not in headers:  # it ends with the connection
            with contextlib.suppress(ConnectionResetError):  # it did not read all of a long request
                while more := self.socket.recv(1 << 16):
                    body += more
        return Answered(int(first.split()[1]), headers, body)

    def _more(self) -> bytes:
        assert self.socket is not None
        part = self.socket.recv(1 << 16)
        assert part, "the server hung up without an answer"
        return part
