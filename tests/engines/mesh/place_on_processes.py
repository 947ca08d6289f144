"""One of two processes with two devices each: place arrays on all four, fetch them, and print what happened."""

import json
import sys

import jax
import numpy as np

from glassformer.config import DecoderConfig
from glassformer.core.execution import MeshShape
from glassformer.core.tree import flatten
from glassformer.engines.mesh.rules import build_mesh
from glassformer.engines.mesh.sharding import fetch, param_shardings, place, stack_blocks
from glassformer.models import build

CONFIG = DecoderConfig(vocab=16, width=16, heads=4, layers=2, context=8)

if __name__ == "__main__":
    port, number = sys.argv[1], int(sys.argv[2])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=number, initialization_timeout=60)
    params = build(CONFIG).init(0)
    mesh = build_mesh(MeshShape(fsdp=2, tensor=2))
    placed = place(params, param_shardings(params, mesh))
    stacked = stack_blocks(params)
    loop = place(stacked, param_shardings(stacked, mesh))
    back, whole = flatten([fetch(placed), fetch(loop, wanted=number == 0)]), flatten([params, stacked])
    found = {
        "devices": len(jax.devices()),
        "own": len(jax.local_devices()),
        "elsewhere": sorted(name for name, array in flatten(placed).items() if not array.is_fully_addressable),
        "missing": sorted({name.partition(".")[0] for name in whole.keys() - back.keys()}),
        "different": [name for name in back if not np.array_equal(back[name], whole[name])],
        "kinds": sorted({type(array).__name__ for array in back.values()}),
    }
    print(json.dumps(found))  # noqa: T201
    jax.distributed.shutdown()
