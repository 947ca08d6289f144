"""One process of a training run on several. Run by test_processes.py.

    python training_worker.py FOLDER STEPS MESH --coordinator HOST:PORT --processes N --process I [--forever]

Writes the losses to FOLDER/losses.I.json and, up to step STEPS, a checkpoint every five steps; goes on from the latest
one. With --forever it goes on after that step until it is asked to stop, and saves once more.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from glassformer.config import config_from_dict
from glassformer.core.execution import Execution, MeshShape
from glassformer.data.examples import Windows
from glassformer.engines.cluster.collective import agreed, first_before_others
from glassformer.engines.cluster.launch import find_cluster, start
from glassformer.models import build
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe

SIZES = {"width": 16, "heads": 4, "layers": 2, "vocab": 32, "context": 16, "feed_forward": 32}
FEW = {"attention_bias": False, "feed_forward_bias": False}  # of fewer arrays: each takes its time to compile


def task():
    """The model, the recipe and the data of every run."""
    model = build(config_from_dict({"architecture": "decoder", "norm": "rms", **SIZES, **FEW}))
    data = Windows(np.random.default_rng(0).integers(0, 32, size=2000), SIZES["context"])
    return model, Recipe(steps=100_000, batch=24, warmup=11, lr=1e-2, ema=0.9), data


def train(options: argparse.Namespace, workers) -> list[float]:
    from glassformer.engines.jax.sharded_checkpoint import list_sharded, load_sharded_state, save_sharded_state
    from glassformer.engines.jax.trainer import JaxTrainer

    model, recipe, data = task()
    training = JaxTrainer(model, recipe, Execution(mesh=MeshShape.parse(options.mesh), scan=True))
    first = training.first()
    if list_sharded(options.folder):
        first, _ = load_sharded_state(options.folder, first)
    losses = []
    for state, record in training_steps(training, data, first):
        losses.append(record.loss)
        if record.step % 5 == 0 and record.step <= options.steps:
            save_sharded_state(options.folder, state)
        if record.step == options.steps:
            sys.stderr.write("ready\n")
            if not options.forever:
                break
        if workers.asked_to_stop(record.step):
            save_sharded_state(options.folder, state)
            break
        if record.step >= options.steps:
            time.sleep(0.02)
    return losses


def check_agreement(number: int) -> None:
    """See that what the first process says counts, and that it comes first."""
    import jax

    jax.devices()
    words = agreed({"from": number, "text": "é" * (number + 1)})
    with first_before_others("folder") as first:
        assert first == (number == 0)
    assert words == {"from": 0, "text": "é"}, words


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("steps", type=int)
    parser.add_argument("mesh")
    parser.add_argument("--coordinator")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    parser.add_argument("--forever", action="store_true")
    options = parser.parse_args()
    cluster = find_cluster({}, coordinator=options.coordinator, processes=options.processes, process=options.process)
    os.environ["JAX_PLATFORMS"] = "cpu"
    with start(cluster) as workers:
        check_agreement(options.process)
        losses = train(options, workers)
        path = Path(options.folder) / f"losses.{options.process}.json"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
