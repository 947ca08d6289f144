"""Every command that the README and `--help` print to copy runs, word for word, as it is printed.

They run in this process, in the folder `desk`. The words of a line are never changed; the fixture `small` makes small
what they ask for: few steps, few proofs, no figures, a server that ends. `make` runs with programs that note how they
are called, and `--mesh` in a process with eight devices. `UNTRIED` says what is not tried, and why.
"""

import io
import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import run as run_program

import pytest

from browser import serve_once
from devices import answer, start
from glassformer.cli import demo, explore
from glassformer.cli import study as study_command
from glassformer.cli import train as train_command
from glassformer.cli.app import EXAMPLES as OF_ALL
from glassformer.cli.commands import declarations, load_command
from glassformer.data import pydoc_topics
from glassformer.proofs import check, layer_cases, lora_cases, model_cases, op_cases
from glassformer.runs.run import open_run
from glassformer.runs.start import new_session
from glassformer.studies import studies
from glassformer.weights import catalog, stores
from oracles import require
from pages import draw_nothing
from published_models import pulled
from runs import TINY, command

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

PROGRAMS = ("glassformer", "make", "python", "pip", "echo", "git", "source")
UNTRIED = {
    r"pip install .*": "needs a network, and would change this installation",
    r"git clone .*": "needs a network",
    r"source .*": "changes the shell it is typed into",
}
"""Patterns of lines that are not tried, and why."""

EXAMPLES = {"glassformer": OF_ALL} | {name: one.examples for name, one in declarations().items()}
TICKETS, LETTERS = "python examples/tickets.py", "glassformer train classify --data tickets.csv"
MADE_BY = {
    "tickets.csv": TICKETS,
    "runs/classify": LETTERS,
    "runs/recorded": EXAMPLES["replay"][0],
    "notes.npz": EXAMPLES["embed"][1],
}
"""Files and runs that examples read, and the examples that make them."""

