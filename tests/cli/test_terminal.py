"""What files of strangers can do to a terminal: nothing. A real terminal is asked, by Python's module pty."""

import json
import os
import re
import select
import subprocess
import sys
import time

import pytest

from own_parts import forgotten
from runs import command, edit_config, finish, tiny_session

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
