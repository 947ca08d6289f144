"""Every command that the README and `--help` print to copy runs as it is printed.

They run in a folder as a reader's after the first steps: a text `notes.txt`, and the runs `runs/majority` and
`runs/text`. What takes minutes, or needs what a machine may not have, runs in a shorter form: `SHORTENED` says why. All
run in this process, what an `echo` in front of them says as their input, and a published model is read once for all.
"""

import io
import re
import shlex
import subprocess
from functools import partial
from pathlib import Path

import pytest

from glassformer import loading
from glassformer.cli.app import COMMANDS, load_command
from glassformer.cli.examples import EXAMPLES
from glassformer.data import pydoc_topics
from glassformer.plots import THEMES
from glassformer.proofs import prove_ops
from glassformer.runs.session import new_session
from glassformer.weights import registry
from oracles import QUICK, require
from published_models import KEPT, pulled
from runs import TINY, command

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

PROGRAMS = ("glassformer", "make", "python", "pip", "echo", "git", "source")
SHORTENED = [
    (r"make (\w+).*", r"make -n \1", "takes minutes, and installs what it needs"),
    (r"pip install .*", None, "needs a network, and would change this installation"),
    (r"git clone .*", None, "needs a network"),
    (r"source .*", None, "changes the shell it is typed into"),
    (r"glassformer demo\b.*", "glassformer demo --help", "takes two minutes; tests/cli/test_demo.py has fewer steps"),
    (r"(glassformer train .*) --from \S+(.*)", r"\1 --from runs/text\2 --steps 2", "a real model takes minutes"),
    (r"(glassformer train .*) --mesh \S+(.*)", r"\1 --mesh data=1\2 --steps 2 --set layers=1", "needs eight devices"),
    (r"(glassformer train .*--engine jax.*)", r"\1 --steps 2 --set layers=1", "takes minutes"),
    (r"(glassformer train text .*)--steps \d+(.*)", r"\1--steps 2\2", "shows nothing more in more steps"),
    (r"glassformer train (?!--resume|majority|counting)(.*)", r"glassformer train \1 --steps 2", "takes minutes"),
]
"""Patterns of commands, what runs instead (None: nothing), and why."""

DONE: set[str] = set()
"""What ran already: the same line is printed in several places."""
SYNOPSIS = re.compile(r"\b[A-Z]{3,}\b|…")
"""Words in capitals, and what is left out, stand for what a reader has: such a line is not there to be copied."""
NEEDED = {"verify": "transformers", "--engine jax": "jax"}
"""What some need besides, by what they contain."""


def in_readme() -> list[str]:
    """Return the commands in blocks of the README, and those of several words in its sentences."""
    parts = re.split(r"^```", README, flags=re.MULTILINE)  # prose and blocks in turns
    lines = [
        line.removeprefix("$ ")
        for language, _, block in (part.partition("\n") for part in parts[1::2])
        if language in ("", "sh", "bash", "console", "shell")
        for line in block.splitlines()
    ]
    inline = re.findall(r"`(glassformer [^`]+)`", " ".join(parts[::2]))
    lines += [words for words in inline if len(words.split()) > 2]
    # Behind a command may stand what it does, after several spaces.
    found = [re.split(r"\s{2,}", line)[0] for line in lines if line.split(" ")[0] in PROGRAMS]
    return list(dict.fromkeys(line.split(" #")[0].strip() for line in found))


def in_help() -> list[str]:
    return list(dict.fromkeys(line for lines in EXAMPLES.values() for line in lines))


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder as a reader's: a text and two small runs."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "notes.txt").write_text(pydoc_topics()[:20_000], encoding="utf-8")
    for task in ("majority", "text"):
        data = str(folder / "notes.txt") if task == "text" else None
        settings = {**TINY[task], "steps": 4}
        recorded = task == "majority"
        for _ in new_session(task, folder / "runs" / task, data=data, settings=settings, recorded=recorded).steps():
            pass
    return folder


