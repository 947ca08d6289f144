"""Proofs: every hand-derived gradient compared with one found by numbers alone.

`prove_all()` returns one `Check` per op, layer and model, and one for adapters.
"""

from .case import Check, OpCase
from .check import (
    prove_all,
    prove_layer_case,
    prove_layers,
    prove_lora,
    prove_lora_case,
    prove_model_case,
    prove_models,
    prove_op_case,
    prove_ops,
)
from .layer_cases import LayerCase, layer_cases
from .model_cases import LoRACase, ModelCase, lora_cases, model_cases
from .op_cases import op_cases

__all__ = [
    "Check", "LayerCase", "LoRACase", "ModelCase", "OpCase", "layer_cases", "lora_cases", "model_cases", "op_cases",
    "prove_all", "prove_layer_case", "prove_layers", "prove_lora", "prove_lora_case", "prove_model_case",
    "prove_models", "prove_op_case", "prove_ops",
]  # fmt: skip
