"""AdamW against Muon on the task `text`: the held-out loss at equal processor time.

    python benchmarks/muon_text.py                   a table
    python benchmarks/muon_text.py --share 0.8       less time for Muon: is it still as good?
    python benchmarks/muon_text.py --seeds 1 --json  one JSON object

Both train the task's own model on its own text, in turns of a second. AdamW takes the steps of its recipe; Muon takes
as many as fit into the same time, by what a step of each takes before the first seed. The rate of Muon is that of the
study `optimizers`, which a smaller model chose. Processor time counts all cores, and evaluations alike.
"""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from glassformer.runs.session import TrainingSession
from glassformer.studies.measures import session_of

SCHEDULE: dict[str, Any] = {"batch": 12, "schedule": "cosine", "warmup": 100, "weight_decay": 0.1}
RECIPES: dict[str, dict[str, Any]] = {
    "AdamW": {"optimizer": "adamw", "lr": 3e-3, "beta2": 0.99, **SCHEDULE},
    "Muon": {"optimizer": "muon", "lr": 0.02, "beta2": 0.95, **SCHEDULE},
}
TURN, EVALUATIONS, TRIAL = 10, 16, 60


class Contender:
    """A training that stops after each turn, and the processor time of its steps."""

    def __init__(self, name: str, seed: int, steps: int) -> None:
        settings = {**RECIPES[name], "steps": steps, "eval_every": max(1, steps // EVALUATIONS)}
        self.session: TrainingSession = session_of("text", seed, **settings)
        self.steps: Iterator[Any] = self.session.steps()
        self.seconds, self.number, self.curve = 0.0, 0, list[tuple[float, float]]()

    def turn(self) -> bool:
        """Take some steps; return whether there are more."""
        for _ in range(TURN):
            began = time.process_time()
            record = next(self.steps, None)
            self.seconds += time.process_time() - began
            if record is None:
                return False
            self.number = record.step
            if record.evaluation is not None:
                self.curve.append((self.seconds, record.evaluation.loss))
        return True


def step_ratio() -> float:
    """Return how much more processor time a step of Muon takes than one of AdamW, the middle of all turns."""
    runners = [Contender(name, 0, 10 * TRIAL) for name in RECIPES]
    for one in runners:
        one.turn()  # compiles
    taken = []
    for _ in range(TRIAL // TURN):
        before = [one.seconds for one in runners]
        for one in runners:
            one.turn()
        taken.append([one.seconds - start for one, start in zip(runners, before, strict=True)])
    return float(np.median([muon / adamw for adamw, muon in taken]))


def race(seed: int, steps: dict[str, int]) -> dict[str, Any]:
    """Let both train with a seed, in turns; return their times, losses and curves."""
    runners = {name: Contender(name, seed, number) for name, number in steps.items()}
    waiting = list(runners.values())
    while waiting:
        behind = min(waiting, key=lambda one: one.seconds)
        if not behind.turn():
            waiting.remove(behind)
    goal = runners["AdamW"].curve[-1][1]
    return {
        name: {
            "steps": one.number,
            "seconds": one.seconds,
            "loss": one.curve[-1][1],
            "share_of_time": next((at for at, loss in one.curve if loss <= goal), np.inf) / runners["AdamW"].seconds,
            "curve": one.curve,
        }
        for name, one in runners.items()
    }


def main() -> None:
    """Print what both reached."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each, with the seeds 0, 1, …")
    parser.add_argument("--steps", type=int, default=2000, help="of AdamW")
    parser.add_argument("--share", type=float, default=1.0, help="of AdamW's time that Muon gets")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    ratio = step_ratio()
    steps = {"AdamW": asked.steps, "Muon": round(asked.share * asked.steps / ratio)}
    found = {}
    for seed in range(asked.seeds):
        found[seed] = race(seed, steps)
        if not asked.json:
            for name, one in found[seed].items():
                print(f"seed {seed}  {name:6} {one['steps']:5,} steps  {one['seconds']:6.1f} s  loss {one['loss']:.4f}"
                      f"  at AdamW's last loss after {one['share_of_time']:.0%} of its time", flush=True)  # fmt: skip
    if asked.json:
        print(json.dumps({"step_ratio": ratio, "steps": steps, "seeds": found}))
        return
    print(f"a step of Muon takes {ratio:.2f} times the processor time of one of AdamW")
    for name in RECIPES:
        losses = [one[name]["loss"] for one in found.values()]
        print(f"{name:6} {np.mean(losses):.4f}   from {min(losses):.4f} to {max(losses):.4f}")


if __name__ == "__main__":
    main()
