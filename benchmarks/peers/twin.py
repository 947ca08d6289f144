"""The same model in PyTorch, as one would write it there: what a training step is measured against."""

from typing import Any


def torch_twin(config: Any, params: Any = None) -> Any:
    """Return a GPT-2 without biases as a module of PyTorch, with our weights if given; (ids, targets) → loss.

    Dropout is at nanoGPT's places: embedding, attention weights, and what enters the residual stream.
    """
    import torch
    import torch.nn.functional as F  # noqa: N812 (its own name)
    from torch import nn

    D, heads, rate = config.width, config.heads, config.dropout

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention_norm, self.feed_forward_norm = (nn.LayerNorm(D, bias=False) for _ in range(2))
            self.qkv, self.output = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
            self.up = nn.Linear(D, config.hidden, bias=False)
            self.down = nn.Linear(config.hidden, D, bias=False)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
            q, k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=rate * self.training)
            x = x + self._dropped(self.output(y.transpose(1, 2).flatten(-2)))
            return x + self._dropped(self.down(F.gelu(self.up(self.feed_forward_norm(x)), approximate="tanh")))

        def _dropped(self, x: Any) -> Any:
            return F.dropout(x, rate, self.training) if rate else x

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(config.vocab, D), nn.Embedding(config.context, D)
            self.blocks = nn.ModuleList(Block() for _ in range(config.layers))
            self.final_norm = nn.LayerNorm(D, bias=False)

        def logits(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
            x = F.dropout(x, rate, self.training) if rate else x
            for block in self.blocks:
                x = block(x)
            return self.final_norm(x) @ self.tokens.weight.T

        def forward(self, tokens: Any, targets: Any) -> Any:
            return F.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())

    twin = GPT()
    if params is not None:
        twin.load_state_dict({name: torch.tensor(array) for name, array in torch_weights(params).items()})
    return twin


def torch_weights(params: Any) -> dict[str, Any]:
    """Return our parameters, or their gradients, under the twin's names: (outputs, inputs), q, k and v as one."""
    import numpy as np

    from glassformer.core.tree import flatten

    weights = {}
    parts: dict[str, list[Any]] = {}
    for name, array in flatten(params).items():
        path = name.removesuffix(".w").removesuffix(".gamma").removesuffix(".table")
        path = path.removeprefix("embedding.").replace("attention.output", "output").replace("feed_forward.", "")
        block, _, part = path.rpartition(".attention.")
        if part in ("query", "key", "value"):
            parts.setdefault(f"{block}.qkv.weight", []).append(array.T)
        else:
            weights[f"{path}.weight"] = array.T if name.endswith(".w") else array
    return weights | {name: np.concatenate(arrays) for name, arrays in parts.items()}


def torch_optimizer(twin: Any, *, lr: float, beta2: float, weight_decay: float) -> Any:
    """Return PyTorch's fused AdamW that decays matrices alone, as ours does."""
    import torch

    matrices = [p for p in twin.parameters() if p.ndim >= 2]
    others = [p for p in twin.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, beta2), fused=True)
