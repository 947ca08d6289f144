"""The contenders of training steps of published layouts, each made in its own process: ours, transformers and JAX."""

import contextlib
import itertools
from typing import Any

import glassformer  # isort: skip  # noqa: F401  before NumPy: it sets how long the threads of BLAS wait for work
import numpy as np

from glassformer import ops
from glassformer.api.loading import read_model
from glassformer.api.trained_model import TrainedModel
from glassformer.core.arrays import Tree
from glassformer.core.dispatch import current, set_engine
from glassformer.core.tree import count, flatten, tree_map
from glassformer.models import Batch, Model, build
from glassformer.training import EVERYTHING, AdamW, Adapted, LoRA
from glassformer.training.loop import suitable_threads, training_steps
from glassformer.training.recipe import Recipe
from glassformer.weights.export import export_folder

from .steps import BATCHES, Prepared, Trainer

LR, BETA2 = 1e-4, 0.99
ASKED = 0.15  # of the tokens, by an encoder


def write_model(*, folder: str, preset: str) -> int:
    """Write a model with random weights as a Hugging Face folder; return its number of parameters."""
    model = build(preset, dropout=0.0)
    params = model.init(0)
    families = {"smollm2-135m": "llama", "bert-base": "bert", "t5-small": "t5"}
    export_folder(TrainedModel(config=model.config, params=params, family=families[preset]), folder)
    return count(params)


def batches_for(model: Model, *, length: int, batch: int) -> list[Batch]:
    """Return batches of random tokens: what follows (decoder), what some are (encoder), another text (both)."""
    rng = np.random.default_rng(0)
    rows = rng.integers(5, model.config.vocab, (BATCHES, 2, batch, length + 1))
    if model.config.architecture == "encoder":
        asked = rng.random((BATCHES, batch, length)) < ASKED
        return [
            Batch(tokens=own[0, :, :-1], targets=np.where(here, own[1, :, :-1], ops.IGNORE))
            for own, here in zip(rows, asked, strict=True)
        ]
    source = model.config.architecture == "encoder-decoder"
    return [Batch(own[0, :, :-1], own[0, :, 1:], source=own[1, :, :-1] if source else None) for own in rows]


class Ours(Trainer):
    """Our training loop as a session runs it, over all weights or over adapters."""

    def __init__(self, *, path: str, engine: str, lora: bool, length: int, batch: int) -> None:
        super().__init__()
        set_engine(engine)
        loaded = read_model(path)
        model, params = loaded.model, loaded.params
        data: Any = Prepared(batches_for(model, length=length, batch=batch))
        parametrization = Adapted(params, LoRA()) if lora else EVERYTHING
        trained = LoRA().init(params, 0) if lora else params
        self.parameters = count(trained)
        shards = current().executor.shards(model.config, batch)
        plain: dict[str, Any] = {"schedule": "constant", "warmup": 0, "clip": None, "weight_decay": 0.0}
        recipe = Recipe(steps=1 << 40, batch=batch, lr=LR, beta2=BETA2, shards=shards, **plain)
        self.threads = contextlib.ExitStack()
        self.threads.enter_context(suitable_threads(model.config, batch))
        trainer = current().executor.trainer(model, recipe, parametrization)
        self.steps = training_steps(trainer, data, trainer.first(trained), keep=lambda *_: None)

    def advance(self) -> float:
        return next(self.steps)[1].loss


class Torch(Trainer):
    """The model of transformers, in PyTorch: forward, backward and the fused AdamW; adapters are PEFT's."""

    def __init__(self, *, path: str, compiled: bool, lora: bool, length: int, batch: int) -> None:
        super().__init__()
        import torch
        import transformers

        loaded = read_model(path)
        kinds = {"decoder": "AutoModelForCausalLM", "encoder": "AutoModelForMaskedLM"}
        kind = getattr(transformers, kinds.get(loaded.config.architecture, "AutoModelForSeq2SeqLM"))
        model = kind.from_pretrained(path, dtype=torch.float32)
        if lora:
            model = adapted(model, loaded.params)
        model.train()
        trained = [p for p in model.parameters() if p.requires_grad]
        self.parameters = sum(p.numel() for p in trained)
        self.optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, BETA2), weight_decay=0.0, fused=True)
        self.model = torch.compile(model) if compiled else model
        batches = batches_for(loaded.model, length=length, batch=batch)
        self.batches = itertools.cycle([self._asked(own) for own in batches])

    def _asked(self, batch: Batch) -> dict[str, Any]:
        import torch

        tokens, targets = torch.tensor(batch.tokens), torch.tensor(batch.targets)
        if batch.source is not None:
            return {"input_ids": torch.tensor(batch.source), "decoder_input_ids": tokens, "labels": targets}
        if (batch.targets == ops.IGNORE).any():
            return {"input_ids": tokens, "labels": targets}
        # Ours follow each token already; theirs are moved by one place.
        return {"input_ids": tokens, "shift_labels": targets, "labels": targets}

    def advance(self) -> float:
        loss = self.model(**next(self.batches)).loss
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def adapted(model: Any, params: Tree) -> Any:
    """Return a Llama with PEFT's adapters that begin as ours."""
    import peft
    import torch

    ours = LoRA()
    settings: dict[str, Any] = {"r": ours.rank, "lora_alpha": ours.alpha, "lora_dropout": 0.0, "bias": "none"}
    model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], **settings))
    first = flatten(ours.init(params, 0))
    names = {"query": "q_proj", "value": "v_proj"}
    with torch.no_grad():
        for name, array in first.items():
            _, number, _, part, _, matrix = name.split(".")
            maps = getattr(model.base_model.model.model.layers[int(number)].self_attn, names[part])
            side = maps.lora_A if matrix == "a" else maps.lora_B
            side["default"].weight.copy_(torch.tensor(array.T))
    return model


class Jax(Trainer):
    """JAX: our forward pass and our AdamW traced by jax.jit, differentiated by jax.grad, buffers donated."""

    def __init__(self, *, path: str, lora: bool, length: int, batch: int) -> None:
        super().__init__()
        import jax

        loaded = read_model(path)
        params = tree_map(jax.numpy.asarray, loaded.params)
        parametrization = Adapted(params, LoRA()) if lora else EVERYTHING
        trained = LoRA().init(loaded.params, 0) if lora else loaded.params
        optimizer = AdamW(beta2=BETA2, weight_decay=0.0)

        def update(trained: Tree, state: Tree, base: Tree, batch: Batch) -> tuple[Any, Tree, Tree]:
            def loss(trained: Tree) -> Any:
                return loaded.model.loss(parametrization.over(base).effective(trained), batch)

            value, grads = jax.value_and_grad(loss)(trained)
            return value, *optimizer.update(trained, grads, state, lr=LR)

        self.update = jax.jit(update, donate_argnums=(0, 1))
        self.base = parametrization.base
        self.params = tree_map(jax.numpy.array, trained)
        self.parameters = count(self.params)
        self.state = optimizer.init(self.params)
        arrays = [tree_map(jax.numpy.asarray, own) for own in batches_for(loaded.model, length=length, batch=batch)]
        self.batches = itertools.cycle(arrays)
        self.wait = jax.block_until_ready

    def advance(self) -> float:
        loss, self.params, self.state = self.update(self.params, self.state, self.base, next(self.batches))
        self.wait((self.params, self.state))
        return float(loss)
