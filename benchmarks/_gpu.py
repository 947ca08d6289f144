"""What the parts of gpu_train.py share."""

from __future__ import annotations

import json
from typing import Any

GPT: dict[str, Any] = {
    "architecture": "decoder",
    "activation": "gelu_tanh",
    "attention_bias": False,
    "feed_forward_bias": False,
    "norm_bias": False,
    "init_std": 0.02,
}
TINY = {"width": 32, "heads": 2, "layers": 2}


def say(**figures: Any) -> None:
    """Print one result."""
    print(json.dumps(figures), flush=True)


def device() -> str:
    """Return PyTorch's name of the device."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def synchronize() -> None:
    """Wait until PyTorch's device has nothing left to do."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
