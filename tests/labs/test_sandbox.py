"""A learner's file runs in a process of its own: whatever it does is a message, and stays in its folder."""

import os
import re
import textwrap

import pytest

from glassformer.core.errors import DataError
from glassformer.labs import check_file, get_lab
from glassformer.labs.check import read_source
from glassformer.labs.diary import DIARY

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
    assert {*os.listdir(tmp_path)} <= {"softmax_backward.py", DIARY}  # which the checker writes


def test_a_right_file_is_right_and_one_that_ends_the_process_is_told_so(written):
    verdict = check_file(written(f"print('hello')\n{RIGHT}"))
    assert verdict.ok
    assert verdict.printed.startswith("hello\n")
    assert repr(verdict).count("hello") == 10
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


USES = {
    "matplotlib": "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('a.png')\nplt.show()",
    "numba": "import numba\n@numba.njit(cache=True)\ndef twice(x): return 2 * x\nassert twice(3.0) == 6.0",
    "pandas": "import pandas as pd\nassert pd.DataFrame({'a': [1, 2]}).describe().loc['mean', 'a'] == 1.5",
    "scipy": "from scipy import special, stats\nassert special.erf(0.0) == 0 and stats.norm.cdf(0.0) == 0.5",
    "jax": "import jax.numpy as jnp\nfrom jax import grad, jit\nassert jit(grad(lambda x: jnp.sum(x**2)))(1.0) == 2.0",
    "torch": "import torch\nx = torch.ones(3, requires_grad=True)\nx.sum().backward()\nassert x.grad.sum() == 3",
}


@pytest.mark.parametrize("package", ["matplotlib", "numba", "pandas", "scipy"])
def test_a_file_may_use_ordinary_packages(package, written):
    verdict = check_file(written(RIGHT, top=USES[package]), seconds=60)
    assert verdict.ok, repr(verdict)
    assert not verdict.printed


def test_a_file_may_use_jax_and_torch(jax, written, torch):
    verdict = check_file(written(RIGHT, top=USES["jax"]), seconds=60)
    assert verdict.ok, repr(verdict)
    verdict = check_file(written(RIGHT, top=USES["torch"]), seconds=60)
    assert verdict.ok, repr(verdict)


@pytest.mark.parametrize("line", [one for one in HOSTILE if re.search("OUTSIDE|subprocess|fork|kill|socket|CDLL", one)])
def test_a_package_opens_no_way_out(line, written, tmp_path):
    verdict = check_file(written(line.replace("OUTSIDE", repr(str(tmp_path / "outside"))), top="import scipy.linalg"))
    assert re.search(HOSTILE[line][1], verdict.findings[0].words)
    assert not (tmp_path / "outside").exists()


def test_native_code_writes_nothing_outside(torch, written, tmp_path):
    path = str(tmp_path / "outside")
    call = f"import torch\ntorch.from_file({path!r}, shared=True, size=9)"
    assert not check_file(written(RIGHT, top=call), seconds=60).ok
    assert not os.path.exists(path)


def test_only_an_installed_package_is_imported_before_the_walls_stand(written, tmp_path, monkeypatch):
    """A file of its name is imported behind them."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "scipy.py").write_text("import os\nos.system('true')")
    monkeypatch.syspath_prepend(tmp_path / "mine")
    assert "os.system is refused" in check_file(written(RIGHT, top="import scipy")).findings[0].words


def test_a_files_home_is_its_folder_and_only_warnings_about_its_lines_are_shown(written, tmp_path):
    names = "HOME", "TMPDIR", "XDG_CACHE_HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR"
    lines = [f"assert os.path.samefile(os.environ[{name!r}], '.')" for name in names]
    lines += ["print(os.getcwd())", "open(os.path.expanduser('~/a'), 'w').write('x')"]
    verdict = check_file(written(RIGHT, top="\n".join(["import os", *lines])))
    assert verdict.ok, repr(verdict)
    assert not os.path.exists(verdict.printed.splitlines()[0])

    lines = "import warnings\nwarnings.warn('mine')\nwarnings.warn_explicit('theirs', UserWarning, np.__file__, 1)"
    printed = check_file(written(f"{lines}\n{RIGHT}")).printed
    assert "mine" in printed
    assert "theirs" not in printed


def test_a_file_that_is_not_python_is_a_message_and_a_notebook_is_read_without_its_calls(written, tmp_path):
    verdict = check_file(written("pass", top="def ("), "softmax_backward")
    assert (verdict.kind, verdict.has_run) == ("not Python", False)
    assert "the file is not Python" in verdict.findings[0].words
    assert not check_file(written("pass", top="\0"), "softmax_backward").ok
    other = written("pass", top="def (").rename(tmp_path / "mine.py")
    with pytest.raises(DataError, match=r"mine.py is not Python: .* \(line 1\)"):
        check_file(other)

    path = tmp_path / "a.ipynb"
    path.write_text('{"cells": [{"cell_type": "code", "source": ["%matplotlib inline\\n", "x = 1\\n", "print(x)"]}]}')
    assert read_source(path) == "x = 1"
    path.write_text("{}")
    with pytest.raises(DataError, match="is no notebook"):
        read_source(path)
