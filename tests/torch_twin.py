"""The three models once more, in PyTorch: written from the settings alone, differentiated by autograd.

It shares the names of the parameters with Glassformer and nothing else: no op, no layer, no helper.
"""

import math
from typing import Any

import numpy as np

from oracles import require

torch = require("torch")
F = torch.nn.functional


def twin_loss_and_grads(case: Any) -> tuple[float, dict[str, np.ndarray], np.ndarray]:
    """The loss of a model case, the gradient of every parameter by dotted name, and the logits, by autograd.

    Dropout is applied with the masks that the record of our forward pass holds, so that both drop the same entries.
    """
    from glassformer.core.tree import flatten

    params = {name: torch.tensor(x, requires_grad=True) for name, x in flatten(case.params).items()}
    kept = {name: torch.tensor(x) for name, x in flatten(case.forward()[1]).items() if x.dtype == bool}
    logits = Twin(case.model.config, params, kept if "key" in case.settings else {}).logits(case.batch)
    weights = case.settings.get("class_weights")
    loss = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        torch.tensor(case.batch.targets).reshape(-1),
        weight=None if weights is None else torch.tensor(weights),
        label_smoothing=case.settings.get("smoothing", 0.0),
    )
    loss.backward()
    grads = {name: np.zeros(p.shape) if p.grad is None else p.grad.numpy() for name, p in params.items()}
    return loss.item(), grads, logits.detach().numpy()


