"""The Transformer in a glass case: every matrix of the forward and the backward pass, in plain NumPy.

    import glassformer as gf

    model = gf.build("tiny-decoder")
    params = model.init(seed=0)
    logits, saved = model.forward(params, tokens)
    saved["blocks"][0]["attention"].weights             # what the heat map draws is what the backward pass uses
    loss, grads = model.loss_and_grads(params, gf.Batch(tokens, targets))

    model = gf.train("notes.txt", "shakespeare")        # a preset on a text: watch it, then use it
    model.generate("Once upon").text
    gf.save(model, "mine")                              # and gf.load("mine"), or gf.load("smollm2").chat("Hello")

`gf.ops` holds the mathematics, `gf.layers` what is built from it, `gf.tree` functions over all parameters at once.
"""

import os
from importlib import import_module
from typing import Any

__version__ = "0.2.0"

# Where NumPy is not loaded yet: its BLAS's threads go to sleep a moment after a product (2²⁰ ticks) instead of spinning
# on for long, which would slow down whatever runs next on their cores, such as the first tokens after a prompt.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")


def _homes() -> dict[str, str]:
    """Return the module of each public name, as the stub beside this file imports it for type checkers."""
    # Each stands on a line: `from .api.loading import load as load`; importing pathlib or ast would take a while.
    with open(os.path.splitext(__file__)[0] + ".pyi", encoding="utf-8") as file:
        lines = [line.split() for line in file if line.startswith("from .")]
    return {name: home for _, home, _, name, *_ in lines}


# Modules are loaded when first used: importing the package takes next to nothing, and a part that needs a library asks
# for it only when it is used.
_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if home in (".", ".core"):  # a module, which Python makes an attribute
        return import_module(f"{home.rstrip('.')}.{name}", __name__)
    from .core.arguments import public

    globals()[name] = getattr(import_module(home, __name__), name)
    public(globals(), [name], has_makers=True)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
