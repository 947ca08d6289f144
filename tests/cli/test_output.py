"""How numbers and tables look on a terminal and in a pipe, and that files of strangers can do nothing to it."""

import json
import os
import re
import select
import subprocess
import sys
import time
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from rich.cells import cell_len

from glassformer.cli import check, runs
from glassformer.cli.output import plural, print_json, print_table
from glassformer.core.format import bytes_text, count_text, flops_text, signed
from glassformer.proofs import Check
from glassformer.runs.listing import RunSummary
from own_parts import forgotten
from runs import command, edit_config, finish, tiny_session

WHEN = datetime(2026, 3, 14, 15, 9)
LISTED = [
    RunSummary(
        Path("runs/text-3"), WHEN, "text", {"data": "notes.txt", "width": 64}, 1400, 2000, 1.9384, 2.1, 2.0564, 1250
    ),
    RunSummary(Path("runs/majority"), WHEN, "majority", {}, 600, 600, 0.0003, 0.0003, 0.0003, 600, 1.0),
    RunSummary(Path("runs/old"), WHEN, error="runs/old/config.json is damaged: it holds no JSON"),
]


@pytest.mark.parametrize(
    ("write", "number", "text"),
    [
        (bytes_text, 1023, "1,023 B"),
        (bytes_text, 3 * 2**30, "3.0 GiB"),
        (count_text, 124_439_808, "124.4 M"),
        (flops_text, 2e15, "2.0 PFLOP"),
        (partial(plural, noun="step"), 1, "1 step"),
        (partial(plural, noun="step"), 2000, "2,000 steps"),
        (partial(signed, places=2), -0.00001, "0.00"),
        (partial(signed, places=2), 1.25, "+1.25"),
    ],
)
def test_numbers_are_written_with_their_units(write, number, text):
    assert write(number) == text


def test_json_never_holds_what_is_no_json(capsys):
    print_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": ("é", None, True)})
    out = capsys.readouterr().out
    assert json.loads(out, parse_constant=pytest.fail) == {"a": None, "b": [None, 1.5], "c": ["é", None, True]}
    assert out.count("\n") == 1


LISTINGS = {
    "check": ["check"],
    "models": ["models"],
    "params": ["params", "tiny-decoder"],
    "runs": ["runs"],
    "sampling": ["settings", "sampling"],
    "settings": ["settings"],
    "tasks": ["tasks"],
}


@pytest.fixture(params=LISTINGS)
def listing(request, monkeypatch):
    monkeypatch.setattr(runs, "list_runs", lambda folder: LISTED)
    monkeypatch.setattr(check, "prove_all", lambda progress: [Check.of("softmax", "op", 1e-16, 1e-10)])
    return LISTINGS[request.param]


def test_a_pipe_gets_lines_with_tabs_below_a_header(listing):
    result = command(*listing)
    assert result.code == 0
    tables = [part.splitlines() for part in re.split(r"^# .*\n", result.out, flags=re.MULTILINE) if part]
    for header, *lines in tables:
        assert "\t" in header
        assert lines
        assert {line.count("\t") for line in lines} == {header.count("\t")}


def test_a_terminal_gets_tables_that_fit(listing, monkeypatch):
    for variable, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("COLUMNS", "80")
    result = command(*listing)
    assert result.code == 0
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in result.out.splitlines()]
    assert max(map(cell_len, lines)) <= 80
    assert "┃" in result.out
    assert "…" not in result.out, "nothing is cut"
    assert not re.search(r"\x1b\[[\d;]*3\dm", result.out), "no color where none is wanted"


def test_cells_are_data_and_never_markup(capsys, monkeypatch):
    print_table(("a", ">b"), [("[bold]x[/bold]\ty\nz", 3)], title="t")
    assert capsys.readouterr().out == "# t\na\tb\n[bold]x[/bold] y z\t3\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(("a", ">b"), [("[bold]", 3)])
    assert "[bold]" in capsys.readouterr().out


pty = pytest.importorskip("pty", reason="the system has no pseudo-terminals")