class Twin:
    """A model of any of the three architectures, given its settings and its parameters by dotted name."""

    # Where a value passes `point`, its name is one of those that Glassformer's record has for it.

    def __init__(self, config: Any, params: dict[str, Any], kept: dict[str, Any], point: Any = None) -> None:
        self.config, self.params, self.kept = config, params, kept
        self.point = point or (lambda name, x: x)  # called with every intermediate value, and may return another

    def logits(self, batch: Any) -> Any:
        tokens = torch.tensor(batch.tokens)
        mask = torch.tensor(np.ones(batch.tokens.shape, bool) if batch.mask is None else batch.mask)
        if self.config.architecture == "decoder":
            return self.head(self.stack("", self.embed("embedding", tokens), mask, causal=True))
        if self.config.architecture == "encoder":
            return self.encoder(tokens, mask, batch.segments)
        source = torch.tensor(batch.source)
        seen = torch.tensor(np.ones(batch.source.shape, bool) if batch.source_mask is None else batch.source_mask)
        memory = self.stack("encoder.", self.embed("source_embedding", source), seen, causal=False)
        x = self.stack("decoder.", self.embed("embedding", tokens), mask, causal=True, memory=(memory, seen))
        return self.head(x)

    def encoder(self, tokens: Any, mask: Any, segments: Any) -> Any:
        config, params = self.config, self.params
        x = self.embed("embedding", tokens, segments)
        if config.pooling == "cls":
            x = torch.cat([params["cls"].expand(len(x), 1, -1), x], dim=1)
            mask = F.pad(mask, (1, 0), value=True)
        x = self.stack("", x, mask, causal=False)
        if config.head == "tokens":
            x = F.linear(x, params["head.transform.linear.w"].T, params["head.transform.linear.b"])
            x = ACTIVATIONS[config.activation](self.point("head.transform.linear", x))
            x = self.point("head.transform.norm.x", x)
            return self.head(self.norm("head.transform.norm", x))
        if config.pooling == "mean":
            pooled = torch.stack([row[real].mean(dim=0) for row, real in zip(x, mask, strict=True)])
        else:
            pooled = x[:, 0]
        if config.pooled_norm:
            pooled = self.point("pooled_norm.x", pooled)
            root = pooled.square().mean(-1, keepdim=True).add(config.norm_eps).rsqrt()
            pooled = pooled * self.point("pooled_norm.rrms", root) * params["pooled_norm.gamma"]
        if config.pooled_activation is not None:
            pooled = self.point("pooled_linear.x", pooled)
            pooled = self.point("pooled_linear", pooled @ params["pooled_linear.w"] + params["pooled_linear.b"])
            pooled = ACTIVATIONS[config.pooled_activation](pooled)
        pooled = self.point("classifier.x", pooled)
        return self.point("logits", pooled @ params["classifier.w"] + params["classifier.b"])

    def embed(self, name: str, tokens: Any, segments: Any = None) -> Any:
        config, params = self.config, self.params
        x = F.embedding(tokens, params.get(f"{name}.tokens.table", params["embedding.tokens.table"]))
        if config.embedding_scale:
            x = x * math.sqrt(config.width)
        x = self.point(f"{name}.tokens", x)
        length = tokens.shape[-1]
        if config.positions == "learned":
            table = params[f"{name}.positions.table"]
            if getattr(config, "padding_id", None) is None:
                x = x + self.point(f"{name}.positions", table[:length])
            else:  # real tokens are counted from 1, and padding stands at 0
                real = tokens != config.padding_id
                x = x + F.embedding(torch.cumsum(real, dim=-1) * real, table)
        if config.positions == "sinusoidal":
            x = x + sinusoids(length, config.width)
        if getattr(config, "segments", 0):
            kinds = torch.zeros_like(tokens) if segments is None else torch.tensor(segments)
            x = x + self.point(f"{name}.segments", F.embedding(kinds, params[f"{name}.segments.table"]))
        if config.embedding_norm:
            x = self.norm(f"{name}.norm", self.point(f"{name}.norm.x", x))
        return self.point(f"{name}.output", self.drop(f"{name}.dropout", x, config.input_dropout))

    def stack(self, prefix: str, x: Any, mask: Any, *, causal: bool, memory: Any = None) -> Any:
        config = self.config
        length = x.shape[1]
        allowed = reach(length, causal, config.window, config.stride) & mask[:, None, None, :]
        bias = torch.zeros(1, 1, 1)
        if config.positions == "alibi":
            place = torch.arange(length)
            bias = -torch.tensor(slopes(config.heads))[:, None, None] * (place[:, None] - place).abs()
        if config.positions == "relative":
            bias = self.relative(f"{prefix}relative.table", length, causal)
            bias = self.point(f"{prefix}blocks.0.attention.attend.bias", bias)
        first = f"{prefix}blocks.0.{'feed_forward' if config.block == 'feed_forward_only' else 'attention'}"
        x = self.point(f"{first}_norm.x" if config.norm_position == "pre" else f"{first}.query.x", x)
        depth = 1 + max(
            int(n.split("blocks.")[1].split(".")[0]) for n in self.params if n.startswith(f"{prefix}blocks")
        )
        for number in range(depth):
            x = self.point(f"{prefix}blocks.{number}", self.block(f"{prefix}blocks.{number}", x, bias, allowed, memory))
        return self.norm(f"{prefix}final_norm", x) if f"{prefix}final_norm.gamma" in self.params else x

    def block(self, name: str, x: Any, bias: Any, allowed: Any, memory: Any) -> Any:
        def around(part: str, sublayer: Any, x: Any) -> Any:
            """One sublayer with its norm, dropout and residual."""
            pre = self.config.norm_position == "pre"
            x = self.point(f"{name}.{part}_norm.x", x) if pre else x
            y = sublayer(self.norm(f"{name}.{part}_norm", self.alone(f"{name}.{part}_norm", x)) if pre else x)
            y = self.drop(f"{name}.{part}_dropout", self.point(f"{name}.{part}", y), self.config.dropout)
            x = y if self.config.block == "no_residual" else x + y
            if pre:
                return x
            return self.norm(
                f"{name}.{part}_norm", self.alone(f"{name}.{part}_norm", self.point(f"{name}.{part}_norm.x", x))
            )

        rotary = self.config.positions == "rotary"
        parts = {"attention": lambda h: self.attend(f"{name}.attention", h, h, bias, allowed, rotary)}
        if memory is not None:
            read, seen = memory
            given = torch.zeros(1, 1, 1), seen[:, None, None, :]
            parts["cross_attention"] = lambda h: self.attend(f"{name}.cross_attention", h, read, *given, False)
        if self.config.block == "feed_forward_only":
            del parts["attention"]
        if self.config.block != "attention_only":
            parts["feed_forward"] = lambda h: self.feed_forward(f"{name}.feed_forward", h)
        if self.config.block == "parallel":
            return x + sum(around(part, sublayer, x) - x for part, sublayer in parts.items())
        for part, sublayer in parts.items():
            x = around(part, sublayer, x)
        return x

    def attend(self, name: str, x: Any, seen: Any, bias: Any, allowed: Any, rotary: bool) -> Any:
        config = self.config
        q, k, v = (
            self.point(f"{name}.{part}", self.linear(f"{name}.{part}", self.alone(f"{name}.{part}", source)))
            .unflatten(-1, (-1, config.channels))
            .transpose(1, 2)
            for part, source in (("query", x), ("key", seen), ("value", seen))
        )
        if rotary:
            q, k = self.turn(q), self.turn(k)
        q, k, v = (self.point(f"{name}.attend.{part}", y) for part, y in (("q", q), ("k", k), ("v", v)))
        k, v = (y.repeat_interleave(config.heads // config.key_heads, dim=1) for y in (k, v))
        products = torch.einsum("bhtc,bhsc->bhts", q, k)
        if config.scale_scores:
            products = products / math.sqrt(config.channels)
        scores = self.point(f"{name}.attend.scores", products + bias)
        allowed = self.point(f"{name}.attend.mask", allowed.expand(scores.shape))
        blind = ~allowed.any(dim=-1, keepdim=True)  # queries that see no key gather nothing
        hidden = torch.where(allowed | blind, scores, -torch.inf)
        weights = self.point(f"{name}.attend.weights", hidden.softmax(dim=-1).masked_fill(blind, 0))
        weights = self.drop(f"{name}.attend.keep", weights, config.weight_dropout)
        mixed = self.point(f"{name}.output.x", (weights @ v).transpose(1, 2).flatten(-2))
        return self.linear(f"{name}.output", mixed)

    def alone(self, name: str, x: Any) -> Any:
        """What one part reads of x, which others read as well."""
        return self.point(f"{name}.input", x.clone())

    def turn(self, x: Any) -> Any:
        """Multiply pairs of channels, as complex numbers, by exp(i · angle)."""
        config = self.config
        length, channels = x.shape[-2:]
        turning = config.rotary_channels or channels
        frequency = [config.rotary_base ** (-2 * i / turning) for i in range(turning // 2)]
        resting = [0.0] * ((channels - turning) // 2)
        frequency = torch.tensor([stretched(f, config.rotary_scaling) for f in frequency] + resting)
        angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
        unit = torch.polar(torch.ones_like(angle), angle)
        if config.rotary_pairing == "interleaved":
            return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * unit).flatten(-2)
        turned = torch.complex(*x.chunk(2, dim=-1)) * unit
        return torch.cat([turned.real, turned.imag], dim=-1)

    def relative(self, name: str, length: int, causal: bool) -> Any:
        config, table = self.config, self.params[name]
        settings = (config.relative_buckets, config.relative_distance, causal)
        rows = [[table[t5_bucket(key - query, *settings)] for key in range(length)] for query in range(length)]
        return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)

    def feed_forward(self, name: str, x: Any) -> Any:
        act = ACTIVATIONS[self.config.activation]
        up = self.point(f"{name}.up", self.linear(f"{name}.up", self.alone(f"{name}.up", x)))
        if self.config.gated:
            gate = self.linear(f"{name}.gate", self.alone(f"{name}.gate", x))
            hidden = act(self.point(f"{name}.gate", gate)) * up
        else:
            hidden = act(up)
        return self.linear(f"{name}.down", self.point(f"{name}.down.x", hidden))

    def head(self, x: Any) -> Any:
        config, params = self.config, self.params
        x = x / math.sqrt(config.width) if config.head_scale else x
        weight = params["embedding.tokens.table"] if config.tied_head else params["head.w"].T
        return self.point("logits", F.linear(self.point("head.logits.x", x), weight, params.get("head.b")))

    def linear(self, name: str, x: Any) -> Any:
        return F.linear(x, self.params[f"{name}.w"].T, self.params.get(f"{name}.b"))

    def norm(self, name: str, x: Any) -> Any:
        if self.config.norm == "none":
            return self.point(name, x)
        gamma, eps = self.params[f"{name}.gamma"], self.config.norm_eps
        beta = self.params.get(f"{name}.beta")
        if self.config.norm == "rms":
            root = self.point(f"{name}.rrms", x.square().mean(-1, keepdim=True).add(eps).rsqrt())
            return self.point(name, x * root * gamma)
        centered = x - self.point(f"{name}.mean", x.mean(-1, keepdim=True))
        root = self.point(f"{name}.rstd", centered.square().mean(-1, keepdim=True).add(eps).rsqrt())
        y = centered * root * gamma
        return self.point(name, y if beta is None else y + beta)

    def drop(self, name: str, x: Any, rate: float) -> Any:
        if not self.kept or rate == 0:
            return x
        return x * self.kept[name] / (1 - rate)


ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def sinusoids(length: int, width: int) -> Any:
    table = torch.zeros(length, width)
    for place in range(length):
        for i in range(0, width, 2):
            angle = place / 10000 ** (i / width)
            table[place, i] = math.sin(angle)
            if i + 1 < width:
                table[place, i + 1] = math.cos(angle)
    return table


def slopes(heads: int) -> list[float]:
    """The slopes of ALiBi, by the recursion of its authors."""
    if math.log2(heads).is_integer():
        start = 2 ** (-8 / heads)
        return [start ** (i + 1) for i in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    return slopes(lower) + slopes(2 * lower)[0::2][: heads - lower]


def t5_bucket(distance: int, buckets: int, longest: int, causal: bool) -> int:
    """The bucket of T5 for a key that lies `distance` after its query."""
    first = 0
    if not causal:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = -abs(distance)
    back = max(-distance, 0)
    exact = buckets // 2
    if back < exact:
        return first + back
    far = exact + int(math.log(back / exact) / math.log(longest / exact) * (buckets - exact))
    return first + min(far, buckets - 1)


def stretched(frequency: float, scaling: Any) -> float:
    """A frequency as Llama 3.1 changes it."""
    if scaling is None:
        return frequency
    wavelength = 2 * math.pi / frequency
    if wavelength < scaling.original_context / scaling.high_factor:
        return frequency
    if wavelength > scaling.original_context / scaling.low_factor:
        return frequency / scaling.factor
    smooth = scaling.original_context / wavelength - scaling.low_factor
    smooth = smooth / (scaling.high_factor - scaling.low_factor)
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency


def reach(length: int, causal: bool, window: int | None, stride: int | None) -> Any:
    """Which key (column) a query (row) may look at, one by one."""
    allowed = torch.ones(length, length, dtype=torch.bool)
    for query in range(length):
        for key in range(length):
            apart = abs(query - key)
            near = window is None or apart < window
            on_grid = stride is None or apart < stride or apart % stride == 0
            allowed[query, key] = near and on_grid and not (causal and key > query)
    return allowed
