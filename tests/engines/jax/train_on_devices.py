"""Train small models on meshes of eight devices; print their losses and where their arrays lie, as JSON."""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from glassformer.config import config_from_dict
from glassformer.core.execution import Execution, MeshShape
from glassformer.core.tree import flatten
from glassformer.data.examples import Examples, Windows
from glassformer.engines.jax.sharded_checkpoint import load_sharded_state, save_sharded_state
from glassformer.engines.jax.trainer import JaxTrainer
from glassformer.models import Batch, build
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import start

STEPS, HALFWAY = 10, 6
SIZES = {"vocab": 16, "width": 16, "heads": 4, "layers": 2, "context": 8, "feed_forward": 16}
RNG = np.random.default_rng(0)
TEXT = Windows(RNG.integers(0, 16, 400), 6)
MASK = np.arange(6) < RNG.integers(1, 7, 24)[:, None]
PAIRS = Examples(
    Batch(
        RNG.integers(0, 16, (24, 6)),
        np.where(MASK, RNG.integers(0, 16, (24, 6)), -100),
        mask=MASK,
        source=RNG.integers(0, 16, (24, 5)),
        source_mask=np.arange(5) < RNG.integers(1, 6, 24)[:, None],
    )
)
DECODER = {"architecture": "decoder", **SIZES}
FEW = {"attention_bias": False, "feed_forward_bias": False}  # of fewer arrays: each takes its time to compile
TRANSLATOR = {"architecture": "encoder-decoder", "positions": "relative", "norm": "rms", **SIZES, **FEW, "layers": 1}
PLAIN = {"steps": STEPS, "batch": 16, "warmup": 5, "lr": 0.01}
RUNS = {
    "data=8": ({**DECODER, "layers": 1, "norm": "rms"}, PLAIN, Execution(mesh=MeshShape(data=8)), TEXT),
    "fsdp=8": ({**DECODER, **FEW}, PLAIN, Execution(mesh=MeshShape(fsdp=8), scan=True, remat=True), TEXT),
    "all, muon": (
        {**DECODER, **FEW, "dropout": 0.1},
        {**PLAIN, "optimizer": "muon", "accumulate": 2, "ema": 0.9},
        Execution(mesh=MeshShape(data=2, fsdp=2, tensor=2), scan=True),
        TEXT,
    ),
    "fsdp=2,tensor=4, pairs": (TRANSLATOR, PLAIN, Execution(mesh=MeshShape(fsdp=2, tensor=4), scan=True), PAIRS),
}
MEASURED = ("fsdp=8", "fsdp=2,tensor=4, pairs")
OTHER = MeshShape(data=2, fsdp=4)


def facts(tree):
    """Shape, shape of a shard and number of different shards of every array."""
    return {
        name: {
            "shape": list(x.shape),
            "shard": list(x.addressable_shards[0].data.shape),
            "shards": len({str(shard.index) for shard in x.addressable_shards}),
        }
        for name, x in flatten(tree).items()
    }


def found(config, recipe, execution, data, *, measured, folder=None):
    """Return what came of a run; halfway it leaves a checkpoint in the folder."""
    training = JaxTrainer(build(config_from_dict(config)), Recipe(**recipe), execution)
    losses = []
    for state, record in training_steps(training, data, training.put(start(training.model, training.recipe))):
        assert not record.refused
        losses.append(record.loss)
        if record.step == HALFWAY and folder is not None:
            save_sharded_state(folder, state)
    evaluation = training.evaluate(state.params, data, metric="answer") if measured else None
    placed = {name: facts(getattr(state, name)) for name in ("params", "optimizer", "ema") if getattr(state, name)}
    back = training.take(state)
    sums = {name: float(np.abs(x).sum()) for name, x in flatten(back.params).items() if not name.endswith("key.b")}
    figures = None if evaluation is None else [evaluation.loss, evaluation.accuracy]
    return {"losses": losses, "evaluation": figures, "placed": placed, "sums": sums}


def continued(folder, config, recipe, execution, data):
    """Return the losses after a checkpoint that was written on another mesh."""
    model, recipe = build(config_from_dict(config)), Recipe(**recipe)
    training = JaxTrainer(model, recipe, execution)
    state, _ = load_sharded_state(folder, training.put(start(model, recipe)))
    where = facts(state.params)
    return {"losses": [record.loss for _, record in training_steps(training, data, state)], "placed": where}


if __name__ == "__main__":
    answers = {"devices": jax.device_count()}
    folder = Path(sys.argv[1])
    for name, run in RUNS.items():
        answers[name] = found(*run, measured=name in MEASURED, folder=folder if name == "fsdp=8" else None)
    config, recipe, execution, data = RUNS["fsdp=8"]
    answers["continued"] = continued(folder, config, recipe, execution.replace(mesh=OTHER), data)
    sys.stdout.write(json.dumps(answers) + "\n")
