"""`glassformer explore`: what the page begins with, where it is served, and how it ends."""

import signal
import socket
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest

from browser import get, serve_once
from glassformer.web import server
from runs import command, finished, process, tiny_session

pytestmark = pytest.mark.usefixtures("numpy_engine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of two runs."""
    found = tmp_path_factory.mktemp("explored")
    for task in ("majority", "text"):
        list(tiny_session(task, found / task, steps=1).steps())
    return found


@pytest.fixture
def windows(monkeypatch):
    """What was opened in a browser: addresses, with what the files there said."""
    found = []
    monkeypatch.setattr(
        server.webbrowser, "open", lambda address: found.append((address, file_at(address).read_text()))
    )
    return found


def file_at(address):
    return Path(url2pathname(urlparse(address).path))


@pytest.fixture
def served(monkeypatch, windows):
    """What was served; every server ends after a moment."""
    return serve_once(monkeypatch)


def test_the_page_begins_with_the_model_and_the_prompt(served, folder):
    result = command("explore", folder / "majority", "11110222")
    assert result.code == 0, result.err
    [found] = served
    assert result.out == f"explore it at {found.address}\nCtrl-C ends it\n"
    assert "<title>Glassformer</title>" in found.page
    assert (found.models["first"], found.models["prompt"]) == (str(folder / "majority"), "11110222")
    command("explore", folder / "majority")
    assert served[1].models["prompt"] is None


def test_runs_of_a_folder_are_offered(served, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("explore", "--runs", folder).code == 0
    assert command("explore").code == 0
    with_runs, without = ({one["key"] for one in found.models["models"]} for found in served)
    assert with_runs - without == {(folder / "majority").as_posix(), (folder / "text").as_posix()}
    assert served[0].models["first"] is None


def test_a_port_can_be_chosen_and_one_in_use_is_refused(served, folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        result = command("explore", folder / "text", "--port", port)
        assert result.code == 2
        assert f"port {port} cannot be used" in result.err
        assert not served
    assert command("explore", folder / "text", "--port", port).code == 0
    assert f":{port}/" in served[0].address


def test_a_browser_is_opened_unless_it_is_not_wanted(served, windows, folder):
    command("explore", folder / "text")
    command("explore", folder / "text", "--no-browser")
    [(_, page)] = windows
    assert f"url={served[0].address}" in page


def test_the_secret_is_no_argument_of_the_browser_and_its_file_goes_at_the_end(served, windows, folder):
    command("explore", folder / "text")
    [(address, _)] = windows
    assert address.startswith("file://")
    assert served[0].address.split("/")[3] not in address
    assert not file_at(address).parent.exists()


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["nowhere"], "nowhere"),
        (["--port", "70000"], "65535"),
        (["--runs", "nothing", "nowhere", "11"], "nowhere"),
    ],
)
def test_what_is_not_there_is_refused_before_anything_is_served(words, fact, served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = command("explore", *words)
    assert result.code in (1, 2)
    assert result.err.startswith("error: ")
    assert fact in result.err
    assert not served


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(ending, folder):
    running = process("explore", folder / "majority", "--no-browser")
    address = running.stdout.readline().split()[-1]
    assert "<title>Glassformer</title>" in get(address)
    running.send_signal(ending)
    result = finished(running)
    assert (result.code, result.err) == (0, "")
