"""The server: what it survives, whom it answers with what, where it listens, and how it ends."""

import json
import logging
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from browser import get, tiny_explorer
from glassformer.core.errors import ConfigError
from glassformer.web import server as server_module
from glassformer.web.router import ROUTES
from glassformer.web.server import Server
from malformed import nearly_right, not_http
from raw_http import Line

HALF = "POST {place} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n{{"
"""A request of which a part is missing."""


def test_questions_that_are_nearly_right_are_answered_in_words(server, caplog):
    """Some hundreds; `benchmarks/explorer.py --only malformed` asks as many."""
    caplog.set_level(logging.CRITICAL, "glassformer")
    rng = random.Random(0)
    refused = 0
    with Line(server) as line:
        for _ in range(400):
            word, question = nearly_right(rng, [*ROUTES, "tile", "nothing"])
            answered = line.ask(word, question)
            assert answered.status in (200, 400), f"{word} {json.dumps(question)[:600]} {answered.said}"
            if answered.status == 400:
                refused += 1
                assert answered.said.strip()
    assert refused > 320
    server.explorer.jobs.stop_all()


def test_requests_that_are_no_http_are_refused_and_it_goes_on(server):
    rng = random.Random(0)
    with Line(server) as line:
        for _ in range(200):
            answered = line.send(not_http(rng))
            assert 400 <= answered.status < 500
            assert answered.said
            line.close()
        assert line.ask("models", {}).status == 200


def test_a_client_that_goes_away_leaves_no_trace(server, caplog):
    with socket.create_connection(("127.0.0.1", server.port)) as tab:
        tab.sendall(HALF.format(host=f"127.0.0.1:{server.port}", place=f"/{server.secret}/ask/models").encode())
    with Line(server) as line:
        assert line.ask("models", {}).status == 200
    assert caplog.text == ""


def is_closed(tab, byte):
    """Send a byte now and then, for ten seconds at most; return whether the connection was closed meanwhile."""
    tab.settimeout(0.02)
    for _ in range(500):
        try:
            tab.sendall(byte)
            if not tab.recv(1 << 20):
                return True
        except TimeoutError:
            pass
        except OSError:
            return True
    return False


POST = "POST {place} HTTP/1.1\r\nHost: {host}\r\n"
SLOW = {
    "nothing": ("", b""),
    "a head": ("GET / HTTP/1.1\r\nX: ", b"x"),
    "a body": (POST + "Content-Length: 9999\r\n\r\n", b"1"),
    "a piece of a body": (POST + "Transfer-Encoding: chunked\r\n\r\n2000\r\n", b"1"),
    "the body of a refused request": ("GET / HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 9999\r\n\r\n", b"1"),
    "the head of a second request": ("GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\nGET /", b"x"),
}
"""What a client sends at first, and then byte by byte."""


@pytest.mark.parametrize("kind", SLOW)
def test_a_client_that_sends_too_slowly_is_cut_off(kind, server, monkeypatch):
    assert server_module.PATIENCE <= 10
    monkeypatch.setattr(server_module, "PATIENCE", 0.2)
    first, byte = SLOW[kind]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as tab:
        tab.sendall(first.format(host=f"127.0.0.1:{server.port}", place=f"/{server.secret}/ask/models").encode())
        assert is_closed(tab, byte)


