"""Small runs, each twice: one that keeps everything, and one that keeps block checkpoints."""

import numpy as np

import glassformer as gf
from glassformer.core.quantized import quantize
from glassformer.core.tree import map_named
from glassformer.interpret import watch

SIZES = {"width": 8, "heads": 2, "layers": 3, "context": 8}
MODELS = {
    "decoder": gf.DecoderConfig(vocab=7, **SIZES, positions="rotary", norm="rms", gated=True, kv_heads=1),
    "parallel": gf.DecoderConfig(vocab=7, **SIZES, block="parallel"),
    "encoder": gf.EncoderConfig(vocab=7, classes=3, positions="alibi", norm_position="post", **SIZES),
    "encoder-decoder": gf.EncoderDecoderConfig(vocab=7, positions="relative", **SIZES),
}


def both(name, params=None):
    """Return a run that keeps everything and one with block checkpoints, of a model by its name or its config."""
    model = gf.build(MODELS.get(name, name))
    tokens = np.random.default_rng(0).integers(0, 7, (2, 5))
    batch = gf.Batch(tokens, tokens[:, 0] % 3 if name == "encoder" else tokens)
    if name == "encoder-decoder":
        batch = batch._replace(source=tokens[:, 1:])
    params = model.init(0, np.float64) if params is None else params
    return watch(model, params, batch), watch(model, params, batch, keep="block_checkpoints")


def packed_tree(params):
    """The same parameters with every matrix in blocks."""
    leaves = {"w": lambda x: quantize(x.T, "Q8_0").T, "table": lambda x: quantize(x, "Q8_0")}
    return map_named(lambda name, x: leaves.get(name.rpartition(".")[2], lambda x: x)(x), params)
