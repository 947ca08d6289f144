"""A learner's file runs in a process of its own: whatever it does is a message, and stays in its folder."""

import os
import re
import textwrap

import pytest

from glassformer.errors import DataError
from glassformer.labs import check_file, get_lab
from glassformer.labs.check import read_source

RIGHT = "return y * (dy - (dy * y).sum(-1, keepdims=True))"
HOSTILE = {
    "while True: pass": ("too slow", "did not finish within"),
    "import os; os._exit(3)": ("ended", "ended the process with status 3"),
    "import sys; sys.exit()": ("ended", "leaves the program"),
    "return np.ones((1 << 20, 1 << 20))": ("too much memory", "more memory than a lab may have"),
    "import os; os.fork()": ("raised", "os.fork is refused"),
    "import os; os.system('true')": ("raised", "os.system is refused"),
    "import subprocess; subprocess.run(['true'])": ("raised", "subprocess.Popen is refused"),
    "import ctypes; ctypes.CDLL(None)": ("raised", "ctypes.dlopen is refused"),
    "import socket; socket.socket()": ("raised", "socket.__new__ is refused"),
    "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))": ("raised", "resource.setrlimit is refused"),
    "import os; os.mkdir('inside')": ("raised", "os.mkdir is refused"),
    "import os; os.kill(os.getppid(), 9)": ("raised", "os.kill is refused"),
    "open(OUTSIDE, 'w')": ("raised", "writing .* is refused"),
    "np.save(OUTSIDE, dy)": ("raised", "writing .* is refused"),
    "import os; os.mkfifo(OUTSIDE)": ("raised", "no attribute 'mkfifo'"),
    "open('/etc/passwd')": ("raised", "reading /etc/passwd is refused"),
    "forged(b'x' * 99 + b'\\n')": ("ended", "wrote into the channel"),
    "open('a', 'w').write('x' * (1 << 22))": ("raised", "File too large"),
    "forged(b'3\\n')": ("ended", "wrote into the channel"),
    """forged(b'{"dict": [["value", 1]]}\\n')""": ("ended", "wrote into the channel"),
    "import signal; signal.raise_signal(40)": ("ended", "the process crashed: Real-time signal"),
    "raise ValueError('\\x1b[2J')": ("raised", r"\\x1b\[2J"),
    "return 10**5000": ("wrong result", "a value of type int"),
    "return np.array([object()])": ("wrong result", "dtype object"),
    "return np.broadcast_to(dy, (1 << 20, *dy.shape))": ("wrong result", "an array of dtype float64 and .* bytes"),
    "return None": ("wrong result", "returns None"),
    "from glassformer.ops import softmax; softmax(y)": ("raised", "may not call glassformer: write it yourself"),
    "import not_there": ("raised", "No module named 'not_there'"),
}
FORGED = """
def forged(line):
    import os
    for file in range(3, 30):
        try:
            os.write(file, line)
        except OSError:
            pass
"""
LYING = """
import os, stat
os.lstat = lambda *_, **__: os.stat_result([stat.S_IFLNK] + [0] * 9)
os.readlink = lambda *_, **__: os.getcwd() + "/mine"
"""


@pytest.fixture
def written(tmp_path):
    """Write a file that solves softmax_backward with a line of code."""

    def write(line, top=""):
        path = tmp_path / "softmax_backward.py"
        lines = [top, "import numpy as np", FORGED, "def softmax_backward(dy, y):", textwrap.indent(line, "    ")]
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("line", HOSTILE)
def test_whatever_a_file_does_is_a_message(line, written, tmp_path):
    outside = tmp_path / "outside"
    path = written(line.replace("OUTSIDE", repr(str(outside))))
    verdict = check_file(path, seconds=1.5 if "while" in line else 20)
    kind, words = HOSTILE[line]
    assert not verdict.ok
    assert verdict.kind == kind, repr(verdict)
    assert re.search(words, verdict.findings[0].words)
    assert not outside.exists()
    assert os.listdir(tmp_path) == ["softmax_backward.py"]


def test_a_right_file_is_right_and_its_output_is_shown(written):
    verdict = check_file(written(f"print('hello')\n{RIGHT}"))
    assert verdict.ok
    assert verdict.printed.startswith("hello\n")
    assert repr(verdict).count("hello") == 10


def test_a_file_that_ends_the_process_while_it_is_loaded_is_told_so(written):
    words = check_file(written(RIGHT, top="import os; os._exit(3)")).findings[0].words
    assert words == "it ended the process with status 3 while the file was loaded"


def test_the_kernel_refuses_what_gets_past_the_hook(written, tmp_path):
    ours = str(get_lab("softmax_backward").exercises[0].reference.__code__.co_filename)
    for path, mode in ((ours, "r"), ("/etc/passwd", "r"), (tmp_path / "outside", "w")):
        verdict = check_file(written(f"open({str(path)!r}, {mode!r})", top=LYING))
        assert "PermissionError: [Errno 13] Permission denied" in verdict.findings[0].words


def test_usual_modules_are_imported(written):
    modules = "numpy.testing, numpy.linalg, unittest, dataclasses, hashlib, glassformer"
    assert check_file(written(f"np.testing.assert_equal(1, 1)\n{RIGHT}", top=f"import {modules}")).ok


def test_a_file_that_is_not_python_is_a_message(written, tmp_path):
    verdict = check_file(written("pass", top="def ("), "softmax_backward")
    assert (verdict.kind, verdict.has_run) == ("not Python", False)
    assert "the file is not Python" in verdict.findings[0].words
    assert not check_file(written("pass", top="\0"), "softmax_backward").ok
    other = written("pass", top="def (").rename(tmp_path / "mine.py")
    with pytest.raises(DataError, match=r"mine.py is not Python: .* \(line 1\)"):
        check_file(other)


def test_a_notebook_is_read_without_its_calls(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text('{"cells": [{"cell_type": "code", "source": ["%matplotlib inline\\n", "x = 1\\n", "print(x)"]}]}')
    assert read_source(path) == "x = 1"
    path.write_text("{}")
    with pytest.raises(DataError, match="is no notebook"):
        read_source(path)
