"""Proofs: every hand-derived gradient compared with one found by numbers alone.

`prove_all()` returns one `Check` per op, layer and model, and one for adapters.
"""

from ..core.arguments import public
from .case import Check, LayerCase, ModelCase, OpCase
from .check import prove, prove_all, prove_case, prove_layers, prove_ops
from .layer_cases import layer_cases
from .model_cases import lora_cases, model_cases
from .op_cases import op_cases

__all__ = [
    "Check", "LayerCase", "ModelCase", "OpCase", "layer_cases", "lora_cases", "model_cases", "op_cases", "prove",
    "prove_all", "prove_case", "prove_layers", "prove_ops",
]  # fmt: skip
__dir__ = __all__.copy
public(globals(), __all__, has_makers=True)
