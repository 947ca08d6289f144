"""Random changes while models write: does each do what it does in a run on the whole text?

    python benchmarks/changes.py                    # 1,000 cases on numpy, cpu and jax: about three minutes
    python benchmarks/changes.py --quick            # 300 cases: a minute, or two where nothing is compiled yet
    python benchmarks/changes.py --seed 1           # other models, other changes
    python benchmarks/changes.py --repeat 417       # one case again, step by step

A case is a change or two, of any kind, of any value or parameter, at any of its entries, while a small random model of
one of the families writes: greedily, by drawing, in a batch of uneven texts, by beams, as a stream. The judge runs the
whole text so far for each token, without a cache (`_change_judge.py`). What came of a case:

    same             all probabilities, or tokens, are those of the judge, and others than without the changes
    without effect   the same, but the changes move nothing in the judge's runs either
    clear error      refused while writing as in a run, or placed where no token comes
    refused          refused while writing, though a run makes the change
    different        other numbers than the judge's
    not fired        the numbers without the change, or no token came to its position, and nothing was said
    accepted         written, though a run refuses the change
    crashed          an error that is no GlassformerError

The exit code is 1 if a case is one of the last four, or if more than 5 % of those that a run takes are refused.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import importlib.util
import os
import re
import sys
import time
from typing import NamedTuple

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

COUNT, QUICK = 1000, 300
ENGINES = {"numpy": 48, "cpu": 49, "jax": 3}
"""How often each engine writes, of 100 times; jax compiles for seconds."""
GOOD, FAULTS = ("same", "without effect", "clear error", "refused"), ("different", "not fired", "accepted", "crashed")
MOST_REFUSED = 0.05


class Outcome(NamedTuple):
    """What came of a case, and what it was about."""

    number: int
    title: str
    engine: str
    mode: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    verdict: str
    why: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} cases")
    parser.add_argument("--count", type=int, help=f"cases ({COUNT:,})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", nargs="+", choices=[*ENGINES], help="engines that write (all that are installed)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, help="one case again, by its number")
    arguments = parser.parse_args()
    engines = arguments.engines or [name for name in ENGINES if name != "jax" or importlib.util.find_spec("jax")]
    if arguments.repeat is not None:
        return repeat(arguments.repeat, arguments.seed, engines)
    count = arguments.count or (QUICK if arguments.quick else COUNT)
    begun = time.monotonic()
    outcomes = tried(count, arguments.seed, engines, arguments.processes)
    return report(outcomes, time.monotonic() - begun)


def tried(count: int, seed: int, engines: list[str], processes: int) -> list[Outcome]:
    """Try all cases, those of one model after the other, and name the faults as they come."""
    from _change_cases import about

    _quiet()
    outcomes: list[Outcome] = []
    seeded = "" if not seed else f"--seed {seed} "
    models = collections.defaultdict(list)
    for number in range(count):
        models[about(number, seed)[0]].append(number)
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        tasks = [pool.submit(_of_model, numbers, seed, engines) for numbers in models.values()]
        for task in concurrent.futures.as_completed(tasks):
            outcomes += task.result()
            for one in task.result():
                if one.verdict in FAULTS:
                    print(
                        f"{one.verdict} (changes.py {seeded}--repeat {one.number}): {one.title}: {one.why}", flush=True
                    )
            if sys.stderr.isatty():
                print(f"\r{len(outcomes):,} of {count:,} ", end="", file=sys.stderr, flush=True)
    return sorted(outcomes)


def _of_model(numbers: list[int], seed: int, engines: list[str]) -> list[Outcome]:
    """Try the cases of one model."""
    return [_outcome(number, seed, engines) for number in numbers]


def _outcome(number: int, seed: int, engines: list[str], *, is_explained: bool = False) -> Outcome:
    from _change_cases import case
    from _change_judge import explained, verdict

    own = case(number, {name: ENGINES[name] for name in engines}, seed)
    if is_explained:
        print("\n".join(explained(own)))
    found, why = verdict(own)
    names, kinds = (tuple(getattr(asked, part) for asked in own.changes) for part in ("name", "kind"))
    return Outcome(number, str(own), own.engine, own.mode, names, kinds, found, why)


def _quiet() -> None:
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.getLogger("glassformer").setLevel(logging.CRITICAL)


def repeat(number: int, seed: int, engines: list[str]) -> int:
    """Try one case, and print what was written and what should be."""
    _quiet()
    found = _outcome(number, seed, engines, is_explained=True)
    print(f"{found.verdict}: {found.why}".rstrip(": "))
    return 1 if found.verdict in FAULTS else 0


# --- the report ------------------------------------------------------------------------------------------------------


def report(outcomes: list[Outcome], seconds: float) -> int:
    """Print what came of all cases; return the exit code."""
    words = (*GOOD, *FAULTS)
    print("| | " + " | ".join(words) + " |\n|---" + "|---:" * len(words) + "|")
    for part in ("engine", "mode"):
        for name in sorted({getattr(one, part) for one in outcomes}):
            _row(name, [one for one in outcomes if getattr(one, part) == name])
    _row("all", outcomes)
    counts = collections.Counter(one.verdict for one in outcomes)
    changes = sum(len(one.names) for one in outcomes)
    taken = len(outcomes) - counts["clear error"]
    share = counts["refused"] / max(taken, 1)
    print(f"\n{len(outcomes):,} cases with {changes:,} changes in {seconds:.0f} s")
    print(f"refused: {counts['refused']:,} of {taken:,} that a run takes ({100 * share:.1f} %)")
    refused = [one for one in outcomes if one.verdict == "refused"]
    for why, number in collections.Counter(one.why for one in refused).most_common():
        first = next(one for one in refused if one.why == why)
        print(f"  {number:5,}  {why}, such as --repeat {first.number}: {first.title}")
    kinds = collections.Counter(kind for one in outcomes for kind in one.kinds)
    print("kinds: " + ", ".join(f"{kind} {number:,}" for kind, number in kinds.most_common()))
    print(f"values: {len({_pattern(name) for one in outcomes for name in one.names}):,} names, whatever the block")
    faults = sum(counts[word] for word in FAULTS)
    print(f"different {counts['different']:,}, not fired {counts['not fired']:,}, accepted {counts['accepted']:,}, "
          f"crashed {counts['crashed']:,}")  # fmt: skip
    return 1 if faults or not counts["same"] or share > MOST_REFUSED else 0


def _row(name: str, outcomes: list[Outcome]) -> None:
    counts = collections.Counter(one.verdict for one in outcomes)
    print(f"| {name} | " + " | ".join(f"{counts[word]:,}" for word in (*GOOD, *FAULTS)) + " |")


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "*", name)


if __name__ == "__main__":
    raise SystemExit(main())