def once(function):
    """Let a function be called once for each choice of arguments."""
    results: dict = {}

    def called(*args, **settings):
        key = repr((args, settings))
        if key not in results:
            results[key] = function(*args, **settings)
        return results[key]

    return called


@pytest.fixture(scope="module", autouse=True)
def shared():
    """A published model is read once, a picture is coarse and light, and what other tests do as a whole is left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "open_published", once(loading.open_published))
        patch.setattr("glassformer.plots.style.DPI", 30)
        patch.setattr("glassformer.plots.drawing.THEMES", {"light": THEMES["light"]})
        patch.setattr("glassformer.cli.check.prove_all", prove_ops)  # tests/cli/test_check.py proves all
        patch.setattr("glassformer.cli.bench._reports", lambda chosen, **how: iter(()))  # tests/cli/test_bench.py
        yield


def shortened(line: str) -> str | None:
    """Return what runs in place of a command: itself, unless it is known to take long."""
    for pattern, instead, _ in SHORTENED:
        if re.fullmatch(pattern, line):
            return None if instead is None else re.sub(pattern, instead, line)
    return line


def needs(line: str, monkeypatch) -> None:
    """Skip what needs something that is not here; lead commands to the published models that tests have fetched."""
    for part, library in NEEDED.items():
        if part in line:
            found = require(library)
            if library == "jax":
                monkeypatch.setattr(found, "jit", partial(found.jit, compiler_options=QUICK))
    for name in registry.REGISTRY:
        if re.search(rf"\b{name}\b", line) and "params" not in line:
            if registry.resolve(name) is None:
                monkeypatch.setenv(registry.CACHE, str(KEPT))
            pulled(name)


def run(line: str, desk: Path, monkeypatch) -> None:
    """Run one line of a shell; refuse a failure."""
    if line in DONE:
        return
    needs(line, monkeypatch)
    monkeypatch.chdir(ROOT if line.startswith("make ") else desk)
    echo, pipe, rest = line.partition(" | ")
    words = shlex.split(rest if pipe else line)
    if words[0] == "glassformer":
        program, *said = shlex.split(echo) if pipe else ["echo"]
        assert program == "echo"
        assert not {"|", ">", "<", "&&"}.intersection(words)
        typed = (" ".join(said) + "\n").encode() if pipe else b""
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
        result = command(*words[1:])
        code, heard = result.code, result.out + result.err
    else:
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=300)
        code, heard = done.returncode, done.stdout + done.stderr
    assert code == 0, f"{line}\n{heard[-3000:]}"
    assert "Traceback" not in heard
    DONE.add(line)


def check_options(line: str) -> None:
    """Refuse options of a synopsis that its command does not have."""
    name = line.split()[1]
    known = {option for parameter in load_command(name).params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", line)) <= known


@pytest.mark.parametrize("line", in_help())
def test_what_the_help_prints_runs(line, desk, monkeypatch):
    instead = shortened(line)
    assert instead is not None, "what cannot be tried is not an example"
    assert not SYNOPSIS.search(line)
    run(instead, desk, monkeypatch)


@pytest.mark.parametrize("line", in_readme())
def test_what_the_readme_prints_runs(line, desk, monkeypatch):
    if SYNOPSIS.search(line):
        check_options(line)
        return
    instead = shortened(line)
    if instead is not None:
        run(instead, desk, monkeypatch)


def test_examples_belong_to_commands_and_begin_with_them():
    assert EXAMPLES.keys() - COMMANDS.keys() == {"glassformer"}
    for name, lines in EXAMPLES.items():
        for line in lines:
            assert f"glassformer {'' if name == 'glassformer' else name}" in line


def test_readme_names_commands_that_there_are():
    named = set(re.findall(r"(?:^|`|\$ |\| )glassformer ([a-z]+)", README, flags=re.MULTILINE))
    assert named - COMMANDS.keys() == set()
