"""How much sooner than PyTorch a model of tinyshakespeare's characters is as good.

    python benchmarks/shakespeare_race.py            a table
    python benchmarks/shakespeare_race.py --json     one JSON object

First PyTorch trains nanoGPT's model for the CPU: the settings of its config/train_shakespeare_char.py with the options
that its README gives for a machine without a GPU, its own initialization, schedule and evaluations. Its loss at the
end, over every window of the validation part, is the goal. Then this library trains a model that is no larger, with its
own recipe, by the very session that `glassformer train text` runs, its evaluation over that whole part included.

Both clocks start when the libraries are loaded and what they compile is compiled. Neither side's time holds the reading
of PyTorch's final loss. The recipe was chosen among ten by the loss on the same validation part, with the
seeds 1 and 2.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from _data import tinyshakespeare
from glassformer.core.tree import count
from glassformer.data import build_task
from glassformer.data.examples import count_targets
from glassformer.models import preset
from glassformer.ops import IGNORE
from glassformer.runs.start import new_session
from peers.machine import machine
from peers.process import started
from peers.timing import race
from peers.twin import torch_optimizer, torch_twin
from train_step import COMPILED, EAGER, SETTINGS, contenders

ITERATIONS, BATCH, LENGTH = 2000, 12, 64
PEAK, LAST, WARM_UP, CLIP = 1e-3, 1e-4, 100, 1.0
EVAL_EVERY, EVAL_BATCHES = 250, 20
RECIPE: dict[str, Any] = {
    "steps": 560,
    "lr": 3e-3,
    "warmup": 30,
    "schedule": "linear",
    "eval_every": 560,
    "norm": "rms",
    "gated": True,
    "activation": "silu",
    "feed_forward": 340,
}
"""Beside the task's own settings: 4 layers, 4 heads, width 128, rotary positions, batches of 12, AdamW."""
BAR = 2.5


def train_torch(iterations: int, compiled: bool) -> dict[str, Any]:
    """Train nanoGPT's model as nanoGPT does."""
    import torch

    torch.manual_seed(1337)
    task = build_task("text", data=str(tinyshakespeare()))
    texts = {"train": np.asarray(task.train.tokens), "validation": np.asarray(task.held_out.tokens)}

    def batch(part: str) -> tuple[Any, Any]:
        starts = torch.randint(len(texts[part]) - LENGTH, (BATCH,)).tolist()
        tokens, targets = (
            torch.stack([torch.from_numpy(texts[part][i + shift : i + shift + LENGTH]) for i in starts])
            for shift in (0, 1)
        )
        return tokens, targets

    twin = torch_twin(preset("shakespeare"))
    _initialize(twin)
    model = torch.compile(twin) if compiled else twin
    if compiled:
        model(*batch("train")).backward()
    began = time.perf_counter()
    optimizer = torch_optimizer(twin, lr=PEAK, beta2=0.99, weight_decay=0.1)
    for step in range(iterations + 1):
        if step % EVAL_EVERY == 0 or step == iterations:
            losses = _estimate(model, batch)
            _say(f"PyTorch: iteration {step:,}, loss {losses['train']:.4f}, validation {losses['validation']:.4f}")
        if step == iterations:
            break
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, iterations)
        loss = model(*batch("train"))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - began
    return {
        "what": f"PyTorch, {'torch.compile' if compiled else 'eager'}",
        "seconds": seconds,
        "steps": iterations,
        "loss": _full_loss(twin, task.held_out),
        "parameters": sum(p.numel() for p in twin.parameters()),
    }


def _initialize(twin: Any) -> None:
    """Draw weights as nanoGPT does: those that end in the residual stream start smaller."""
    import torch

    layers = len(twin.blocks)
    for name, p in twin.named_parameters():
        if p.ndim >= 2:
            ends = name.endswith(("output.weight", "down.weight"))
            torch.nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if ends else 0.02)


