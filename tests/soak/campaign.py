"""The campaign: kill it, damage its files, feed it nonsense, fill its disk, and see that nothing is lost.

    python tests/soak/campaign.py                     # every trial in full: about 70 minutes on two cores
    python tests/soak/campaign.py --quick             # a few cases of each: about a minute and a half
    python tests/soak/campaign.py --only kills flips  # some trials
    python tests/soak/campaign.py --hours 8           # let the soak last so long: overnight
    python tests/soak/campaign.py --seed 1000000      # other cases than those tried by default
    python tests/soak/campaign.py --repeat flips:417  # one case again, with its trace

Everything in a case follows from its seed. The last thing printed is one table: how many cases were tried, how many
survived, how many were lost. The exit code is 1 if any was lost; each of these is named with the line that repeats it.
Linux only: it limits memory and mounts full disks the way Linux does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

# Read when NumPy is first imported: trials run side by side.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import trials  # noqa: E402
from trials.crew import Crew  # noqa: E402
from trials.trial import LateError, Loss, LostError, Tally, Trial  # noqa: E402

SHOWN = 20
"""So many lost cases of a trial are named."""
SELDOM = 300.0
"""Seconds after which a file that is written to, instead of a terminal, says how far it has come."""


def run(trial: Trial, folder: Path, arguments: argparse.Namespace) -> Tally:
    """Try a trial, saying how far it has come where someone watches."""
    seeds = range(arguments.seed, arguments.seed + (trial.quick if arguments.quick else trial.full))
    until = None
    if trial.seconds is not None:
        lasts = trial.seconds[1] if arguments.quick else (3600 * arguments.hours or trial.seconds[0])
        seeds, until = itertools.count(arguments.seed), time.monotonic() + lasts

    goal = "" if trial.seconds is not None else f" of {len(seeds):,}"
    watched, said, named = sys.stderr.isatty(), time.monotonic(), 0

    def told(tally: Tally) -> None:
        nonlocal said, named
        for loss in tally.losses[named:SHOWN]:
            print("\r" * watched + _named(trial, loss), file=sys.stderr, flush=True)
        named = len(tally.losses)
        if watched or time.monotonic() > said + SELDOM:
            said = time.monotonic()
            begin, end = ("\r", " ") if watched else ("", "\n")
            text = f"{begin}{trial.name}: {tally.total:,}{goal}, {len(tally.losses)} lost"
            print(text, end=end, file=sys.stderr, flush=True)

    tally = Crew(trial, folder, arguments.processes, told).run(iter(seeds), until=until)
    lost = f"{len(tally.losses)} lost" if tally.losses else "none lost"
    if tally.again:
        lost += f", {len(tally.again)} late beside others and tried again alone"
    took = f"{duration(tally.seconds)}, of one core {duration(tally.processor)}"
    print(f"\r{trial.name}: {tally.total:,} tried, {lost}, {took}", file=sys.stderr)
    return tally


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def table(tallies: list[Tally]) -> str:
    """Return what came of all trials, as Markdown that can be read as it is."""
    rows = [["trial", "what", "tried", "survived", "lost", "time"]]
    for tally in tallies:
        numbers = [f"{number:,}" for number in (tally.total, tally.survived, len(tally.losses))]
        rows.append([tally.trial.name, tally.trial.title, *numbers, duration(tally.seconds)])
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    lines = []
    for row in rows:
        cells = [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        lines.append(f"| {' | '.join(cells)} |")
    rule = [f"{'-' * (w + 1)}{':' if i > 1 else '-'}" for i, w in enumerate(widths)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


def _named(trial: Trial, loss: Loss) -> str:
    return f"lost: {trial.name}:{loss.seed} ({loss.kind}): {loss.reason}"


def lost_cases(tallies: list[Tally]) -> str:
    """Name the lost cases, and how each is tried again."""
    lines = []
    for tally in tallies:
        for loss in tally.losses[:SHOWN]:
            lines.append(_named(tally.trial, loss))
        if len(tally.losses) > SHOWN:
            lines.append(f"lost: {len(tally.losses) - SHOWN:,} more of {tally.trial.name}; --json names all")
    if lines:
        first = next(tally for tally in tallies if tally.losses)
        again = f"{first.trial.name}:{first.losses[0].seed}"
        lines.append(f"\nhint: python tests/soak/campaign.py --repeat {again} tries the first one again")
    return "\n".join(lines)


def as_json(tallies: list[Tally]) -> str:
    """Return everything there is to know, for programs."""
    content = {
        tally.trial.name: {
            "tried": tally.total,
            "survived": tally.survived,
            "lost": [loss._asdict() for loss in tally.losses],
            "again": [loss._asdict() for loss in tally.again],
            "kinds": tally.tried,
            "seconds": round(tally.seconds, 1),
            "core_seconds": round(tally.processor, 1),
        }
        for tally in tallies
    }
    return json.dumps({"command": sys.argv[1:], "python": platform.python_version(), "trials": content}, indent=2)


def repeat(case: str) -> int:
    """Try one case again, in this process, and keep its folder."""
    from trials.worker import attempted, prepared

    name, _, seed = case.partition(":")
    if name not in trials.NAMES or not seed.isdigit():
        raise SystemExit(f"error: {case!r} is no case\n\nhint: use TRIAL:SEED, such as flips:417")
    trial = trials.load(name)
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    prepared(trial, folder)
    own = folder / f"case-{seed}"
    own.mkdir()
    print(f"{case}, {trial.kind(int(seed))}, in {own}", file=sys.stderr)
    try:
        attempted(trial, folder / "shared", own, int(seed))
    except (LostError, LateError) as error:
        print(f"lost: {error}")
        return 1
    print("survived")
    return 0


def options() -> argparse.ArgumentParser:
    """Return what may be asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few cases of each trial")
    parser.add_argument("--hours", type=float, default=0.0, help="how long the soak lasts (default: thirty minutes)")
    parser.add_argument("--only", nargs="+", choices=trials.NAMES, default=trials.NAMES, help="these trials alone")
    parser.add_argument("--seed", type=int, default=0, help="the first case of each trial")
    parser.add_argument("--processes", type=int, default=2, help="that try cases side by side")
    parser.add_argument("--folder", type=Path, help="where to try (default: a temporary folder, removed at the end)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there as well")
    parser.add_argument("--repeat", metavar="TRIAL:SEED", help="try one case again")
    parser.add_argument("--work", nargs=2, metavar=("TRIAL", "FOLDER"), help=argparse.SUPPRESS)
    return parser


def main() -> int:
    arguments = options().parse_args()
    if not sys.platform.startswith("linux"):
        raise SystemExit("error: the campaign needs Linux")
    if arguments.work:
        from trials.worker import work

        work(arguments.work[0], Path(arguments.work[1]))
        return 0
    if arguments.repeat:
        return repeat(arguments.repeat)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="campaign-"))
    try:
        tallies = [run(trials.load(name), folder / name, arguments) for name in trials.NAMES if name in arguments.only]
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(table(tallies))
    print(lost_cases(tallies), end="")
    if arguments.json:
        arguments.json.write_text(as_json(tallies) + "\n", encoding="utf-8")
    return 1 if any(tally.losses for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
