"""Who may ask: the page that this process served, below its secret, and nobody else."""

import json
import socket

import pytest

from browser import get, state
from glassformer.web.server import LARGEST, POLICY, new_secret, secret_of
from raw_http import Line


@pytest.fixture
def line(server):
    with Line(server) as found:
        yield found


def home(server, name="127.0.0.1"):
    return f"{name}:{server.port}"


def test_the_page_itself_is_answered(line, server):
    answered = line.request("GET", "/", {"sec-fetch-site": "none"})
    assert answered.status == 200
    assert answered.headers["content-type"] == "text/html; charset=utf-8"
    for name in ("127.0.0.1", "localhost"):
        own = {"host": home(server, name), "origin": f"http://{home(server, name)}", "sec-fetch-site": "same-origin"}
        assert line.request("POST", "/ask/models", own, b"{}").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}",
             "127.0.0.1.nip.io:{port}", "0.0.0.0:{port}", "[::1]:{port}", "LOCALHOST:{port}@evil.example", ""],
)  # fmt: skip
def test_names_that_were_made_to_point_here_are_refused(host, line, server):
    answered = line.request("GET", "/", {"host": host.format(port=server.port)})
    assert answered.status == 421
    assert "under its own address only" in answered.said


def test_a_request_with_two_hosts_or_none_is_refused(line, server):
    place = f"GET /{server.secret}/ HTTP/1.1\r\n"
    own = f"Host: {home(server)}\r\n"
    assert line.send(f"{place}{own}{own}\r\n".encode()).status in (400, 421)
    assert line.send(f"{place}\r\n".encode()).status in (400, 421)
    old = f"GET /{server.secret}/ HTTP/1.0\r\n\r\n".encode()
    assert line.send(old).status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://{home}"},
        {"origin": "http://{home}.evil.example"},
        {"origin": "http://evil.example/http://{home}"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://{home}", "sec-fetch-site": "cross-site"},
    ],
)
def test_other_pages_of_the_browser_are_refused(headers, line, server):
    sent = {name: value.format(home=home(server)) for name, value in headers.items()}
    for method, path in (("GET", "/"), ("POST", "/ask/models")):
        answered = line.request(method, path, sent)
        assert answered.status == 403
        assert "requests of other pages are not answered" in answered.said
        assert "glassformer explore" in answered.said


def test_another_page_may_link_to_the_page_and_to_nothing_else(line):
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert line.request("GET", "/", followed).status == 200
    assert line.request("GET", "/page/all.js", followed).status == 403
    assert line.request("POST", "/ask/models", followed, b"{}").status == 403
    assert line.request("GET", "/", {**followed, "sec-fetch-dest": "iframe"}).status == 403


def test_a_chosen_port_keeps_its_secret_in_a_file_of_this_user(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path))
    first = secret_of(8123)
    path = tmp_path / "explorer" / "8123"
    assert (secret_of(8123), path.stat().st_mode & 0o777) == (first, 0o600)
    assert secret_of(8124) != first
    path.chmod(0o644)  # others could read it: it is no secret any more
    assert secret_of(8123) != first
    path.write_text("short")
    assert len(secret_of(8123)) == 32


@pytest.mark.parametrize(
    "path",
    ["/", "/{other}/", "/{other}", "/{secret}x/", "/{secret}x", "/{half}/", "//{secret}/", "/%2e%2e/{secret}/",
     "/{secret}%00/", "/x/../{secret}/", "/page/all.js", "/ask/models", "/favicon.ico", "/{secret}%C3%A9/"],
)  # fmt: skip
def test_without_the_secret_there_is_nothing(path, line, server):
    secret = server.secret
    place = path.format(secret=secret, other=new_secret(), half=secret[: len(secret) // 2])
    answered = line.request("GET", place, secret=False)
    assert answered.status == 404
    assert "open the address that `glassformer explore` printed" in answered.said
    assert secret not in answered.said


def test_secrets_are_long_and_never_the_same():
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert min(map(len, made)) >= 32


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "GET"])
def test_other_methods_are_refused(method, line):
    answered = line.request(method, "/ask/models")
    assert answered.status == 405
    assert answered.said == f"this address cannot be asked by {method}"
    assert "access-control-allow-origin" not in answered.headers


