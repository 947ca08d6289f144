"""The command line of a benchmark: its options, and its reports as tables or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence

from peers.machine import machine
from peers.report import BYTES, SECONDS, TOKENS, Report
from peers.timing import Spread


def main(
    description: str | None,
    measure: Callable[[argparse.Namespace], Iterator[Report]],
    *,
    parts: Sequence[str] = (),
    add: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> None:
    """Read the options, run `measure` and print its reports; exit with 1 if contenders computed different results."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if parts:
        parser.add_argument("--only", nargs="+", default=[], choices=parts, metavar="PART", help=", ".join(parts))
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="measure this library alone")
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long to measure each table (default 20)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add(parser)
    given = parser.parse_args()
    if not given.seconds > 0:
        parser.error("--seconds must be positive")
    facts, reports = machine(), []
    if not given.json:
        versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
        print(f"{facts['cpu']}, {facts['cores']} cores; {facts['blas']}; Python {facts['python']}, {versions}\n")
    for report in measure(given):
        reports.append(report)
        if not given.json:
            print(as_text(report), flush=True)
    ok = all(report.ok for report in reports)
    if given.json:
        print(json.dumps({"machine": facts, "ok": ok, "reports": [report.to_dict() for report in reports]}))
    sys.exit(0 if ok else 1)


def talk(text: str) -> None:
    """Report progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def as_text(report: Report) -> str:
    """Return a report as a table: ratios first, then the figures, the bars and the notes."""
    text = _UNITS[report.unit]
    lines = [report.title, *([f"ratio: {report.ratio}"] if report.ratio else [])]
    width = max((len(figure.name) for figure in report.figures), default=0)
    for figure in report.figures:
        ratio = f"{_spread(figure.ratio, '{:.2f}'.format):>22}" if report.ratio else ""
        lines.append(f"  {figure.name:{width}}{ratio}{_spread(figure.value, text):>36}")
    for bar in report.bars:
        sign, verdict = "≤" if bar.at_most else "≥", "reached" if bar.ok else "missed"
        lines.append(f"{bar.what}: {bar.value:.2f}, bar {sign} {bar.bar:g}: {verdict}")
    for check in report.checks:
        lines.append(f"{check.what}: {check.error:.1e}, limit {check.limit:g}: {'same' if check.ok else 'DIFFERENT'}")
    return "\n".join([*lines, *(f"note: {note}" for note in report.notes), ""])


def _spread(spread: Spread | None, text: Callable[[float], str]) -> str:
    """Return the median, and the quartiles if there is more than one value."""
    if spread is None:
        return ""
    return text(spread.median) + (f" ({text(spread.low)} – {text(spread.high)})" if spread.count > 1 else "")


def seconds_text(seconds: float) -> str:
    """Write a time with three digits: 1.23 s, 45.6 ms, 789 µs."""
    unit, size = next(((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= size), ("µs", 1e-6))
    value = seconds / size
    return f"{value:.{max(0, 2 - (value >= 10) - (value >= 100))}f} {unit}"


_UNITS = {SECONDS: seconds_text, TOKENS: "{:.1f}/s".format, BYTES: lambda value: f"{value / 1e6:.1f} MB"}
