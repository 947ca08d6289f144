"""What --record costs: a training with it and one without, in turns, and what lies in the folder afterwards.

    python benchmarks/recording.py                  # 2,000 steps of each, a model of 0.8 million parameters
    python benchmarks/recording.py --steps 500      # shorter: as many states are kept, so they weigh more

Both train the same model on the same batches, and write the same checkpoints and metrics. They take turns of as many
steps as lie between two states, so that each turn of the recorded one keeps a state, but for the last. The share is by
how much the recorded turns took longer, all together; beside it the middle turn, which one slow moment does not move.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from glassformer.core.tree import count
from glassformer.runs.session import FOLDER, Recording
from glassformer.runs.start import new_session

SETTINGS = {"width": 128, "layers": 4, "heads": 4, "context": 64, "batch": 12}
KEEPING = []
"""Seconds that each state took to keep."""


class Timed(Recording):
    """A recording that notes how long each state took to keep."""

    def keep(self, *arguments):
        """Write a state."""
        began = time.perf_counter()
        super().keep(*arguments)
        KEEPING.append(time.perf_counter() - began)


def session(folder, steps, *, recorded):
    """Return a session of the task text, in a folder of its own."""
    settings = {**SETTINGS, "steps": steps, "eval_every": steps}
    begun = new_session("text", folder, settings=settings, recorded=recorded)
    if recorded:
        begun.recording = Timed(begun.run, begun.recording.every)
    return begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place) / name for name in ("plain", "recorded")}
        sessions = {name: session(folder, steps, recorded=name == "recorded") for name, folder in folders.items()}
        every = sessions["recorded"].recording.every
        print(f"{count(sessions['plain'].state.params):,} parameters, {steps:,} steps, a state every {every:,}")
        taken = {name: one.steps() for name, one in sessions.items()}
        seconds = {name: [] for name in sessions}
        for turn in range(-(-steps // every)):
            # Whoever is second finds the machine as the first has left it: they change places.
            for name in sorted(sessions, reverse=turn % 2 == 1):
                began = time.perf_counter()
                for _ in itertools.islice(taken[name], every):
                    pass
                seconds[name].append(time.perf_counter() - began)
            print(
                f"turn {turn + 1}: " + ", ".join(f"{name} {own[-1]:.2f} s" for name, own in seconds.items()), flush=True
            )
        plain, recorded = seconds["plain"], seconds["recorded"]
        middle = statistics.median(slow / fast for slow, fast in zip(recorded, plain, strict=True))
        kept = sorted((folders["recorded"] / FOLDER).iterdir())
        size = sum(path.stat().st_size for path in kept)
        share = sum(recorded) / sum(plain) - 1
        print(f"recording takes {100 * share:+.1f} % of the time ({100 * (middle - 1):+.1f} % in the middle turn)")
        print(f"and {size / 1e6:.1f} MB in {len(kept)} states, which took {sum(KEEPING):.2f} s to keep:")
        print(f"{100 * sum(KEEPING) / sum(plain):.2f} % of the time of the other")


if __name__ == "__main__":
    main()
