"""How numbers read, and how tables look: at 60, 80 and 120 columns, against the kept ones in tests/cli/tables.

After a change that is meant, look at what differs and renew them:

    GLASSFORMER_RENEW_SCREENS=1 make test ARGS=tests/cli/test_output.py
"""

import json
import os
import re
from datetime import datetime
from pathlib import Path

import pytest
from rich.cells import cell_len

from glassformer.cli import runs
from glassformer.cli.output import bytes_text, count_text, flops_text, print_json
from glassformer.runs.listing import Listed
from runs import command

KEPT = Path(__file__).with_name("tables")
WIDTHS = (60, 80, 120)
TABLES = {
    "help": ["runs", "--help"],
    "params": ["params", "tiny-decoder"],
    "runs": ["runs"],
    "sampling": ["settings", "sampling"],
    "settings": ["settings"],
    "tasks": ["tasks"],
}
WHEN = datetime(2026, 3, 14, 15, 9)
LISTED = [
    Listed(
        Path("runs/text-3"), WHEN, "text", {"data": "notes.txt", "width": 64}, 1400, 2000, 1.9384, 2.1, 2.0564, 1250
    ),
    Listed(Path("runs/majority"), WHEN, "majority", {}, 600, 600, 0.0003, 0.0003, 0.0003, 600, 1.0),
    Listed(Path("runs/old"), WHEN, error="runs/old/config.json is damaged: it holds no JSON"),
]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB"), (5000 * 2**40, "5,000.0 TiB")],
)
def test_sizes(size, text):
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("number", "text"), [(12, "12"), (1500, "1.5 k"), (124_439_808, "124.4 M"), (174.6e9, "174.6 B"), (2e12, "2.0 T")]
)
def test_counts(number, text):
    assert count_text(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(12, "12 FLOP"), (1500, "1.5 kFLOP"), (284.8e6, "284.8 MFLOP"), (358.8e9, "358.8 GFLOP"), (2e15, "2.0 PFLOP")],
)
def test_arithmetic_is_counted_in_units_of_its_own(number, text):
    assert flops_text(number) == text


def test_json_never_holds_what_is_no_json(capsys):
    print_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": ("é", None, True)})
    out = capsys.readouterr().out
    assert json.loads(out, parse_constant=pytest.fail) == {"a": None, "b": [None, 1.5], "c": ["é", None, True]}
    assert out.count("\n") == 1


@pytest.mark.parametrize("color", [False, True], ids=["plain", "color"])
@pytest.mark.parametrize("name", TABLES)
def test_tables_look_as_they_were_kept_and_fit(name, color, monkeypatch):
    monkeypatch.setattr(runs, "list_runs", lambda folder: LISTED)
    for variable, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": "" if color else "1"}.items():
        monkeypatch.setenv(variable, value)
    drawn = []
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        result = command(*TABLES[name])
        assert result.code == 0
        lines = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in result.out.splitlines()]
        assert max(map(cell_len, lines)) <= width
        assert bool(re.search(r"\x1b\[[\d;]*3\dm", result.out)) <= color, "no color where none is wanted"
        drawn.append(f"{width} columns\n" + "\n".join(line.rstrip() for line in result.out.splitlines()) + "\n")
    have, path = "\n".join(drawn), KEPT / f"{name}{'.color' if color else ''}.txt"
    if os.environ.get("GLASSFORMER_RENEW_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(have, encoding="utf-8", newline="\n")
    assert have == path.read_text(encoding="utf-8"), f"{path.name} differs: see the top of this file"


def test_no_table_is_kept_that_is_not_drawn():
    assert {path.name.split(".")[0] for path in KEPT.iterdir()} == TABLES.keys()
