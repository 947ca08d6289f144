"""The reference results: what each task reaches with one command, against the published or set target.

    python benchmarks/reference_results.py                 everything (about half an hour on two cores)
    python benchmarks/reference_results.py sort addition   some of it
    python benchmarks/reference_results.py --json          one JSON object per row

`names` needs makemore's names.txt in the folder GLASSFORMER_DATA.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _data import find, tinyshakespeare
from glassformer.core.tree import count
from glassformer.generation.answer import ask
from glassformer.runs.session import TrainingSession
from glassformer.runs.start import new_session


def run(
    task: str, *, seed: int = 0, data: Path | None = None, **settings: Any
) -> tuple[TrainingSession, dict[str, Any]]:
    """Train a task from start to end; return the session and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        path = None if data is None else str(data)
        session = new_session(task, Path(folder) / "run", data=path, settings=settings, seed=seed)
        first = last = None
        for last in session.steps():
            first = first or last
        seconds = time.perf_counter() - began
        result = session.test(session.run.load_params())
    assert first is not None
    assert last is not None
    figures = {
        "parameters": count(session.state.params),
        "steps": session.state.step,
        "first_loss": first.loss,
        "last_loss": last.loss,
        "loss": result.loss,
        "right": result.accuracy,
        "seconds": round(seconds, 1),
    }
    if result.groups:
        figures |= {"groups": len(result.groups), "worst_group": min(result.groups.values())}
    return session, figures


def majority() -> Iterator[dict[str, Any]]:
    """One block against two, mean against CLS, five seeds each."""
    for layers in (1, 2):
        for pooling in ("mean", "cls"):
            rows = [run("majority", seed=seed, layers=layers, pooling=pooling)[1] for seed in range(5)]
            right = [row["right"] for row in rows]
            yield {
                "what": f"majority, {layers} block{'s' * (layers > 1)}, {pooling}",
                "parameters": rows[0]["parameters"],
                "reached": f"{min(right):.2%} to {max(right):.2%}, {sum(r == 1 for r in right)} of 5 seeds at 100 %",
                "target": "> 90 % (set)",
                "seconds": max(row["seconds"] for row in rows),
                "ok": sum(r == 1 for r in right) >= 4 and min(right) >= 0.99,
            }


def counting() -> Iterator[dict[str, Any]]:
    """The reference settings, then Adam."""
    for name, settings in (("SGD 0.05, 300 epochs", {}), ("Adam, 60 epochs", _ADAM)):
        session, row = run("counting", **settings)
        said = "1 " + ask(session.trained, "1")
        yield {
            "what": f"counting, {name}",
            "parameters": row["parameters"],
            "reached": f"loss {row['first_loss']:.2f} to {row['last_loss']:.4f}, says {said}",
            "target": "about 3 to < 0.05, 1 2 3 4 5 6",
            "seconds": row["seconds"],
            "ok": row["last_loss"] < 0.05 and said == "1 2 3 4 5 6",
        }


_ADAM = {"optimizer": "adam", "lr": 0.01, "steps": 60, "eval_every": 60}


def sequence(task: str, target: float, **settings: Any) -> Iterator[dict[str, Any]]:
    """A task that is judged by whole answers."""
    _, row = run(task, **settings)
    languages = f", {row['groups']} languages, the worst {row['worst_group']:.1%}" if "groups" in row else ""
    yield {
        "what": task,
        "parameters": row["parameters"],
        "reached": f"{row['right']:.3%} of held-out answers{languages}",
        "target": f">= {target:.1%}",
        "seconds": row["seconds"],
        "ok": row["right"] >= target,
    }


def language_model(what: str, task: str, data: Path | None, target: float) -> Iterator[dict[str, Any]]:
    """A task that is judged by the loss over all of its held-out data."""
    if data is None:
        yield {"what": what, "reached": "not run: its data is not here", "target": f"<= {target}", "ok": None}
        return
    _, row = run(task, data=data)
    yield {
        "what": what,
        "parameters": row["parameters"],
        "reached": f"loss {row['loss']:.4f} after {row['steps']:,} steps",
        "target": f"<= {target}",
        "seconds": row["seconds"],
        "ok": row["loss"] <= target,
    }


ROWS = {
    "majority": majority,
    "counting": counting,
    "sort": lambda: sequence("sort", 1.0),
    "addition": lambda: sequence("addition", 0.999),
    "dates": lambda: sequence("dates", 0.99),
    "text": lambda: language_model("tinyshakespeare, characters", "text", tinyshakespeare(), 1.85),
    "names": lambda: language_model("makemore's names", "lines", find("names.txt"), 1.92),
}


def main() -> None:
    """Print the rows that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    for name in given.rows or ROWS:
        for row in ROWS[name]():
            verdict = {True: "reached", False: "MISSED", None: ""}[row["ok"]]
            line = f"{row['what']}: {row['reached']}  (target {row['target']}; {row.get('seconds', 0)} s)  {verdict}"
            print(json.dumps(row) if given.json else line, flush=True)


if __name__ == "__main__":
    main()
