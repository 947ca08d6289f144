"""How much memory fine-tuning takes: two steps of models in the shapes of GPT-2 and SmolLM2, whole and by adapters.

    python benchmarks/finetune_memory.py            a table: what is counted beforehand, and the measured peak
    python benchmarks/finetune_memory.py --json     one JSON object per row

Weights are random, which changes nothing about memory. Each row is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from glassformer.core.dispatch import current
from glassformer.core.tree import count
from glassformer.data import Windows
from glassformer.models import build
from glassformer.models.costs import costs
from glassformer.training import EVERYTHING, Adapted, LoRA
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import start

SHAPES = {"GPT-2 (124M)": "gpt2", "SmolLM2 (135M)": "smollm2-135m"}
BATCH, LENGTH, STEPS = 2, 128, 2
LIMIT = 24 * 2**30


def measure(shape: str, way: str) -> dict[str, Any]:
    """Train for two steps and return what it took."""
    model = build(SHAPES[shape])
    params = model.init(0)
    lora = LoRA()
    parametrization = EVERYTHING if way == "whole" else Adapted(params, lora)
    trained = params if way == "whole" else lora.init(params)
    recipe = Recipe(steps=STEPS, batch=BATCH, lr=5e-5)
    data = Windows(np.random.default_rng(0).integers(0, model.config.vocab, 4096), LENGTH)
    number = count(trained)
    trainer = current().executor.trainer(model, recipe, parametrization)
    steps = training_steps(trainer, data, start(model, recipe, trained))
    del params, trained  # what is trained goes on in the steps alone
    began = time.perf_counter()
    for _ in steps:
        pass
    counted = costs(model.config, batch=BATCH, length=LENGTH)
    # Kilobytes on Linux, bytes on a Mac.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "shape": shape,
        "way": way,
        "parameters": counted.parameters,
        "trained": number,
        "counted_bytes": counted.training - (counted.optimizer - 8 * number),
        "peak_bytes": peak,
        "share_of_24_gib": round(peak / LIMIT, 3),
        "seconds_per_step": round((time.perf_counter() - began) / STEPS, 2),
    }


def main() -> None:
    """Measure every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    parser.add_argument("--one", nargs=2, metavar=("SHAPE", "WAY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one)))
        return
    if not args.json:
        print(f"batch {BATCH}, {LENGTH} tokens, AdamW, float32")
        print(f"{'model':16} {'trained':20} {'counted':>10} {'peak':>10} {'of 24 GiB':>10} {'a step':>8}")
    for shape in SHAPES:
        for way in ("whole", "LoRA"):
            line = subprocess.run(
                [sys.executable, __file__, "--one", shape, way], capture_output=True, text=True, check=True
            ).stdout
            print(line.strip() if args.json else _row(json.loads(line)), flush=True)


def _row(row: dict[str, Any]) -> str:
    trained = f"{row['way']}: {row['trained']:,}"
    counted, peak = (f"{row[name] / 2**30:.2f} GiB" for name in ("counted_bytes", "peak_bytes"))
    share, seconds = f"{row['share_of_24_gib']:.0%}", f"{row['seconds_per_step']:.1f} s"
    return f"{row['shape']:16} {trained:20} {counted:>10} {peak:>10} {share:>10} {seconds:>8}"


if __name__ == "__main__":
    main()
