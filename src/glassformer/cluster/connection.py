"""Messages between workers: one JSON object per line over TCP, never waiting for the other side."""

import contextlib
import ipaddress
import json
import socket
from typing import Any

MOST = 1 << 24
"""Bytes that may wait on either side; whoever lets more pile up does not listen, or speaks another language."""
BACKLOG = 1024
"""Connections that may wait to be accepted: all workers come at about the same time."""

_CHUNK = 1 << 16


class Connection:
    """One connection. `closed` says whether the other side is gone; `most` is how much of a message may come."""

    def __init__(self, connection: socket.socket, most: int = MOST) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.closed = False
        self.most = most
        self._received = b""
        self._unsent = b""

    @property
    def address(self) -> str:
        """The address at the other end."""
        with contextlib.suppress(OSError):
            return str(self.connection.getpeername()[0])
        return "an address that is gone"

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
                if len(self._received) > self.most:
                    self.closed = True
            self.closed = True  # an empty part is the end
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.closed = True
        *lines, self._received = self._received.split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
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
    address = loopback(host)
    if address is not None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        server = socket.create_server((address, port), family=family, backlog=BACKLOG)
    elif socket.has_dualstack_ipv6():
        server = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    else:
        server = socket.create_server(("", port), backlog=BACKLOG)
    server.setblocking(False)
    return server


def loopback(host: str) -> str | None:
    """Return the address where a name stands for this machine as seen from itself, such as localhost; else None."""
    address = "127.0.0.1" if host.lower() == "localhost" else host
    with contextlib.suppress(ValueError):
        return address if ipaddress.ip_address(address).is_loopback else None
    return None
