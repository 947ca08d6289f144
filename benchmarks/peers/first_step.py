"""What a fresh process does when its start is timed. Nothing is imported here that one of them does without."""

import sys
from types import SimpleNamespace
from typing import Any


def import_one(*, name: str) -> bool:
    """Import a module."""
    __import__(name)
    return name in sys.modules


def ours(**settings: Any) -> float:
    """Take one training step with this library; return its loss."""
    from .steps import Ours

    return Ours(**settings).advance()


def jax(**settings: Any) -> float:
    """Take one training step of the same sizes with JAX, compiled first; return its loss."""
    from .steps import Jax

    return Jax(**settings).advance()


def torch(*, layers: int, width: int, heads: int, length: int, batch: int, vocab: int) -> float:
    """Take one training step of the same sizes with PyTorch, from weights of its own; return its loss."""
    import torch

    from .twin import torch_optimizer, torch_twin

    sizes = {"layers": layers, "width": width, "heads": heads, "context": length, "vocab": vocab}
    twin = torch_twin(SimpleNamespace(**sizes, hidden=4 * width, dropout=0.0))
    optimizer = torch_optimizer(twin, lr=1e-3, beta2=0.99, weight_decay=0.1)
    tokens, targets = torch.randint(0, vocab, (2, batch, length))
    loss = twin(tokens, targets)
    loss.backward()
    optimizer.step()
    return loss.item()
