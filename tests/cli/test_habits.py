"""What all commands have in common: how they take a text, name options, explain themselves, print tables and end."""

import io
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import click
import pytest

from glassformer.cli import check, embed, verify
from glassformer.cli.commands import declarations, load_command
from glassformer.interpret import sweep
from glassformer.proofs import Check
from runs import command, tiny_session

TABLES = {
    "tasks": "tasks",
    "settings": "settings recipe",
    "runs": "runs {runs}",
    "compare": "compare {runs}/majority {runs}/text",
    "look": "look {runs}/majority 11110222 heads",
    "lab": "lab",
    "bugs": "bugs",
    "study": "study",
    "check": "check",
    "params": "params tiny-decoder",
    "plan": "plan tiny-decoder --mesh data=2 --device-memory 1GB",
    "generate": "generate {runs}/text Th --max-new-tokens 2 --logprobs",
    "predict": "predict {runs}/majority 11110222",
    "tokenize": "tokenize {runs}/text The",
    "embed": "embed {runs}/majority 11110222 00112220",
    "verify": "verify {runs}/text",
    "models": "models",
    "search": "search {runs}/notes.npz cat",
    "chat": None,  # a conversation
    "eval": None,  # one line, and a table where a task has groups
    "demo": None, "train": None, "tokens": None, "replay": None, "inspect": None, "explore": None, "export": None,
    "pull": None,
}  # fmt: skip
"""A line for each command that prints a table; None for those whose result is a sentence, a file or a page."""
WITHOUT_JSON = {"chat": "a conversation", "explore": "a server"}
TEXTS = {"generate", "chat", "explore", "inspect", "replay", "look", "tokenize", "search"}
"""Commands that read one text."""
OWN_MEANINGS = {
    "--top": "rows of a table, or possibilities for each input",
    "--data": "what to learn from, or what to measure on",
    "--from": "a trained model, or measurements of a study",
}
"""Options of the same name whose help begins differently, and why."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("habits")
    for task in ("majority", "text"):
        list(tiny_session(task, folder / task, steps=2, eval_every=2).steps())
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(check, "prove_all", lambda progress: [Check.of("softmax", "op", 1e-16, 1e-10)])
    row = SimpleNamespace(layer="embedding", largest=1.0, difference=0.0, agrees=True)
    hit = SimpleNamespace(cosine=0.5, file="notes.md", line=3, text="a cat")
    monkeypatch.setattr(embed, "read_index", lambda _: SimpleNamespace(passages=["a cat"], model="minilm"))
    monkeypatch.setattr(embed, "search_index", lambda *_, **__: [hit])
    monkeypatch.setattr(verify, "compare", lambda *_: SimpleNamespace(rows=[row], tokens=3, first_departure=None))


@pytest.mark.parametrize("name", declarations())
def test_every_command_explains_each_argument_and_option(name):
    result = command(name, "--help")
    assert result.code == 0
    assert f"Usage: glassformer {name}" in result.out
    assert re.search(rf"\n  Examples:\n(    .*\n)*    .*glassformer {name}", result.out)
    for one in load_command(name).params:
        assert one.help, one.name
        assert one.help.endswith((".", "…")), one.help
        if isinstance(one, click.Argument):
            written = one.make_metavar(click.Context(load_command(name)))
            assert one.required or one.nargs == -1 or written.startswith("["), f"{written} may be left out"
        elif not one.is_flag and isinstance(one.default, str | int | float):
            assert f"[default: {one.default}" in " ".join(result.out.split())


def test_the_same_option_means_the_same_everywhere():
    found = {}
    for name in declarations():
        for one in load_command(name).params:
            if isinstance(one, click.Option) and one.opts[0] not in OWN_MEANINGS:
                made = getattr(one.type, "made", type(one.type)).__name__
                kind = made, one.is_flag, one.metavar if one.metavar != "FILE" else "DIR"
                meaning = re.split(r"[:(.]", one.help)[0].strip()
                found.setdefault(one.opts[0], {}).setdefault((kind, meaning), []).append(name)
    assert {option: uses for option, uses in found.items() if len(uses) > 1} == {}


def test_a_text_is_an_argument_and_a_dash_reads_stdin(runs, monkeypatch):
    for name in declarations():
        own = {one.name for one in load_command(name).params if isinstance(one, click.Argument)}
        assert ("text" in own) == (name in TEXTS)
        assert not any("--prompt" in one.opts for one in load_command(name).params)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"11110222\n")))
    piped = command("look", runs / "majority", "-", "--json")
    assert piped.out == command("look", runs / "majority", "11110222", "--json").out


def test_every_command_that_reports_has_json():
    having = {name for name in declarations() if any("--json" in one.opts for one in load_command(name).params)}
    assert having == declarations().keys() - WITHOUT_JSON.keys()


@pytest.mark.parametrize("name", [name for name, line in TABLES.items() if line is not None])
def test_tables_are_tab_separated_in_a_pipe(name, runs):
    result = command(*(word.format(runs=runs) for word in TABLES[name].split()))
    assert result.code == 0, result.err
    assert not re.search("[┃│━─]", result.out)
    written = result.out if name != "generate" else "".join(result.out.partition("id\t")[1:])
    tables = [part.splitlines() for part in re.split(r"^# .*\n", written, flags=re.MULTILINE) if part]
    assert tables
    for header, *lines in tables:
        assert "\t" in header
        assert {line.count("\t") for line in lines} <= {header.count("\t")}


def test_every_command_is_in_the_table_of_tables():
    assert TABLES.keys() == declarations().keys()


@pytest.mark.parametrize("words", ["settings text", "--help"])
def test_a_reader_who_leaves_ends_a_command_without_a_word(words):
    program = (
        f"{sys.executable} -m glassformer {words} 2>errors | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}; cat errors"
    )
    code, _, said = subprocess.run(
        ["bash", "-c", f"cd $(mktemp -d) && {program}"], capture_output=True, text=True, timeout=60
    ).stdout.partition("\n")
    assert code in ("0", "141"), "it was done before, or ended as by SIGPIPE"
    assert said == ""


def test_a_sweep_that_is_stopped_prints_what_it_has(runs, monkeypatch):
    computed, calls = sweep.run_traced, []

    def second_is_stopped(*args, **settings):
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return computed(*args, **settings)

    monkeypatch.setattr(sweep, "run_traced", second_is_stopped)
    monkeypatch.setattr(sweep, "bytes_of", lambda run: 1 << 40)  # memory for one variant at once
    result = command("look", runs / "majority", "11110222", "patching", "--other", "22220111", "--token", "2", "--json")
    assert result.code == 130
    found = json.loads(result.out)
    assert found["interrupted"]
    assert len(found["rows"]) == 1
    assert "interrupted: 1 of " in result.err
    calls.clear()
    result = command("look", runs / "majority", "11110222", "ablation")
    assert result.code == 130
    assert result.out.count("\n") == 3  # title, header, one head
    assert "interrupted: 1 of " in result.err