DONE: set[str] = set()
"""What ran already: the same line is printed in several places."""
SYNOPSIS = re.compile(r"\b[A-Z]{3,}\b|…")
"""Words in capitals, and what is left out, stand for what a reader has: such a line is not there to be copied."""


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
    """A folder as a reader's: a text, a folder of notes and two small runs."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "notes").mkdir()
    (folder / "notes" / "files.md").write_text("# Files\n\nA with block closes a file.\n\nTabs are not spaces.\n")
    (folder / "notes.txt").write_text(pydoc_topics()[:20_000], encoding="utf-8")
    (folder / "examples").symlink_to(ROOT / "examples")
    for task in ("majority", "text"):
        data = str(folder / "notes.txt") if task == "text" else None
        settings = {**TINY[task], "steps": 4}
        list(new_session(task, folder / "runs" / task, data=data, settings=settings).steps())
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


def train_little(patch):
    """Let training take two steps, and new models be small unless a command sets their sizes."""
    anew, again = train_command.new_session, train_command.resume_session

    def begun(task, *args, settings, source=None, **more):
        own = TINY[task] if source is None else {}
        return anew(task, *args, settings={**own, **settings, "steps": 2}, source=source, **more)

    def resumed(folder, *, steps, **more):
        return again(folder, steps=None if steps is None else open_run(folder).recipe.steps + 2, **more)

    patch.setattr(train_command, "new_session", begun)
    patch.setattr(train_command, "resume_session", resumed)
    little = {name: {**TINY[name], "steps": 2, "eval_every": 1} for name in demo.PARTS}
    little["text"]["context"] = 64
    little["dates"] |= {"locales": demo.LANGUAGES, "positions": "rotary"}
    patch.setattr(demo, "PARTS", little)


def study_little(patch):
    """Let a study measure nothing at one point."""
    run, about = study_command.run_study, dict.fromkeys(("check", "finding", "figures", "derived"))
    about |= {"columns": (), "answers": {}, "whole": {}, "by": ()}

    def ran(name, **how):
        little = replace(studies()[name], grid={"x": [1]}, measure=lambda point, seed: {"y": seed}, **about)
        return run(little, **how)

    patch.setattr(study_command, "run_study", ran)


def prove_few(patch):
    """Let some cases of each kind stand for all."""
    for cases in (op_cases, layer_cases, model_cases, lora_cases):
        patch.setattr(check, cases.__name__, lambda cases=cases: cases()[::40])


def explore_briefly(patch):
    """Let what serves a page end at once."""
    serve_once(patch)
    anywhere = explore.Server
    patch.setattr(explore, "Server", lambda explorer, port: anywhere(explorer))
    patch.setattr("glassformer.web.server.webbrowser.open", lambda address: True)


@pytest.fixture(scope="module", autouse=True)
def small(numpy_engine):
    """Make small what commands do, and read a published model once."""
    with pytest.MonkeyPatch.context() as patch:
        train_little(patch)
        prove_few(patch)
        study_little(patch)
        explore_briefly(patch)
        published = tuple(replace(store, model=once(store.model)) for store in stores.published_stores())
        patch.setattr(stores, "published_stores", lambda: published)
        patch.setattr("glassformer.plots.style._saved", draw_nothing)
        yield


def needs(line: str, desk: Path, monkeypatch) -> None:
    """Skip what needs something that is not here; fetch published models, and make the file that a line reads."""
    if "verify" in line:
        require("transformers")
    if "--engine jax" in line:
        require("jax")
    if "--from smollm2" in line:
        file = desk / "small.gguf"
        assert file.exists() or command("export", desk / "runs" / "text", file).code == 0
        monkeypatch.setattr(catalog, "resolve", lambda name: file)
        return
    for name in catalog.CATALOG:
        if re.search(rf"\b{name}\b", line) and "params" not in line:
            pulled(name)
    for made, by in MADE_BY.items():
        if made in line and line != by:
            run(by, desk, monkeypatch)


def run(line: str, desk: Path, monkeypatch) -> None:
    """Run one line of a shell; refuse a failure."""
    if line in DONE or any(re.fullmatch(pattern, line) for pattern in UNTRIED):
        return
    needs(line, desk, monkeypatch)
    monkeypatch.chdir(desk)
    if line.startswith("make "):
        code, heard = make(line, desk)
    elif line.startswith("python "):
        done = run_program([sys.executable, *shlex.split(line)[1:]], capture_output=True, text=True)
        code, heard = done.returncode, done.stdout + done.stderr
    elif "--mesh" in line and " train " in line:
        code, heard = answer(start(Path(__file__), line, devices=8))
    else:
        code, heard = called(line, monkeypatch)
    assert code == 0, f"{line}\n{heard[-3000:]}"
    assert "Traceback" not in heard
    DONE.add(line)


def called(line: str, patch) -> tuple[int, str]:
    """Run `glassformer …`, perhaps behind an `echo …`, in this process."""
    echo, pipe, rest = line.partition(" | ")
    words = shlex.split(rest if pipe else line)
    program, *said = shlex.split(echo) if pipe else ["echo"]
    assert (program, words[0]) == ("echo", "glassformer")
    assert not {"|", ">", "<", "&&"}.intersection(words)
    typed = (" ".join(said) + "\n").encode() if pipe else b""
    patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
    result = command(*words[1:])
    return result.code, result.out + result.err


def make(line: str, desk: Path) -> tuple[int, str]:
    """Run `make …` where everything is installed, by programs that note how they are called."""
    folder = desk / "checkout"
    programs = folder / ".venv" / "bin"
    if not folder.exists():
        programs.mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        for name in ("python", "pip", "glassformer"):
            (programs / name).write_text('#!/bin/sh\necho "$(basename "$0") $*" >> called\n', encoding="utf-8")
            (programs / name).chmod(0o755)
        for name in (".installed-base", ".installed-lint", ".fetched", ".installed-dev"):
            (folder / ".venv" / name).touch()  # each newer than what it was made from
    (folder / "called").write_text("", encoding="utf-8")
    alone = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}  # of a make that runs the tests
    done = run_program(shlex.split(line), cwd=folder, env=alone, capture_output=True, text=True, timeout=60)
    wanted = {"make demo": "glassformer demo", "make test": "python -m pytest -n 2"}[line]
    assert (folder / "called").read_text(encoding="utf-8").splitlines() == [wanted]
    return done.returncode, done.stdout + done.stderr


def check_options(line: str) -> None:
    """Refuse options of a synopsis that its command does not have."""
    name = line.split()[1]
    known = {option for parameter in load_command(name).params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", line)) <= known


@pytest.mark.parametrize("line", in_help())
def test_what_the_help_prints_runs(line, desk, monkeypatch):
    assert not any(re.fullmatch(pattern, line) for pattern in UNTRIED), "what cannot be tried is not an example"
    assert not SYNOPSIS.search(line)
    run(line, desk, monkeypatch)


@pytest.mark.parametrize("line", in_readme())
def test_what_the_readme_prints_runs(line, desk, monkeypatch):
    if SYNOPSIS.search(line):
        check_options(line)
    else:
        run(line, desk, monkeypatch)


def test_every_command_has_an_example():
    assert all(EXAMPLES.values())
    for name, lines in EXAMPLES.items():
        assert any(f"glassformer {'' if name == 'glassformer' else name}" in line for line in lines)


if __name__ == "__main__":  # a line for several devices, in a process that has them
    with pytest.MonkeyPatch.context() as patch:
        train_little(patch)
        patch.setattr("glassformer.plots.style._saved", draw_nothing)
        print(json.dumps(called(sys.argv[1], patch)))  # noqa: T201