def test_nobody_speaks_websocket_here(line):
    upgrade = {
        "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    assert line.request("GET", "/ask/models", upgrade).status == 405
    assert line.request("GET", "/", {**upgrade, "origin": "http://evil.example"}).status == 403


@pytest.mark.parametrize(
    "path",
    ["/page/../server.py", "/page/..%2f..%2fserver.py", "/page/%2e%2e/guard.py", "/page/..\\guard.py",
     "/page//etc/passwd", "/page/all.css/", "/page/all.css%00.js", "/page/main.js", "/page/", "/page", "/etc/passwd",
     "/%2fetc%2fpasswd", "/page/guard.py", "/page/%ff", "/derivations/", "/derivations/nothing",
     "/derivations/softmax.md", "/derivations/..%2fperformance", "/derivations/../page/all.css", "/ask/", "/tile/x"],
)  # fmt: skip
def test_no_file_is_read_by_a_name_that_a_page_sends(path, line):
    answered = line.request("GET", path)
    assert answered.status in (404, 405)
    assert answered.said


def test_a_long_question_is_refused_before_it_is_read(line):
    too_long = {"content-length": str(LARGEST + 1)}
    assert line.request("POST", "/ask/models", too_long).status == 413
    line.close()
    assert line.request("POST", "/ask/models", {"content-length": "9" * 400}).status in (400, 413)
    line.close()
    assert line.request("POST", "/ask/models", {"content-length": "-1"}).status == 400
    line.close()
    assert line.request("POST", "/ask/models", {"content-length": "²"}).status == 400


def test_a_question_in_pieces_cannot_be_longer_either(line):
    sent = {"content-length": None, "transfer-encoding": "chunked"}
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    body = piece * (LARGEST // 0x10000 + 1) + b"0\r\n\r\n"
    answered = line.request("POST", "/ask/models", sent, body)
    assert (answered.status, answered.said) == (413, "the question is too long")
    line.close()
    assert line.request("POST", "/ask/models", sent, b"2\r\n{}\r\n0\r\n\r\n").status == 200
    line.close()
    assert line.request("POST", "/ask/models", sent, b"zz\r\n{}").status == 400


@pytest.mark.parametrize(
    "lengths",
    ["Content-Length: 2\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\ncontent-length: 12",
     "Content-Length: 2\r\nContent-Length: 12", "Content-Length: 2, 12"],
)  # fmt: skip
def test_a_request_whose_end_could_be_read_in_two_ways_is_refused(lengths, line, server):
    head = f"POST /{server.secret}/ask/models HTTP/1.1\r\nHost: {home(server)}\r\n{lengths}\r\n\r\n"
    answered = line.send(head.encode() + b"2\r\n{}\r\n0\r\n\r\n")
    assert answered.status == 400
    assert answered.said


def test_the_address_without_its_last_slash_leads_to_the_page(line, server):
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for headers in ({}, followed):
        answered = line.request("GET", "", headers)
        assert (answered.status, answered.headers["location"]) == (307, f"/{server.secret}/")
    assert "Glassformer" in get(server.address.removesuffix("/"))
    assert line.request("GET", "", {"host": "evil.example"}).status == 421
    assert line.request("GET", "", {"sec-fetch-site": "cross-site"}).status == 403


def test_a_body_shorter_than_said_keeps_nobody_waiting(line, server):
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        first = f"POST /{server.secret}/ask/models HTTP/1.1\r\nHost: {home(server)}\r\nContent-Length: 99\r\n\r\n{{"
        slow.sendall(first.encode())
        assert line.ask("models", {}).status == 200


def test_the_policy_stands_on_every_answer(line):
    every = [
        line.request("GET", "/"),
        line.request("GET", "/page/all.js"),
        line.request("GET", "/page/nothing.js"),
        line.request("GET", "/derivations/softmax"),
        line.request("GET", "/derivations/nothing"),
        line.request("GET", "/", {"host": "evil.example"}),
        line.request("GET", "/", {"origin": "null"}),
        line.request("GET", "/", secret=False),
        line.request("PUT", "/tile"),
        line.ask("models", {}),
        line.ask("nothing", {}),
        line.ask("tile", {"state": state("encoder"), "what": "value", "name": "logits"}),
    ]
    assert {answered.status for answered in every} == {200, 400, 403, 404, 405, 421}
    for answered in every:
        assert answered.headers["content-security-policy"] == POLICY
        assert answered.headers["x-content-type-options"] == "nosniff"
        assert answered.headers["x-frame-options"] == "DENY"
        assert answered.headers["referrer-policy"] == "no-referrer"
        assert answered.headers["cache-control"] == "no-store"
        assert "server" not in answered.headers
    assert "unsafe" not in POLICY
    assert "*" not in POLICY


def test_what_is_no_json_is_refused_in_words(line):
    for body in (b"{", b"[]", b"3", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}", b"\0",
                 b'{"a": "\\ud800"}', b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"):  # fmt: skip
        answered = line.request("POST", "/ask/models", body=body)
        assert answered.status == 400
        assert json.loads(answered.body)["error"]
