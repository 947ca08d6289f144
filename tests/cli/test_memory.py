"""Commands whose memory is limited, as by `ulimit -v`: they end with one error that says so."""

import subprocess
import sys

import pytest

from glassformer.cli import app, memory
from glassformer.core.errors import WeightsError
from glassformer.core.files import explained
from runs import command, tiny_session

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
