"""How numbers are written, and how tables look on a terminal and in a pipe."""

import json
import re
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
from runs import command

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
