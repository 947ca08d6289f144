"""Messages between workers: one JSON object per line over TCP, never waiting for the other side."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

MOST = 1 << 24
"""Bytes that may wait on either side; whoever lets more pile up does not listen, or speaks another language."""
BACKLOG = 1024
"""Connections that may wait to be accepted: all workers come at about the same time."""

_CHUNK = 1 << 16


class Line:
    """One connection. `closed` says whether the other side is gone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.closed = False
        self._received = b""
        self._unsent = b""

    def send(self, message: dict[str, Any]) -> None:
        """Hand over a message; what cannot go out now goes out with a later one."""
        if len(self._unsent) < MOST:
            self._unsent += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send as much as the system takes."""
        try:
            while self._unsent and not self.closed:
                self._unsent = self._unsent[self.connection.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.closed = True

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have come since; refuse to listen to anything that is not one."""
        try:
            while not self.closed and (part := self.connection.recv(_CHUNK)):
                self._received += part
                if len(self._received) > MOST:
                    self.closed = True
            self.closed = True  # an empty part is the end
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.closed = True
        *whole, self._received = self._received.split(b"\n")
        try:
            messages = [json.loads(line) for line in whole]
        except ValueError:
            messages = [None]
        if not all(isinstance(message, dict) for message in messages):
            self.closed = True
            return []
        return messages

    def close(self) -> None:
        """End the connection."""
        self.closed = True
        self.connection.close()


def listen(host: str, port: int) -> socket.socket:
    """Open a port: to this machine alone where `host` is a loopback address, else to all that can reach it."""
    if is_loopback(host):
        server = socket.create_server((socket.gethostbyname(host), port), backlog=BACKLOG)
    elif socket.has_dualstack_ipv6():
        server = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    else:
        server = socket.create_server(("", port), backlog=BACKLOG)
    server.setblocking(False)
    return server


def is_loopback(host: str) -> bool:
    """Tell whether a name stands for this machine as seen from itself."""
    return host == "localhost" or host.startswith("127.")
