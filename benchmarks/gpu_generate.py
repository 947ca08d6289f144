"""Tokens per second of GPT-2 124M on a device: the engine jax in turns with PyTorch, one JSON line for each row.

python benchmarks/gpu_generate.py            bfloat16, 128 tokens after prompts of 128, batches of 1 and 64
python benchmarks/gpu_generate.py --tiny     a small model in float32, to see that it runs

The weights are random and the same for both. PyTorch runs the same model with keys and values in buffers of fixed size,
its prefill and its step compiled (`torch.compile`, on a GPU as CUDA graphs), the likeliest token chosen on the device.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs some of the memory

import numpy as np

from glassformer import build, use_engine
from glassformer.engines.jax.programs import traces
from glassformer.engines.jax.reader import to_device
from glassformer.generation import Sampling, generate_steps
from peers.twin import torch_weights

NO_BIASES = {"attention_bias": False, "feed_forward_bias": False, "norm_bias": False, "dropout": 0.0}
SPREAD = 0.1  # of the random weights: with 0.02 a model soon repeats one token
TINY = {"vocab": 101, "width": 32, "heads": 4, "layers": 2, "context": 64}
GREEDY = Sampling(temperature=0)


class Ours:
    """`generate_steps` under the engine jax."""

    name = "glassformer jax"

    def __init__(self, model, params, dtype):
        import jax

        self.model, self.device = model, str(jax.devices()[0].device_kind)
        self.params = to_device(params, dtype)

    def write(self, prompts, new):
        """Return the tokens (B, new) that follow prompts (B, T)."""
        steps = generate_steps(self.model, self.params, list(prompts), max_new_tokens=new, sampling=GREEDY)
        return np.stack([step.ids for step in steps], axis=1)


class Torch:
    """PyTorch with a static cache."""

    def __init__(self, model, params, dtype, batch, places, mode):
        import torch

        self.torch = torch
        self.cuda = torch.cuda.is_available()
        self.name = "PyTorch" + ("" if mode == "eager" else f" compiled, {mode}")
        self.device = torch.cuda.get_device_name() if self.cuda else "cpu"
        kind = getattr(torch, dtype)
        twin = cached_twin(model.config, params, batch, places, kind).to("cuda" if self.cuda else "cpu")
        self.step = twin if mode == "eager" else torch.compile(twin, mode=mode, fullgraph=True, dynamic=False)
        # The prompts are read once: what a graph of kernels would save is not worth the memory it keeps.
        self.prefill = twin if mode == "eager" else torch.compile(twin, fullgraph=True, dynamic=False)

    def write(self, prompts, new):
        """Return the tokens (B, new) that follow prompts (B, T)."""
        torch = self.torch
        place = "cuda" if self.cuda else "cpu"
        with torch.no_grad():
            read = torch.as_tensor(prompts, device=place)
            places = torch.arange(read.shape[1], device=place)
            token = self.prefill(read, places)
            written = [token]
            at = places[-1:] + 1
            for _ in range(new - 1):
                token = self.step(token[:, None], at).clone()  # the next step may reuse its memory
                written.append(token)
                at = at + 1
            return torch.stack(written, dim=1).cpu().numpy()


def cached_twin(config, params, batch, places, kind):
    """Return a GPT-2 without biases with our weights: (ids (B, T), places (T,)) → the likeliest next token (B,)."""
    import torch
    import torch.nn.functional as F  # noqa: N812 (its own name)
    from torch import nn

    D, heads = config.width, config.heads

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.feed_forward_norm = (nn.LayerNorm(D, config.norm_eps, bias=False) for _ in "12")
            self.qkv, self.output = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
            self.up, self.down = nn.Linear(D, config.hidden, bias=False), nn.Linear(config.hidden, D, bias=False)
            for name in ("k", "v"):
                self.register_buffer(name, torch.zeros(batch, heads, places, D // heads), persistent=False)

        def forward(self, x, at, mask):
            qkv = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
            q, k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in qkv)
            self.k[:, :, at] = k
            self.v[:, :, at] = v
            y = F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)
            x = x + self.output(y.transpose(1, 2).flatten(-2))
            return x + self.down(F.gelu(self.up(self.feed_forward_norm(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(config.vocab, D), nn.Embedding(config.context, D)
            self.blocks = nn.ModuleList(Block() for _ in range(config.layers))
            self.final_norm = nn.LayerNorm(D, config.norm_eps, bias=False)
            self.register_buffer("all_places", torch.arange(places), persistent=False)

        def forward(self, ids, at):
            x = self.tokens(ids) + self.positions(at)
            mask = (self.all_places <= at[:, None])[None, None]
            for block in self.blocks:
                x = block(x, at, mask)
            return (self.final_norm(x[:, -1]) @ self.tokens.weight.T).argmax(dim=-1)

    twin = GPT()
    twin.load_state_dict({name: torch.tensor(array) for name, array in torch_weights(params).items()})
    return twin.to(kind).eval()


def measured(contender, prompts, new, rounds):
    """Return a row: the median of some rounds after one that compiles."""
    began = time.perf_counter()
    tokens = contender.write(prompts, new)
    first_call = time.perf_counter() - began
    contender.write(prompts, 1)
    all_seconds, first_seconds = [], []
    for _ in range(rounds):
        for seconds, count in ((all_seconds, new), (first_seconds, 1)):
            began = time.perf_counter()
            contender.write(prompts, count)
            seconds.append(time.perf_counter() - began)
    whole, first = statistics.median(all_seconds), statistics.median(first_seconds)
    row = {"seconds": whole, "seconds_to_first": first, "seconds_of_first_call": first_call}
    row["tokens_per_second"] = len(prompts) * new / whole
    row["tokens_per_second_after_first"] = len(prompts) * (new - 1) / (whole - first) if whole > first else None
    return row, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a small model, short prompts, PyTorch not compiled")
    parser.add_argument("--batch", type=int, nargs="+", help="sizes of batches (default: 1 64)")
    parser.add_argument("--prompt", type=int, help="tokens of each prompt (default: 128)")
    parser.add_argument("--new", type=int, help="tokens to write (default: 128)")
    parser.add_argument("--dtype", help="bfloat16 (the default), float16 or float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch", nargs="*", metavar="MODE", help="eager, or modes of torch.compile; nothing for none")
    given = parser.parse_args()
    model = build("gpt2", init_std=SPREAD, **NO_BIASES, **(TINY if given.tiny else {}))
    prompt, new = given.prompt or (12 if given.tiny else 128), given.new or (12 if given.tiny else 128)
    dtype = given.dtype or ("float32" if given.tiny else "bfloat16")
    modes = (("eager",) if given.tiny else ("reduce-overhead", "eager")) if given.torch is None else given.torch
    params = model.init(0)
    for batch in given.batch or ((1, 4) if given.tiny else (1, 64)):
        prompts = np.random.default_rng(0).integers(0, model.config.vocab, (batch, prompt))
        makers = {"ours": lambda: Ours(model, params, dtype)}
        for mode in modes:
            makers[mode] = lambda mode=mode, batch=batch: Torch(model, params, dtype, batch, prompt + new, mode)
        expected = None
        for make in makers.values():
            with use_engine("jax"):
                contender = make()
                row, tokens = measured(contender, prompts, new, given.rounds)
            expected = tokens if expected is None else expected
            sizes = {"batch": batch, "prompt": prompt, "new": new, "dtype": dtype}
            same = {"same_tokens": float((tokens == expected).mean())}
            print(json.dumps({"contender": contender.name, "device": contender.device, **sizes, **row, **same}))
    compilations = {f"{name} {sizes}": count for (name, sizes), count in traces().items()}
    print(json.dumps({"compilations": compilations}))


if __name__ == "__main__":
    main()