def _estimate(model: Any, batch: Any) -> dict[str, float]:
    """Return the mean loss of some random batches of either part."""
    import torch

    with torch.no_grad():
        return {
            part: sum(model(*batch(part)).item() for _ in range(EVAL_BATCHES)) / EVAL_BATCHES
            for part in ("train", "validation")
        }


def _rate(step: int, iterations: int) -> float:
    """Return nanoGPT's learning rate: a warm-up, then half a cosine."""
    if step < WARM_UP:
        return PEAK * (step + 1) / (WARM_UP + 1)
    progress = (step - WARM_UP) / max(1, iterations - WARM_UP)
    return LAST + 0.5 * (1 + math.cos(math.pi * progress)) * (PEAK - LAST)


def _full_loss(twin: Any, windows: Any) -> float:
    """Return the mean loss over all windows, side by side."""
    import torch

    total, targets = 0.0, 0
    with torch.no_grad():
        for rows in windows.batches(64):
            logits = twin.logits(torch.tensor(rows.tokens))
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), torch.tensor(rows.targets).flatten(), ignore_index=IGNORE, reduction="sum"
            )
            total += loss.item()
            targets += count_targets(rows)
    return total / targets


def train_ours(seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train with our own recipe, as `glassformer train text` does."""
    path = str(tinyshakespeare())
    with tempfile.TemporaryDirectory() as folder:
        first = {**settings, "steps": 2, "eval_every": 2}
        for _ in new_session("text", Path(folder) / "first", data=path, settings=first).steps():
            pass  # loads what is compiled
        began = time.perf_counter()
        session = new_session("text", Path(folder) / "run", data=path, settings=settings, seed=seed)
        for record in session.steps():
            if record.evaluation is not None:
                _say(f"glassformer: step {record.step:,}, validation {record.evaluation.loss:.4f}")
        seconds = time.perf_counter() - began
    assert record.evaluation is not None
    return {
        "what": "glassformer",
        "seconds": seconds,
        "steps": session.state.step,
        "loss": record.evaluation.loss,
        "parameters": count(session.state.params),
    }


def better_torch() -> bool:
    """Tell whether torch.compile is faster than eager PyTorch here, by the same step without evaluations."""
    processes = [p for p in contenders(SETTINGS["small"], peers=True, notes=[]) if p.name in (EAGER, COMPILED)]
    try:
        ready = started(processes, [], _say)
        return race(ready, seconds=6).fastest([EAGER, COMPILED]) == COMPILED
    finally:
        for process in processes:
            process.close()


def main() -> None:
    """Run both and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of PyTorch; fewer to try this script out")
    parser.add_argument("--ours", type=json.loads, default=RECIPE, metavar="JSON", help="settings of our recipe")
    parser.add_argument("--seed", type=int, default=0, help="of our run")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        who, *given = args.one
        print(json.dumps({"torch": train_torch, "ours": train_ours}[who](*given)))
        return
    facts = machine()
    theirs = _alone("torch", args.iterations, better_torch())
    ours = _alone("ours", args.seed, args.ours)
    sooner = theirs["seconds"] / ours["seconds"]
    ok = ours["loss"] <= theirs["loss"] and ours["parameters"] <= theirs["parameters"] and sooner >= BAR
    if args.json:
        print(json.dumps({"machine": facts, "rows": [theirs, ours], "times_sooner": sooner, "bar": BAR, "ok": ok}))
        return
    for row in (ours, theirs):
        print(
            f"{row['what']:24} {row['seconds']:7.1f} s  {row['steps']:5,} steps  loss {row['loss']:.4f} over all "
            f"validation windows  {row['parameters']:,} parameters"
        )
    print(f"{sooner:.2f} × sooner, bar ≥ {BAR}: {'reached' if ok else 'MISSED'}")


def _alone(*job: Any) -> dict[str, Any]:
    """Run one side in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps(job)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
