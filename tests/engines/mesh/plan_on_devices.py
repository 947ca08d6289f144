"""Place and compile a small model on eight devices; print the bytes that each device takes, as JSON."""

import json
from typing import NamedTuple

import jax
import numpy as np

from glassformer.config import DecoderConfig, EncoderDecoderConfig
from glassformer.core.execution import Execution, MeshShape
from glassformer.core.tree import flatten
from glassformer.data.examples import Windows
from glassformer.engines.jax.trainer import JaxTrainer
from glassformer.engines.mesh.rules import build_mesh
from glassformer.engines.mesh.sharding import param_shardings, place
from glassformer.models import build
from glassformer.training.optimizers import EMA, OPTIMIZERS
from glassformer.training.recipe import Recipe

MODELS = {
    "decoder": DecoderConfig(
        vocab=64, width=32, heads=4, kv_heads=2, layers=3, context=16, gated=True, norm="rms", positions="rotary"
    ),
    "encoder-decoder": EncoderDecoderConfig(
        vocab=32, width=16, heads=4, layers=2, encoder_layers=1, context=8, positions="relative"
    ),
}
MESHES = ["data=8", "fsdp=8", "data=2,fsdp=2,tensor=2"]


class Step(NamedTuple):
    """A step to compile: where weights count most, or activations."""

    config: DecoderConfig
    mesh: str
    batch: int = 8
    remat: bool = False
    accumulate: int = 1


FEW = {"attention_bias": False, "feed_forward_bias": False}  # of fewer arrays: each takes its time to compile
LONG = MODELS["decoder"].replace(width=64, layers=4, context=64, **FEW)
HEAVY = DecoderConfig(vocab=2048, width=256, heads=4, layers=4, context=8, norm="rms", **FEW)
STEPS = {
    "activations": Step(LONG, "fsdp=4,tensor=2", batch=64),
    "activations, remat": Step(LONG, "fsdp=4,tensor=2", batch=64, remat=True),
    "weights, data": Step(HEAVY, "data=8"),
    "weights, fsdp": Step(HEAVY, "fsdp=8", batch=16, accumulate=2),
    "a large head": Step(HEAVY.replace(vocab=16384, tied_head=False), "data=4,tensor=2"),
}


def held(tree):
    """The bytes of a tree on each of the devices, which must agree."""
    sums = [0] * jax.device_count()
    for array in flatten(tree).values():
        for part in array.addressable_shards:
            sums[part.device.id] += part.data.nbytes
    assert len(set(sums)) == 1, sums
    return sums[0]


def stored(model, mesh):
    """The bytes of the parameters, of their average and of each optimizer's memory."""
    params = build(MODELS[model]).init(0)
    found = {"parameters": held(place(params, param_shardings(params, mesh)))}
    states = {name: kind().init(params) for name, kind in OPTIMIZERS.items()} | {"ema": EMA().init(params)}
    return found | {name: held(place(state, param_shardings(state, mesh))) for name, state in states.items()}


def compiled(step):
    """What XLA counts for one step."""
    recipe = Recipe(batch=step.batch, accumulate=step.accumulate)
    execution = Execution(mesh=MeshShape.parse(step.mesh), scan=True, remat=step.remat)
    training = JaxTrainer(build(step.config), recipe, execution)
    shapes = training.shapes()
    trees = {name: getattr(shapes, name) for name in ("params", "optimizer", "ema", "scaling")}
    batch = training.batch(Windows(np.zeros(600, int), step.config.context), 0)
    program = (
        training._compiled_step.current().lower(trees, None, batch, None, np.float64(0)).compile().memory_analysis()
    )
    return {"arguments": program.argument_size_in_bytes, "temporary": program.temp_size_in_bytes}


if __name__ == "__main__":
    meshes = {text: build_mesh(MeshShape.parse(text)) for text in MESHES}
    found = {f"{model}/{text}": stored(model, mesh) for model in MODELS for text, mesh in meshes.items()}
    found |= {name: compiled(step) for name, step in STEPS.items()}
    print(json.dumps(found))  # noqa: T201
