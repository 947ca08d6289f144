"""The contenders of generation, each made inside its own process: ours, Hugging Face, llama.cpp, and the bandwidth."""

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import glassformer  # isort: skip  # noqa: F401  before NumPy: it sets how long the threads of BLAS wait for work
import numpy as np

from glassformer.api.loading import load, load_tokenizer, read_model
from glassformer.api.trained_model import TrainedModel
from glassformer.core.dispatch import set_engine
from glassformer.core.tree import flatten
from glassformer.generation import Sampling
from glassformer.generation.storage import stored
from glassformer.generation.writer import generate_steps
from glassformer.models import build
from glassformer.weights.export import export_folder

GREEDY = Sampling(temperature=0.0)
MEASURED = 64
"""Tokens that are left to read in a measurement of single ones."""
SPREAD = 0.1
"""Of the random weights: with GPT-2's own 0.02 a model soon repeats one token, and equal tokens would show little."""


def write_model(*, folder: str, preset: str, changes: dict[str, Any]) -> int:
    """Write a model with random weights as a Hugging Face folder; return its number of parameters."""
    model = build(preset, init_std=SPREAD, dropout=0.0, **changes)
    params = model.init(0)
    export_folder(TrainedModel(config=model.config, params=params, family="gpt2"), folder)
    return sum(array.size for array in flatten(params).values())


class Writer:
    """Base of the contenders: writes `new` tokens after a prompt, always the likeliest, and keeps the last answer."""

    def __init__(self, *, prompt: list[int], new: int) -> None:
        self.prompt, self.new = prompt, new
        self.tokens: list[int] = []
        self.read = 0  # bytes of weights that one more token takes

    def answer(self) -> Iterator[int]:
        """Yield all tokens."""
        raise NotImplementedError

    def step(self) -> float:
        """Write all tokens; return the seconds to the first, in which the prompt is read."""
        began = time.perf_counter()
        tokens = self.answer()
        self.tokens = [next(tokens)]
        first = time.perf_counter() - began
        self.tokens += tokens
        return first

    def facts(self) -> dict[str, Any]:
        """Return the tokens written and how many bytes one more takes."""
        return {"tokens": self.tokens, "bytes_per_token": self.read}


class Ours(Writer):
    """Our engine with its cache; weights are kept as `weights` says, None: as `load` keeps them."""

    def __init__(self, *, path: str, engine: str, weights: str | None, **job: Any) -> None:
        super().__init__(**job)
        set_engine(engine)
        # A model of random weights has no tokenizer, without which `load` would refuse it.
        loaded = load(path) if weights is None else read_model(path)
        self.model = loaded.model
        self.params = loaded.params if weights is None else stored(loaded.params, weights)
        self.read = read_per_token(self.params, tied=self.model.config.tied_head)

    def answer(self) -> Iterator[int]:
        steps = generate_steps(self.model, self.params, [self.prompt], max_new_tokens=self.new, sampling=GREEDY)
        return (int(step.ids[0]) for step in steps)


