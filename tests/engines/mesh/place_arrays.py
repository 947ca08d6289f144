"""Place the parameters and the state of small models on eight devices; print what lies where, as JSON."""

import json

import numpy as np

from glassformer.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from glassformer.core.execution import MeshShape
from glassformer.core.tree import flatten, tree_map
from glassformer.engines.mesh.rules import build_mesh
from glassformer.engines.mesh.sharding import (
    fetch,
    param_shardings,
    place,
    sharding,
    working_shardings,
)
from glassformer.models import build
from glassformer.training.optimizers import EMA, AdamW, Muon

SIZES = {"vocab": 16, "width": 16, "heads": 4, "layers": 2, "context": 8}
MODELS = {
    "decoder": DecoderConfig(**SIZES, kv_heads=2, gated=True, norm="rms", tied_head=False, head_bias=True),
    "classifier": EncoderConfig(**SIZES, classes=3, pooling="cls", segments=2, embedding_norm=True),
    "filler": EncoderConfig(**SIZES, head="tokens", head_bias=True),
    "encoder-decoder": EncoderDecoderConfig(**SIZES, source_vocab=32, positions="relative"),
}
MESHES = ["data=2,fsdp=2,tensor=2", "fsdp=8", "data=4,tensor=2", "data=8"]
REMEMBERED = ("decoder", "encoder-decoder")
"""The models of which the state of training is placed, too."""
IN_USE = ("decoder", "data=2,fsdp=2,tensor=2")
"""The model and the mesh whose weights are also placed as they are used."""


def stacked(tree):
    """The parameters with all blocks of a stack in one: (L, ...)."""
    if isinstance(tree, list):
        return tree_map(lambda *parts: np.stack(parts), *tree)
    return {name: stacked(part) for name, part in tree.items()} if isinstance(tree, dict) else tree


def describe(placed, whole):
    """Every array's shape, that of one shard, how many different shards there are, and whether all bits came back."""
    back, whole = flatten(fetch(placed)), flatten(whole)
    shards = {name: array.addressable_shards for name, array in flatten(placed).items()}
    return {
        name: {
            "shape": list(array.shape),
            "shard": list(shards[name][0].data.shape),
            "alike": len({part.data.shape for part in shards[name]}) == 1,
            "shards": len({str(part.index) for part in shards[name]}),
            "same": bool(
                back[name].dtype == whole[name].dtype
                and back[name].tobytes() == np.ascontiguousarray(whole[name]).tobytes()
            ),
        }
        for name, array in flatten(placed).items()
    }


def cases():
    for mesh_text in MESHES:
        mesh = build_mesh(MeshShape.parse(mesh_text))
        for model, config in MODELS.items():
            params = build(config).init(0)
            for layout, tree in (("list", params), ("stacked", stacked(params))):
                key = f"{model}/{mesh_text}/{layout}"
                yield f"{key}/params", place(tree, param_shardings(tree, mesh)), tree
                if (model, mesh_text) == IN_USE:
                    yield f"{key}/working", place(tree, working_shardings(tree, mesh)), tree
            if model not in REMEMBERED:
                continue
            states = {
                "adam": AdamW().init(params),
                "muon": Muon().init(params),
                "ema": EMA().init(params),
                "stacked adam": AdamW().init(stacked(params)),
                "all": {"optimizer": Muon().init(params), "ema": EMA().init(params), "scaling": None},
            }
            for kind, state in states.items():
                drawn = np.random.default_rng(0)
                state = tree_map(lambda x, d=drawn: d.standard_normal(x.shape).astype(x.dtype), state)
                yield f"{model}/{mesh_text}/{kind}", place(state, param_shardings(state, mesh)), state
        batch = {"tokens": np.arange(16 * 8, dtype=np.int32).reshape(16, 8), "classes": np.arange(16)}
        yield (
            f"batch/{mesh_text}",
            place(batch, tree_map(lambda _, m=mesh: sharding(m, (("data", "fsdp"),)), batch)),
            batch,
        )
        yield f"whole/{mesh_text}", place(batch, tree_map(lambda _, m=mesh: sharding(m, ()), batch)), batch


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)  # ids are 64 bits wide
    print(json.dumps({key: describe(placed, whole) for key, placed, whole in cases()}))  # noqa: T201