@pytest.fixture
def asked_for_much(server, monkeypatch):
    """A connection on which an answer of 32 MB comes, from a server that soon loses patience."""
    monkeypatch.setitem(ROUTES, "much", lambda explorer, question: bytes(1 << 25))
    monkeypatch.setattr(server_module, "PATIENCE", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as tab:
        head = f"POST /{server.secret}/ask/much HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 2\r\n\r\n"
        tab.sendall(head.encode() + b"{}")
        yield tab


def test_a_client_that_reads_nothing_of_its_answer_is_cut_off(asked_for_much):
    time.sleep(1)
    read = sum(map(len, iter(lambda: asked_for_much.recv(1 << 20), b"")))  # what was on its way
    assert read < 1 << 25


def test_a_client_that_reads_slowly_gets_all_of_its_answer(asked_for_much):
    with asked_for_much.makefile("rb") as file:
        for _ in range(32):
            time.sleep(0.05)
            assert len(file.read(1 << 20)) == 1 << 20


@pytest.mark.parametrize("more", ["", "connection: close\r\n"])
@pytest.mark.parametrize("requests", [1, 2])
def test_an_answer_may_take_longer_than_a_request(requests, more, server, monkeypatch):
    monkeypatch.setitem(ROUTES, "slow", lambda explorer, question: time.sleep(0.7))
    monkeypatch.setattr(server_module, "PATIENCE", 0.2)
    head = POST.format(host=f"127.0.0.1:{server.port}", place=f"/{server.secret}/ask/slow") + "Content-Length: 2\r\n"
    said = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as tab:
        tab.sendall((f"{head}\r\n{{}}" * (requests - 1) + f"{head}{more}\r\n{{}}").encode())
        while said.count(b"HTTP/1.1 200") < requests:
            part = tab.recv(4096)
            assert part, "it was cut off"
            said += part


def test_an_error_of_ours_is_said_and_logged_and_it_goes_on(server, monkeypatch, caplog):
    def fail(explorer, question):
        raise ZeroDivisionError

    monkeypatch.setitem(ROUTES, "broken", fail)
    with Line(server) as line:
        answered = line.ask("broken", {})
        assert (answered.status, answered.said) == (500, "that failed: ZeroDivisionError")
        assert line.ask("models", {}).status == 200
    assert "the explorer could not answer" in caplog.text


def test_what_json_has_no_word_for_is_sent_as_null(server, monkeypatch):
    import numpy as np

    monkeypatch.setitem(ROUTES, "odd", lambda e, q: {"a": float("nan"), "b": np.array([1.0, np.inf]), "c": np.int64(3)})
    with Line(server) as line:
        assert json.loads(line.ask("odd", {}).body) == {"a": None, "b": [1.0, None], "c": 3}


USERS = [
    (architecture, text, changes)
    for architecture, texts in {"encoder": ["11110222", "00012212"], "decoder": ["for x in", "class"]}.items()
    for text in texts
    for changes in ([], [{"word": "zero", "name": "blocks.0.attention.output.x", "where": {"head": 0}}],
                    [{"word": "scale", "name": "blocks.1.feed_forward", "value": 3.0}])
]  # fmt: skip


def test_ten_users_at_once_see_their_own_state(server):
    states = [{"model": model, "text": text, "changes": changes} for model, text, changes in USERS]
    alone = tiny_explorer("encoder", "decoder")
    server_module.load_routes()
    wanted = [server_module.ask(alone, "run", {"state": one}) for one in states]
    tiles = [server_module.ask(alone, "tile", {"state": one, "what": "gradient", "name": "logits"}) for one in states]
    assert len({json.dumps(one["next"]) for one in wanted}) == len(states)
    gate = threading.Barrier(10)

    def use(user):
        rng = random.Random(user)
        gate.wait()
        with Line(server) as line:
            for number in rng.choices(range(len(states)), k=12):
                run = json.loads(line.ask("run", {"state": states[number]}).body)
                assert (run["next"], run["loss"]) == (wanted[number]["next"], wanted[number]["loss"])
                question = {"state": states[number], "what": "gradient", "name": "logits"}
                assert line.ask("tile", question).body == tiles[number]
        return user

    with ThreadPoolExecutor(10) as users:
        assert list(users.map(use, range(10))) == list(range(10))


def test_it_listens_on_this_machine_alone_and_refuses_a_port_in_use(server, explorer):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address.startswith("http://127.0.0.1:")
    others = {found[4][0] for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for other in others - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(OSError), socket.create_connection((other, server.port), timeout=1):
            pass

    with pytest.raises(ConfigError, match=f"port {server.port} cannot be used: Address already in use") as refusal:
        Server(explorer, server.port)
    assert refusal.value.hint == "leave out --port, or name another"


def test_whoever_comes_before_it_answers_waits(explorer):
    early = Server(explorer)
    with socket.create_connection(("127.0.0.1", early.port), timeout=5):
        early.socket.close()


SERVING = """
import time
from glassformer.web.router import route
from glassformer.web.explorer import Explorer
from glassformer.web.server import Server

explorer = Explorer({})

@route("slow")
def slow():
    time.sleep(600)

def forever(job):
    while True:
        job.show(1, 2, "going on")
        time.sleep(0.05)

explorer.jobs.start(forever)
server = Server(explorer)
print(server.address, flush=True)
server.serve()
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_a_job_runs_a_tab_is_open_and_somebody_waits(ending):
    program = [sys.executable, "-c", SERVING]
    running = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = running.stdout.readline().strip()
    port, secret = address.split(":")[2].split("/")[:2]
    get(address)
    with running, socket.create_connection(("127.0.0.1", int(port))) as tab:
        head = f"POST /{secret}/ask/slow HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 2\r\n\r\n{{}}"
        tab.sendall(head.encode())
        get(f"{address}ask/models", b"{}")
        running.send_signal(ending)
        _, err = running.communicate(timeout=20)
    assert (running.returncode, err) == (0, "")