class OneToken:
    """Our engine, reading one token more in each of some sequences, the last of `length`."""

    def __init__(self, *, engine: str, length: int, batch: int, vocab: int, **sizes: int) -> None:
        set_engine(engine)
        self.model = build("shakespeare", context=length, vocab=vocab, **sizes)
        self.params, self.cache = stored(self.model.init(0), "float32"), self.model.new_cache()
        begun = max(1, length - MEASURED)
        tokens = np.random.default_rng(0).integers(0, vocab, (batch, begun))
        chunk = max(1, 64 // batch)  # of few tokens, so that the cache is most of what memory holds
        for start in range(0, begun, chunk):
            self.model.read(self.params, tokens[:, start : start + chunk], self.cache)
        self.token = tokens[:, :1]

    def step(self) -> None:
        """Read a token."""
        self.model.read(self.params, self.token, self.cache)

    def facts(self) -> dict[str, Any]:
        """Return nothing: the times say it all."""
        return {}


class HuggingFace(Writer):
    """`generate` of transformers on PyTorch, float32, greedy, with its cache; with `compiled`, by torch.compile."""

    def __init__(self, *, path: str, compiled: bool, **job: Any) -> None:
        super().__init__(**job)
        import torch
        from transformers import AutoModelForCausalLM

        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.ids = torch.tensor([self.prompt])
        self.limits: dict[str, Any] = {
            "max_new_tokens": self.new,
            "min_new_tokens": self.new,
            "do_sample": False,
            "pad_token_id": 0,
        }
        if compiled:
            self.model.forward = torch.compile(self.model.forward)
            self.limits["cache_implementation"] = "static"  # one shape for all tokens, or each would be compiled anew

    def step(self) -> float:
        clock = FirstToken()
        with self.torch.inference_mode():
            mask = self.torch.ones_like(self.ids)
            answer = self.model.generate(self.ids, attention_mask=mask, streamer=clock, **self.limits)
        self.tokens = answer[0, len(self.prompt) :].tolist()
        return clock.seconds


class FirstToken:
    """Told of the prompt and then of every token by `generate`; keeps the time of the first."""

    def __init__(self) -> None:
        self.began, self.seconds, self.told = time.perf_counter(), 0.0, 0

    def put(self, value: Any) -> None:
        """Take in the prompt, or a token."""
        self.told += 1
        if self.told == 2:
            self.seconds = time.perf_counter() - self.began

    def end(self) -> None:
        """Do nothing: the answer is returned as a whole."""


class LlamaCpp(Writer):
    """llama.cpp by its Python binding on a GGUF file, one thread per core."""

    def __init__(self, *, path: str, threads: int, **job: Any) -> None:
        super().__init__(**job)
        llama_cpp = importlib.import_module("llama_cpp")
        room = len(self.prompt) + self.new + 1
        cores = {"n_threads": threads, "n_threads_batch": threads}
        self.model = llama_cpp.Llama(model_path=path, n_ctx=room, seed=0, verbose=False, **cores)

    def answer(self) -> Iterator[int]:
        self.model.reset()  # else it would remember the prompt from the time before
        return map(int, islice(self.model.generate(self.prompt, temp=0.0, repeat_penalty=1.0), self.new))


class OursBatch(Ours):
    """Our engine, writing after several prompts at the same time."""

    def __init__(self, *, prompts: list[list[int]], **job: Any) -> None:
        super().__init__(prompt=prompts[0], **job)
        self.prompts = prompts

    def answer(self) -> Iterator[int]:
        steps = generate_steps(self.model, self.params, self.prompts, max_new_tokens=self.new, sampling=GREEDY)
        return (int(token) for step in steps for token in step.ids)


class LlamaCppBatch(Writer):
    """llama.cpp decoding several sequences in each batch, by the functions of its C library."""

    def __init__(self, *, path: str, threads: int, prompts: list[list[int]], **job: Any) -> None:
        super().__init__(prompt=prompts[0], **job)
        self.c: Any = importlib.import_module("llama_cpp")
        self.prompts = prompts
        self.log = self.c.llama_log_callback(lambda *_: None)  # kept, because C calls it
        self.c.llama_log_set(self.log, None)
        self.model = self.c.llama_model_load_from_file(path.encode(), self.c.llama_model_default_params())
        settings = self.c.llama_context_default_params()
        settings.n_ctx = len(prompts) * (len(self.prompt) + self.new + 1)
        settings.n_seq_max, settings.n_batch = len(prompts), len(prompts) * len(self.prompt)
        settings.n_threads = settings.n_threads_batch = threads
        self.context = self.c.llama_init_from_model(self.model, settings)
        self.vocab = self.c.llama_vocab_n_tokens(self.c.llama_model_get_vocab(self.model))
        self.batch = self.c.llama_batch_init(settings.n_batch, 0, 1)

    def answer(self) -> Iterator[int]:
        self.c.llama_memory_clear(self.c.llama_get_memory(self.context), True)
        chosen = self._read(self.prompts, 0)
        for written in range(self.new):
            yield from chosen
            if written + 1 < self.new:
                chosen = self._read([[token] for token in chosen], len(self.prompt) + written)

    def _read(self, rows: list[list[int]], start: int) -> list[int]:
        """Read on in each sequence; return the likeliest tokens after them."""
        batch, place, lasts = self.batch, 0, []
        for sequence, row in enumerate(rows):
            for i, token in enumerate(row):
                batch.token[place], batch.pos[place], batch.n_seq_id[place] = token, start + i, 1
                batch.seq_id[place][0], batch.logits[place] = sequence, i == len(row) - 1
                place += 1
            lasts.append(place - 1)
        batch.n_tokens = place
        if self.c.llama_decode(self.context, batch):
            raise RuntimeError("llama.cpp could not read a batch")
        logits = (self.c.llama_get_logits_ith(self.context, last) for last in lasts)
        return [int(np.ctypeslib.as_array(row, (self.vocab,)).argmax()) for row in logits]


class FreshStart:
    """A new Python process that loads a model and writes one token, again and again."""

    def __init__(self, *, program: str, arguments: list[str]) -> None:
        self.command = [sys.executable, "-c", program, *arguments]
        self.variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # bytecode is kept, as it is where people work

    def step(self) -> None:
        """Start it and wait for its end."""
        subprocess.run(self.command, env=self.variables, check=True, stdout=subprocess.DEVNULL)

    def facts(self) -> dict[str, Any]:
        """Return nothing: the times say it all."""
        return {}


class Bandwidth:
    """A matrix-vector product over more memory than any cache holds: how fast weights can be read at all."""

    def __init__(self, *, kernel: bool, rows: int, columns: int) -> None:
        self.kernel = kernel
        rng = np.random.default_rng(0)
        self.w = rng.random((rows, columns), dtype=np.float32)
        self.x = rng.random(columns, dtype=np.float32)
        self.y = np.empty(rows, np.float32)

    def step(self) -> None:
        """Read the matrix once."""
        if self.kernel:
            from glassformer.engines.cpu.linear import multiply_few

            multiply_few(self.x[None], self.w.T)
        else:
            np.matmul(self.w, self.x, out=self.y)

    def facts(self) -> dict[str, Any]:
        """Return how many bytes a step reads."""
        return {"bytes": self.w.nbytes}


def read_per_token(params: Any, *, tied: bool) -> int:
    """Return the bytes of weights that one more token reads: all but tables of which it looks up one row."""
    looked_up = {"embedding.positions.table", *(() if tied else ("embedding.tokens.table",))}
    return sum(array.nbytes for name, array in flatten(params).items() if name not in looked_up)


def encode(*, path: str, text: str) -> list[int]:
    """Return the tokens of a text as the model at `path` reads it."""
    return [int(token) for token in load_tokenizer(path).encode(text)]
