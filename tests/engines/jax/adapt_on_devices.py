"""Train adapters on a mesh of four devices; print the losses and into how many parts the arrays are cut, as JSON."""

import json
import sys
from pathlib import Path

import numpy as np

from glassformer.config import config_from_dict
from glassformer.core.tree import flatten, tree_map
from glassformer.data.examples import Windows
from glassformer.models import build
from glassformer.training import Adapted, LoRA
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import start

DECODER = {
    "architecture": "decoder", "vocab": 8, "width": 8, "heads": 2, "layers": 2, "context": 8, "feed_forward": 12,
    "norm": "rms", "attention_bias": False, "feed_forward_bias": False,
}  # fmt: skip
EVERYWHERE = LoRA(rank=2, targets=("*.w", "*.table"))
RECIPE = {"steps": 6, "batch": 8, "warmup": 2, "lr": 0.01}
TEXT = Windows(np.random.default_rng(0).integers(0, 8, 300), 6)


def scattered(lora, params):
    """Adapters that change something already."""
    rng = np.random.default_rng(5)
    kind = params["embedding"]["tokens"]["table"].dtype
    return tree_map(lambda x: (x + 0.2 * rng.standard_normal(x.shape)).astype(kind), lora.init(params, 1, kind))


def parts(tree):
    return {name: len({str(part.index) for part in x.addressable_shards}) for name, x in flatten(tree).items()}


def main(folder: Path) -> None:
    from glassformer.core.execution import Execution, MeshShape
    from glassformer.engines.jax.sharded_checkpoint import load_sharded_state, save_sharded_state
    from glassformer.engines.jax.trainer import JaxTrainer

    model, recipe = build(config_from_dict(DECODER)), Recipe(**RECIPE)
    base = model.init(1)
    first = start(model, recipe, scattered(EVERYWHERE, base))
    execution = Execution(mesh=MeshShape(fsdp=2, tensor=2), scan=True)
    training = JaxTrainer(model, recipe, execution, Adapted(base, EVERYWHERE))
    losses = []
    for state, record in training_steps(training, TEXT, training.put(first)):
        losses.append(record.loss)
        if record.step == 4:
            save_sharded_state(folder, state)
    kept = training.parametrization.base
    answers = {"losses": losses, "adapters": parts(state.params), "base": parts(kept)}
    answers["merged"] = parts(training.effective(state.params))
    state, _ = load_sharded_state(folder, state)
    answers["again"] = [record.loss for _, record in training_steps(training, TEXT, state)]
    sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
