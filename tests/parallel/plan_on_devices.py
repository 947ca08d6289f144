"""Place and compile a small model on eight devices; print the bytes that each device takes, as JSON."""

import json

import jax
import numpy as np

from glassformer.config import DecoderConfig, EncoderDecoderConfig
from glassformer.models import Batch, build
from glassformer.parallel.mesh import MeshShape, build_mesh
from glassformer.parallel.sharding import batch_sharding, param_shardings, place, state_shardings, working_shardings
from glassformer.parallel.stacking import stack_blocks
from glassformer.training.ema import EMA
from glassformer.training.optimizers import OPTIMIZERS
from glassformer.tree import flatten, tree_map

MODELS = {
    "decoder": DecoderConfig(
        vocab=64, width=32, heads=4, kv_heads=2, layers=3, context=16, gated=True, norm="rms", positions="rotary"
    ),
    "encoder-decoder": EncoderDecoderConfig(
        vocab=32, width=16, heads=4, layers=2, encoder_layers=1, context=8, positions="relative"
    ),
}
MESHES = ["data=8", "fsdp=8", "data=2,fsdp=2,tensor=2"]
COMPILED = MODELS["decoder"].replace(width=64, layers=4, context=64)
BATCH = 64


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
    return found | {name: held(place(state, state_shardings(state, mesh))) for name, state in states.items()}


def compiled(mesh, *, remat):
    """What XLA counts for the gradients of one step."""
    model = build(COMPILED.replace(remat=remat))
    params = stack_blocks(model.init(0))
    home, work = param_shardings(params, mesh), working_shardings(params, mesh)
    constrain = jax.lax.with_sharding_constraint

    def step(params, tokens):
        loss, grads = model.loss_and_grads(tree_map(constrain, params, work), Batch(tokens, tokens))
        # Asked for the split along fsdp at once, the compiler replicates what the embedding's gradient is made of.
        return loss, tree_map(constrain, tree_map(constrain, grads, work), home)

    tokens = place(np.zeros((BATCH, COMPILED.context), np.int32), batch_sharding(mesh))
    program = jax.jit(step).lower(place(params, home), tokens).compile().memory_analysis()
    return {"arguments": program.argument_size_in_bytes, "temporary": program.temp_size_in_bytes}


if __name__ == "__main__":
    meshes = {text: build_mesh(MeshShape.parse(text)) for text in MESHES}
    found = {f"{model}/{text}": stored(model, mesh) for model in MODELS for text, mesh in meshes.items()}
    for remat in (False, True):
        found["remat" if remat else "recorded"] = compiled(build_mesh(MeshShape(fsdp=4, tensor=2)), remat=remat)
    print(json.dumps(found))  # noqa: T201
