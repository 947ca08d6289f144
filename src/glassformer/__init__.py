"""The Transformer in a glass case: every matrix of the forward and the backward pass, in plain NumPy.

    import glassformer as gf

    model = gf.build("tiny-decoder")
    params = model.init(seed=0)
    logits, saved = model.forward(params, tokens)
    saved["blocks"][0]["attention"].weights             # what the heat map draws is what the backward pass uses
    loss, grads = model.loss_and_grads(params, gf.Batch(tokens, targets))

    model = gf.train("shakespeare", "notes.txt")        # a preset on a text: watch it, then use it
    model.generate("Once upon").text
    gf.save(model, "mine")                              # and gf.load("mine"), or gf.load("smollm2").chat("Hello")

`gf.ops` holds the mathematics, `gf.layers` what is built from it, `gf.tree` functions over all parameters at once.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import bugs, data, generation, interpret, labs, layers, ops, plots, proofs, studies, training
    from .api.costs import params
    from .api.exploration import Exploration
    from .api.learn import replay, resume, train
    from .api.loading import from_arrays, load
    from .api.loop import Loop
    from .api.passages import index, search
    from .api.trained_model import TrainedModel, explore, save
    from .config import (
        DecoderConfig,
        EncoderConfig,
        EncoderDecoderConfig,
        RotaryScaling,
        TransformerConfig,
        config_from_dict,
    )
    from .core import errors, tree
    from .core.dispatch import set_engine, use_engine
    from .core.errors import GlassformerError
    from .core.execution import Execution
    from .core.threads import threads
    from .data.python_files import task
    from .generation.answer import Classification
    from .layers import register_block, register_norm, register_positions
    from .models import PRESETS, Batch, Decoder, Encoder, EncoderDecoder, Model, build, preset
    from .ops import register_activation, register_op
    from .runs.settings import settings
    from .studies.own import study
    from .text import register_tokenizer
    from .training.curvature import gradient_noise_scale, hvp, per_example_gradients
    from .training.optimizers import register_optimizer
    from .training.recipe import register_loss, register_schedule
    from .weights.catalog import pull
    from .weights.family import Foreign

__version__ = "0.2.0"

# Where NumPy is not loaded yet: its BLAS's threads go to sleep a moment after a product (2²⁰ ticks) instead of spinning
# on for long, which would slow down whatever runs next on their cores, such as the first tokens after a prompt.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

# Each public name and where it lives. Modules are loaded when first used, so that importing the package takes next to
# nothing and a part that needs a library asks for it only when it is used.
_HOMES = {
    "api.costs": ("params",),
    "api.exploration": ("Exploration",),
    "api.learn": ("replay", "resume", "train"),
    "api.loading": ("from_arrays", "load"),
    "api.loop": ("Loop",),
    "api.passages": ("index", "search"),
    "api.trained_model": ("TrainedModel", "explore", "save"),
    "core.threads": ("threads",),
    "core.dispatch": ("set_engine", "use_engine"),
    "core.errors": ("GlassformerError",),
    "core.execution": ("Execution",),
    "config": (
        "DecoderConfig", "EncoderConfig", "EncoderDecoderConfig", "RotaryScaling", "TransformerConfig",
        "config_from_dict",
    ),
    "data.python_files": ("task",),
    "generation.answer": ("Classification",),
    "layers": ("register_block", "register_norm", "register_positions"),
    "models": ("PRESETS", "Batch", "Decoder", "Encoder", "EncoderDecoder", "Model", "build", "preset"),
    "ops": ("register_activation", "register_op"),
    "runs.settings": ("settings",),
    "weights.family": ("Foreign",),
    "weights.catalog": ("pull",),
    "studies.own": ("study",),
    "text": ("register_tokenizer",),
    "training.curvature": ("gradient_noise_scale", "hvp", "per_example_gradients"),
    "training.optimizers": ("register_optimizer",),
    "training.recipe": ("register_loss", "register_schedule"),
}  # fmt: skip
_MODULES = {
    **{name: name for name in (
        "bugs", "data", "generation", "interpret", "labs", "layers", "ops", "plots", "proofs", "studies", "training",
    )},
    "errors": "core.errors", "tree": "core.tree",
}  # fmt: skip
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "PRESETS", "Batch", "Classification", "Decoder", "DecoderConfig", "Encoder", "EncoderConfig", "EncoderDecoder",
    "EncoderDecoderConfig", "Execution", "Exploration", "Foreign", "GlassformerError", "Loop", "Model", "RotaryScaling",
    "TrainedModel", "TransformerConfig", "bugs", "build", "config_from_dict", "data", "errors", "explore",
    "from_arrays", "generation", "gradient_noise_scale", "hvp", "index", "interpret", "labs", "layers", "load", "ops",
    "params",
    "per_example_gradients", "plots", "preset", "proofs", "pull", "register_activation", "register_block",
    "register_loss", "register_norm", "register_op", "register_optimizer", "register_positions", "register_schedule",
    "register_tokenizer", "replay", "resume", "save", "search", "set_engine", "settings", "studies", "study", "task",
    "threads", "train", "training", "tree", "use_engine",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    if name in _NAMES:
        globals()[name] = getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
        import_module(f"{__name__}.core.arguments").public(globals(), [name], has_makers=True)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
