"""Compiled code on disk: never stale, never damaged, and no need."""

import ast
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glassformer.engines.cpu import compile as compiling
from glassformer.engines.cpu.compile import ELSEWHERE, ENDING, HERE, KernelCache, compiled, source_hash
from glassformer.weights.catalog import CACHE


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A place beside a source, and a user's folder for caches, of one's own; what was said is forgotten."""
    source_hash()  # of the sources that there are
    monkeypatch.setattr(compiling, "HERE", tmp_path / "source")
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    (tmp_path / "source").mkdir()
    return tmp_path


def double(x):
    return x + x


def started(home):
    """A kernel as a process has it that has just started."""
    kernel = compiled(double)
    kernel._cache = KernelCache(double)
    kernel._cache._home = home / "source"
    return kernel


def misses(kernel):
    return sum(kernel.stats.cache_misses.values())


def files(home):
    return sorted(path for path in home.rglob("*") if path.is_file())


def test_what_was_compiled_once_is_there_at_the_next_start(home):
    first = started(home)
    assert not compiling.has_compiled_kernels()
    assert (first(2), first(1.5), misses(first)) == (4, 3.0, 2)
    again = started(home)
    assert compiling.has_compiled_kernels()
    assert (again(2), again(1.5), misses(again)) == (4, 3.0, 0)
    assert [path.suffix for path in files(home)] == [ENDING] * 2
    assert again(np.float32(2)) == 4  # of a type that is new
    assert misses(again) == 1


START = """
import sys
import numpy as np
from glassformer.engines.cpu.update import square_sum
square_sum(np.ones(3, np.float32))
print(sum(square_sum.stats.cache_misses.values()), "numba.np.linalg" in sys.modules)
"""


def test_what_is_kept_is_loaded_without_all_that_compiling_takes(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    starts = [
        subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True, env=environment)
        for _ in range(2)
    ]
    assert [start.stdout.split() for start in starts] == [["1", "True"], ["0", "False"]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:os.fork", "ignore:This process")
def test_of_five_first_starts_at_once_all_compute_and_leave_whole_files(home):
    children = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            kernel = started(home)
            os._exit(0 if (kernel(2), kernel(1.5)) == (4, 3.0) else 1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 5
    assert [path.suffix for path in files(home)] == [ENDING] * 2
    after = started(home)
    assert (after(2), after(1.5), misses(after)) == (4, 3.0, 0)


def test_code_is_that_of_all_sources_of_the_compiler_and_of_the_processor(home, monkeypatch):
    started(home)(2)
    monkeypatch.setattr(compiling, "source_hash", lambda: "another")
    other = started(home)
    other(2)
    assert misses(other) == 1
    key = KernelCache._key(
        started(home)._cache, (), type("Codegen", (), {"magic_tuple": lambda self: ("x86", "old")})()
    )
    for name in ("x86", "old", "double", "()"):
        assert name in key.decode()


def test_the_hash_is_of_all_files_whose_lines_or_constants_stand_in_kernels(tmp_path, monkeypatch):
    for path in (*HERE.rglob("*.py"), *ELSEWHERE):
        target = tmp_path / path.relative_to(HERE.parents[1])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    monkeypatch.setattr(compiling, "HERE", tmp_path / "engines" / "cpu")
    monkeypatch.setattr(compiling, "ELSEWHERE", (tmp_path / "core" / "quantized.py",))
    assert source_hash.__wrapped__() == source_hash()
    for changed in (tmp_path / "engines" / "cpu" / "tiles.py", tmp_path / "core" / "quantized.py"):
        text = changed.read_text(encoding="utf-8")
        changed.write_text(f"{text}# another\n", encoding="utf-8")
        assert source_hash.__wrapped__() != source_hash()
        changed.write_text(text, encoding="utf-8")
    monkeypatch.setattr(compiling.numba, "__version__", "0.0")
    assert source_hash.__wrapped__() != source_hash()


MADE = {"compiled", "inlined", "overload", "intrinsic", "instruction"}


def names_in_kernels(tree):
    """The names that stand in functions which are compiled."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            marks = {part.id for mark in node.decorator_list for part in ast.walk(mark) if isinstance(part, ast.Name)}
            if marks & MADE:
                yield from (part.id for body in node.body for part in ast.walk(body) if isinstance(part, ast.Name))


def test_kernels_take_nothing_from_files_that_are_not_hashed():
    for path in HERE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        used, depth = set(names_in_kernels(tree)), len(path.relative_to(HERE).parts)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level > depth:
                source = path.parents[node.level - 1].joinpath(*(node.module or "").split(".")).with_suffix(".py")
                taken = used & {alias.asname or alias.name for alias in node.names}
                assert not taken or source in ELSEWHERE, f"{path.name} compiles {taken} of {source}"


DAMAGE = {
    "empty": lambda content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "one bit": lambda content: content[:-500] + bytes([content[-500] ^ 1]) + content[-499:],
    "another": lambda content: content[::-1],
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_code_is_compiled_again_and_said_once(home, caplog, what):
    started(home)(2)
    (path,) = files(home)
    right = path.read_bytes()
    path.write_bytes(DAMAGE[what](right))
    with caplog.at_level(logging.WARNING, "glassformer"):
        again = started(home)
        assert (again(2), misses(again)) == (4, 1)
    assert caplog.messages == ["some compiled kernels were damaged: they are compiled again"]
    assert path.read_bytes()[:32] == right[:32] or len(path.read_bytes()) > 32
    assert misses(started(home)) == 0


def test_code_under_the_name_of_another_is_not_taken(home):
    kernel = started(home)
    kernel(2)
    kernel(1.5)
    one, other = files(home)
    one.write_bytes(other.read_bytes())
    again = started(home)
    assert (again(2), again(1.5), misses(again)) == (4, 3.0, 1)


def test_where_nothing_can_be_written_beside_the_source_the_user_has_a_folder(home):
    (home / "source" / "__pycache__").write_text("in the way")
    started(home)(2)
    assert (home / "cache" / f"kernels-{source_hash()}") in files(home)[0].parents
    again = started(home)
    assert (again(2), misses(again)) == (4, 0)


def test_a_folder_that_is_asked_for_is_the_only_one(home, monkeypatch):
    monkeypatch.setattr(compiling.numba.config, "CACHE_DIR", str(home / "asked"))
    started(home)(2)
    assert [path.relative_to(home).parts[0] for path in files(home)] == ["asked"]


def test_where_nothing_can_be_written_at_all_it_is_said_once(home, caplog):
    (home / "source" / "__pycache__").write_text("in the way")
    (home / "cache").write_text("in the way")
    with caplog.at_level(logging.WARNING, "glassformer"):
        kernel = started(home)
        assert (kernel(2), kernel(1.5)) == (4, 3.0)
    assert len(caplog.messages) == 1
    assert "cannot be kept in" in caplog.text
    assert "every start compiles them again" in caplog.text


def test_a_full_disk_costs_time_only(home, caplog, monkeypatch):
    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with caplog.at_level(logging.WARNING, "glassformer"):
        assert started(home)(2) == 4
    assert "No space left on device" in caplog.text
    assert not files(home)