EVIL = "\x1b]0;owned\x07\x1b[2K\x1b[1Aworse\x9b2J\r\u202e"
SHOWN = r"\x1b]0;owned\x07\x1b[2K\x1b[1Aworse\x9b2J"
ENGINE = {"GLASSFORMER_ENGINE": "numpy", "COLUMNS": "200", "NO_COLOR": "1", "TERM": "xterm"}


class Terminal:
    """A command on a terminal of its own; `seen` is what came to the screen so far."""

    def __init__(self, *words, cwd):
        self.side, other = pty.openpty()
        streams = {"stdin": other, "stdout": other, "stderr": other}
        line = [sys.executable, "-m", "glassformer", *map(str, words)]
        self.process = subprocess.Popen(line, **streams, cwd=cwd, env={**os.environ, **ENGINE}, start_new_session=True)
        os.close(other)
        self.seen = ""

    def read(self, seconds, until=None):
        """Read on for so long, or until this text has come, or the command has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and (until is None or until not in self.seen):
            if select.select([self.side], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.side, 65536).decode("utf-8", "replace")
                except OSError:  # closed by the command
                    break
        return self.seen

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.side)


@pytest.fixture
def on_terminal(tmp_path):
    opened = []

    def start(*words):
        opened.append(Terminal(*words, cwd=tmp_path))
        return opened[-1]

    yield start
    for one in opened:
        one.end()


def escape_codes(seen):
    """Return the control codes of a text but for those by which rich draws: colors, the cursor, lines."""
    plain = re.sub(r"\x1b\[(\?25[lh]|[0-9;]*m|2K|1A)", "", seen.replace("\r\n", "\n"))
    return re.findall(r"[\0-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202e]", plain)


@pytest.fixture
def gift(tmp_path, numpy_engine, monkeypatch):
    """A run folder of someone else, trained with a Python file, whose names hold escape sequences."""
    monkeypatch.chdir(tmp_path)
    name = f"mine{EVIL}.py"
    (tmp_path / name).write_text(
        "import glassformer as gf\n\n@gf.task(settings={'width': 8, 'heads': 2, 'layers': 1})\ndef letters():\n"
        "    for number in range(60):\n        yield f'{number}=', 'x' * (number % 3)\n"
    )
    with forgotten():
        out = command("train", name, "--steps", "1", "--set", "eval_every=1", "--out", "gift")
    assert out.code == 0, out.err
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    return tmp_path / "gift"


def test_the_question_of_trust_stays_and_shows_what_a_name_holds(gift, on_terminal):
    seen = on_terminal("generate", gift, "1=", "--max-new-tokens", "2")
    seen.read(60, until="[y/N]")
    after = seen.read(1.5)  # longer than it takes to show what is being read
    assert SHOWN in after
    question = after.index("was trained with")
    assert "\x1b[2K" not in after[question:]  # it is not erased
    assert "reading" not in after[question:]
    assert not escape_codes(after[question:])
    os.write(seen.side, b"y\n")
    seen.read(60)
    assert seen.process.wait() == 0
    assert (gift.parent / "nobody" / "glassformer" / "trusted.json").exists()


@pytest.mark.parametrize("words", [["runs", "."], ["compare", "one", "two"]])
def test_a_table_shows_control_characters_as_escapes(words, tmp_path, numpy_engine, on_terminal):
    for name in ("one", "two"):
        finish(tiny_session("majority", tmp_path / name, steps=1))
    edit_config(tmp_path / "two", lambda content: content["record"].update(preset=EVIL, platform=EVIL))
    seen = on_terminal(*words).read(60)
    assert r"\x1b]0" in seen
    assert not escape_codes(seen)


def test_names_in_an_index_of_weights_are_harmless_in_errors_and_whole_in_a_pipe(tmp_path, numpy_engine, on_terminal):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    index = {"metadata": {}, "weight_map": {"wte.weight": f"a{EVIL}.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    seen = on_terminal("generate", "model", "a").read(60)
    assert SHOWN in seen.replace("\r\n", "")
    assert not escape_codes(seen)
    assert EVIL[:8] in command("generate", str(folder), "a").err
